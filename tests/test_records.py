"""Records of a patch are validated when made, and say every mistake at once in the author's terms."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_hotfix import records
from ascend_hotfix.catalog import read_patch_file
from ascend_hotfix.records import (
    RULE_FIELDS,
    Drop,
    Exact,
    Fill,
    Fix,
    Layers,
    ModelPatch,
    Packed,
    PatchError,
    Prefix,
    Scheme,
    Segments,
    Suffix,
    per_expert,
)

REFS = ("vllm-ascend#1",)
RULE = Prefix("visual", "model.visual")


def fix(**fields) -> Fix:
    return Fix(**{"id": "one", "why": "it fails", "refs": REFS, "lookup": (RULE,), **fields})


def problems(make, *args, **fields) -> list[str]:
    with pytest.raises(PatchError) as caught:
        make(*args, **fields)
    return caught.value.problems


# A whole patch, as an author writes one


def test_a_patch_as_an_author_writes_it():
    patch = ModelPatch(
        model_types=("qwen3_vl_moe", "qwen3_vl_moe_text"),
        fixes=(
            Fix(
                id="wrapper-order",
                why="ModelSlim writes model.language_model.*; vLLM asks language_model.model.*",
                refs=("vllm-ascend#4293",),
                versions={"vllm-ascend": ">=0.11,<0.13"},
                retire="0.13 ships the rows",
                lookup=(RULE, Prefix("language_model.model", "model.language_model")),
                packed=(
                    Packed("experts", per_expert()),
                    Packed("qkv_proj", ("q_proj", "k_proj"), optional=("k_proj",)),
                ),
                types=(Scheme("**.gate"), Scheme("model.mtp.**", "W8A8_DYNAMIC", mtp_only=True)),
                drop=(Drop("**.rot.weight"),),
                fill=(Fill("**.e_score_correction_bias"),),
            ),
        ),
    )
    assert patch.fixes[0].packed[0].shards == ("experts.0.gate_proj", "experts.0.up_proj", "experts.0.down_proj")


@pytest.mark.parametrize(
    "record",
    [
        RULE,
        Exact("", "lm_head"),
        Segments("a", "b"),
        Suffix("a", "b"),
        Layers("layers", 3, stop=3),
        Packed("qkv_proj", ("q_proj",)),
        Scheme("a.*"),
        Drop("a.*"),
        Fill("a.*", 1.0),
        fix(versions={"vllm": ">=0.11"}),
        ModelPatch(("qwen3",), (fix(),)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_are_frozen_and_compare_by_value(record):
    field = dataclasses.fields(record)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, field, "other")
    assert record == dataclasses.replace(record)


def test_versions_cannot_be_changed_through_the_mapping_they_were_made_from():
    ranges = {"vllm": ">=0.11"}
    made = fix(versions=ranges)
    ranges["vllm"] = "nonsense"
    assert made.versions == {"vllm": ">=0.11"}
    with pytest.raises(TypeError):
        made.versions["vllm"] = "<1"


# Every mistake at once


def test_every_mistake_of_a_fix_is_reported_at_once():
    found = problems(
        Fix,
        id="Bad Id",
        why="",
        refs=("x", 5),
        versions={"vllm": "0.11", "numpy": ">=1"},
        override="replaces a wrong scheme",
        lookup=[RULE],
        packed=(RULE,),
        drop=Drop("a.b"),
    )
    for said in (
        "id 'Bad Id' must be lower-case words joined by '-'",
        "why is empty",
        "refs[1] must be a string, not 5",
        "versions names 'numpy'; known are vllm, vllm-ascend, transformers, torch",
        "versions['vllm']: '0.11' is no version clause; write such as '>=0.11,<0.13'",
        "lookup must be a tuple of Exact or Prefix or Segments or Suffix or Layers, not list",
        "packed[0] must be Packed, not Prefix(old='visual', new='model.visual')",
        "drop must be a tuple of Drop, not Drop (a one-element tuple needs a comma)",
    ):
        assert any(said in line for line in found), said
    assert len(found) == 8


def test_every_mistake_of_a_patch_is_reported_at_once():
    found = problems(ModelPatch, model_types=(), fixes=("x",), name="Qwen 3")
    assert [line.split()[0] for line in found] == ["fixes[0]", "model_types", "name"]


def test_the_message_names_the_record_and_holds_every_mistake():
    with pytest.raises(PatchError) as caught:
        Packed("qkv.proj", (), optional=("v",))
    assert str(caught.value).splitlines() == [
        "Packed('qkv.proj'):",
        "  fused: 'qkv.proj' must be one segment",
        "  shards is empty",
        "  optional names 'v', which is no shard",
    ]


@given(st.sets(st.sampled_from(["id", "why", "refs", "versions", "lookup", "override"]), min_size=1))
def test_no_mistake_hides_another(wrong):
    bad = {
        "id": "Upper",
        "why": "",
        "refs": (),
        "versions": {"numpy": ">=1"},
        "lookup": [RULE],
        "override": 1,
    }
    found = problems(fix, **{name: bad[name] for name in wrong})
    for name in wrong:
        assert any(line.startswith(name) for line in found), name


# Each mistake, in the author's terms


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id": ""}, "id '' must be"),
        ({"id": 3}, "id 3 must be"),
        ({"why": None}, "why"),
        ({"why": 5}, "why must be a string"),
        ({"refs": ()}, "refs is empty; name the public report or the upstream file that shows it"),
        ({"why": "two\nlines"}, "why has a line break"),
        ({"refs": ("",)}, "refs[0] is empty"),
        ({"refs": "vllm#1"}, "refs must be a tuple of strings, not 'vllm#1' (a one-element tuple needs a comma)"),
        ({"retire": 3}, "retire must be a string"),
        ({"versions": ">=0.11"}, "versions must map a distribution to a range, not '>=0.11'"),
        ({"versions": {"vllm": ">=0.13,<0.11"}}, "versions['vllm']: '>=0.13,<0.11' fits no version"),
        ({"override": "a reason"}, "override needs versions"),
        ({"override": True, "versions": {"vllm": ">=1"}}, "override must be a string: the reason"),
        ({"lookup": RULE}, "lookup must be a tuple of"),
        ({"lookup": ()}, "has no rule; give at least one of build, lookup, weights, params, packed, types, drop, fill"),
    ],
)
def test_a_mistake_in_a_fix(fields, says):
    assert any(says in line for line in problems(fix, **fields))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Packed("", ("a",)), "fused: '' must be whole dotted segments"),
        (lambda: Packed("qkv_proj", ("q.",)), "shards: 'q.' must be whole dotted segments"),
        (lambda: Packed("qkv_proj", ["q_proj"]), "shards must be a tuple of strings, not ['q_proj']"),
        (lambda: Packed("qkv_proj", "q_proj"), "(a one-element tuple needs a comma)"),
        (lambda: Packed("qkv_proj", ("q_proj", 1)), "shards[1] must be a string, not 1"),
        (lambda: Packed("qkv_proj", ("q_proj",), "q_proj"), "optional must be a tuple of strings"),
        (lambda: Packed("qkv_proj", 5, ("q_proj",)), "shards must be a tuple of strings, not 5"),
        (lambda: Scheme("a.*", "w8a8"), "scheme must be upper case, such as 'FLOAT' or 'W8A8_DYNAMIC'"),
        (lambda: Scheme("a.*", 8), "scheme must be upper case"),
        (lambda: Scheme("**"), "pattern '**' matches everything"),
        (lambda: Scheme("a.b*"), "'*' stands for a whole segment, not part of one ('b*')"),
        (lambda: Drop(".weight"), "pattern: '.weight' must be whole dotted segments"),
        (lambda: Drop(7), "pattern: 7 must be whole dotted segments"),
        (lambda: Fill("a.b", "0"), "value must be a number, not '0'"),
        (lambda: Fill("a.b", True), "value must be a number, not True"),
        (lambda: ModelPatch("qwen3", (fix(),)), "model_types must be a tuple of strings, not 'qwen3'"),
        (lambda: Packed("*", ("a",)), "fused: '*' must be a name, it takes no '*'"),
        (lambda: Packed("qkv_proj", ("q*",)), "shards: 'q*' must be a name, it takes no '*'"),
        (lambda: Fill("a.b", float("nan")), "value must be a finite number that a parameter can hold, not nan"),
        (lambda: Fill("a.b", 10**400), "value must be a finite number"),
        (lambda: records.Config({"a": []}), "put['a'] must be a string or a number or True or False, not []"),
        (lambda: records.Config({"": 1}), "put must map keys of config.json to values"),
        (lambda: records.Config(remove=("",)), "remove[0] is empty"),
        (lambda: records.DescriptionSet("a b", 1), "key: 'a b' has ' ' in it"),
        (lambda: records.Stack("a", (("b", object()),)), "shards['b'] must be a string or a number"),
        (lambda: records.Dequantize("a", block=True), "block must be a number above 0"),
        (lambda: Drop("a.b c"), "pattern: 'a.b c' has ' ' in it, which no name has"),
        (lambda: ModelPatch(("",), (fix(),)), "model_types: '' is no model_type; write it as config.json does"),
        (lambda: ModelPatch(("a\n",), (fix(),)), "model_types: 'a\\n' is no model_type"),
        (lambda: ModelPatch(("-a",), (fix(),)), "model_types: '-a' is no model_type"),
        (lambda: ModelPatch(("qwen*",), (fix(),)), "'*' stands for every model, not for part of a name"),
        (lambda: ModelPatch(("a",), (fix(),), architectures=("A B",)), "architectures: 'A B' must be one name"),
        (lambda: ModelPatch(("qwen3",), ()), "fixes is empty"),
        (lambda: ModelPatch((), (fix(), fix(id="two", model_types=("a",)))), "model_types is empty; name at least one"),
        (
            lambda: ModelPatch(("a",), (fix(model_types=("b",)),)),
            "fix 'one' is for 'b', which is not among the model_types",
        ),
        (lambda: ModelPatch(("a",), (fix(model_types=("*",)),)), "fix 'one' is for '*', which is not among"),
        (
            lambda: ModelPatch(("a",), (fix(architectures=("B",)),), architectures=("A",)),
            "fix 'one' is for 'B', which is not among the architectures of its patch; add it there, or take it out here",
        ),
        (lambda: fix(model_types="qwen3"), "model_types must be a tuple of strings, not 'qwen3'"),
        (lambda: fix(model_types=("qwen*",)), "'*' stands for every model, not for part of a name"),
        (lambda: fix(architectures=("A B",)), "architectures: 'A B' must be one name"),
        (lambda: ModelPatch(("qwen3",), (fix(), fix())), "fix id 'one' is used 2 times"),
        (lambda: ModelPatch(("qwen3",), (fix(),), name="../x"), "name '../x' must be lower case"),
    ],
)
def test_a_mistake_in_a_record(make, says):
    assert any(says in line for line in problems(make))


@given(st.sampled_from(sorted(RULE_FIELDS)), st.none() | st.integers() | st.text() | st.lists(st.integers()))
def test_a_rule_field_of_any_other_kind_is_a_mistake_and_nothing_else(name, value):
    assert any(line.startswith((name, f"{name}[")) for line in problems(fix, **{name: value}))


@given(st.text())
def test_a_pattern_is_accepted_or_refused_in_the_authors_terms(text):
    try:
        Drop(text)
    except PatchError as error:
        assert error.problems and all(repr(text) in line for line in error.problems)


@pytest.mark.parametrize(
    "rules",
    [
        (Prefix("a", "b"), Prefix("b", "a")),
        (Segments("a", "b"), Segments("b", "a")),
        (Exact("", "lm_head"), Exact("lm_head", "")),
        (Prefix("a.*.b", "a.b.*"), Prefix("a.b.*", "a.*.b")),
        (Layers("layers", 1, stop=1), Layers("layers", -1, start=1, stop=2)),
        (Prefix("a", "b"), Suffix("x", "y"), Prefix("b", "c"), Exact("c", "a")),
    ],
)
def test_rules_that_lead_back_to_where_they_began_are_refused(rules):
    for field in records.RENAMING_FIELDS:
        [found] = problems(fix, **{field: rules})
        assert found.startswith(f"{field}: {rules[0]!r} and ")
        assert "make each a fix of its own; two names cannot trade places" in found


@pytest.mark.parametrize(
    "rules",
    [
        (Prefix("a", "b"), Prefix("b", "c")),
        (Prefix("model", "language_model.model"), Prefix("", "model")),
    ],
)
def test_rules_that_lead_on_are_taken(rules):
    assert fix(weights=rules).weights == rules


def test_an_override_whose_result_the_same_rules_would_move_again_is_refused():
    found = problems(
        fix,
        lookup=(Exact("a", "b"), Segments("b", "c")),
        override="the description is wrong",
        versions={"vllm": ">=0.11"},
    )
    assert "which the same rules turn into" in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "from ascend_hotfix.records import ModelPatch, Regex",
        "from ascend_hotfix.records import *\nRULE = Regex('a', 'b')",
        "from ascend_hotfix import records\nRULE = records.Regex('a', 'b')",
    ],
)
def test_a_patch_that_says_regex_is_told_what_to_write(tmp_path, text):
    [found] = mistakes(tmp_path, text)
    assert found.endswith(
        "there is no Regex; write Exact, Prefix, Segments or Suffix, in which '*' is any segment and '*2' in new is "
        "what the second '*' of old stands for"
    )
    assert "did you mean" not in found


def test_a_mistake_crosses_processes():
    """vLLM inspects models in a subprocess and pickles what it raises."""
    with pytest.raises(PatchError) as caught:
        Drop("**")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)


# Whatever one field holds, the record is sound or refused

SOUND = (
    RULE,
    Exact("", "lm_head"),
    Segments("a", "b"),
    Suffix("a", "b"),
    Layers("layers", 3, stop=3),
    Packed("qkv_proj", ("q_proj",), ("q_proj",)),
    Scheme("a.*"),
    Drop("a.*"),
    Fill("a.*", 1.0),
    records.Config({"model_type": "x"}),
    records.DescriptionFile("other.json"),
    records.DescriptionSet("group_size", 256, ("W4A8_DYNAMIC",)),
    records.Children(),
    records.KVCache("mtp.**"),
    records.Unnamed("ParallelLMHead", "lm_head"),
    records.ClassAlias("FusedMoE", "Linear"),
    records.Inside("Merger", "Vision", "merger"),
    records.Bias("a.*"),
    records.ByPath("a.*"),
    records.ParamAttr("a.*", "weight_loader", "layer"),
    records.ParamAttr("a.*", "output_dim", 0),
    records.Reuse("Indexer", "forward", "indexer_types"),
    records.LayerIndex(2),
    records.TargetLayers("Draft"),
    records.Dequantize("a.*"),
    records.Unfuse("experts.gate_up_proj", ("gate_proj", "up_proj")),
    records.Stack("qkv_proj", (("q_proj", "q"),)),
    records.Absent("a.*"),
)
ODD = (
    None,
    5,
    -1,
    0.5,
    True,
    "",
    ".",
    "**",
    "a..b",
    b"x",
    [],
    ["a"],
    ["a.*"],
    (1,),
    ("",),
    ((),),
    {},
    {"a": []},
    {1: 2},
    object(),
)


def test_every_kind_of_rule_has_a_sound_example():
    kinds = {kind for kinds in RULE_FIELDS.values() for kind in kinds}
    assert {kind for kind in kinds if dataclasses.fields(kind)} <= {type(record) for record in SOUND}


@pytest.mark.parametrize(
    "record", [*SOUND, fix(), ModelPatch(("x",), (fix(),))], ids=lambda record: type(record).__name__
)
def test_whatever_one_field_holds_the_record_is_sound_or_refused(record):
    refusal = PatchError if type(record).__module__ == records.__name__ else (TypeError, ValueError)
    for field in dataclasses.fields(record):
        for value in ODD:
            try:
                made = dataclasses.replace(record, **{field.name: value})
            except refusal:
                continue
            kept = getattr(made, field.name)
            assert kept is None or isinstance(kept, str | int | float | tuple | Mapping), (field.name, value)


# A whole file: nothing that is wrong waits for a second try

FILE = """from ascend_hotfix.records import *

PATCH = ModelPatch(
    model_types="my_model",
    fixes=(
        Fix(
            id="One",
            why="it fails",
            refs=("vllm#1",),
            lookup=(
                Prefix("model.", "x"),
                Segments("a.*", "b.*2"),
            ),
            packed=(Packed("qkv_proj", "q_proj"),),
        ),
        Fix(id="two", why="it fails", refs=("vllm#1",), drop=(Drop("**"),)),
        Fix(id="two", why="", refs=("vllm#1",), weights=(Layers("layers", 0),)),
    ),
)
{more}
"""


def mistakes(folder, text: str) -> list[str]:
    file = folder / "my_model.py"
    file.write_text(text)
    return problems(read_patch_file, file)


def test_every_mistake_of_a_patch_file_is_told_at_once_with_its_line(tmp_path):
    found = mistakes(tmp_path, FILE.format(more=""))
    assert [line.split(":")[0] for line in found] == [f"line {n}" for n in (11, 12, 14, 6, 16, 17, 17, 3)]
    for said, line in zip(
        ("'model.'", "old has 1", "shards must", "id 'One'", "'**' matches", "nothing", "why", "model_types"),
        found,
        strict=True,
    ):
        assert said in line


def test_what_ends_a_patch_file_early_is_told_after_its_other_mistakes(tmp_path):
    found = mistakes(tmp_path, FILE.format(more="import no_such_module"))
    assert len(found) == 9
    assert found[-1] == "line 20: ModuleNotFoundError: No module named 'no_such_module'"


def test_a_single_mistake_has_its_place_in_front(tmp_path):
    (tmp_path / "my_model.py").write_text("from ascend_hotfix.records import *\n\nDrop('**')\n")
    with pytest.raises(PatchError, match="^" + re.escape(f"{tmp_path}/my_model.py:3: Drop('**'): pattern")):
        read_patch_file(tmp_path / "my_model.py")


def test_outside_of_a_patch_file_a_mistake_is_raised_at_once(tmp_path):
    mistakes(tmp_path, FILE.format(more=""))
    with pytest.raises(PatchError):
        Drop("**")


def test_an_override_with_a_refused_rule_is_told_as_that_rule_alone(tmp_path):
    found = mistakes(
        tmp_path,
        "from ascend_hotfix.records import *\nRULES = (Prefix('a.', 'b'), Exact('a', 'b'))\nDrop('**')\n"
        "Fix(id='x', why='y', refs=('z',), override='w', versions={'vllm': '>=1'}, lookup=RULES)\n",
    )
    assert len(found) == 2


def test_a_mistake_names_the_fix_and_the_field_that_hold_it(tmp_path):
    found = mistakes(tmp_path, FILE.format(more=""))
    assert found[0].startswith("line 11: fix 'One', lookup[0]: Prefix(old='model.', new='x'): old has an empty segment")
    assert found[2].startswith("line 14: fix 'One', packed[0]: Packed('qkv_proj'): shards must")
    assert found[4].startswith("line 16: fix 'two', drop[0]: Drop('**'): pattern '**' matches")


def test_each_mistake_of_one_record_has_a_line_of_its_own(tmp_path):
    text = "from ascend_hotfix.records import *\n\nPATCH = ModelPatch(model_types='x', fixes=(Fix(id='A', why='', refs=()),))"
    found = mistakes(tmp_path, text)
    assert [line.partition(": ")[0] for line in found] == ["line 3"] * len(found)
    assert [line.split(": ")[1] for line in found] == ["Fix('A')"] * 4 + ["ModelPatch('')"]
