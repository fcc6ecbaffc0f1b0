"""Suggested patches: they mend names, are tried before they are written, and leave open what names cannot tell."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from conventions import renaming
from mutations import make, rename
from pairs import CHECKPOINTS, EACH_PAIR
from writer import MAIN, Spec, genuine

from ascend_hotfix import records
from ascend_hotfix.catalog import ENV_MODELS, ENV_PATH, load_catalog
from ascend_hotfix.doctor.dryrun import Split, run_split
from ascend_hotfix.doctor.findings import Severity
from ascend_hotfix.doctor.report import Options, Report, to_text
from ascend_hotfix.doctor.suggest.proposal import Proposal
from ascend_hotfix.doctor.suggest.trial import Choice, Suggestion, suggestion, trial_env, write_suggestion
from ascend_hotfix.doctor.suggest.writer import patch_text
from ascend_hotfix.names import Prefix
from ascend_hotfix.records import ModelPatch, Packed, Scheme

VERSIONS = {"vllm": "0.18.0", "vllm-ascend": "0.18.0"}


def loaded(text: str, folder: Path) -> ModelPatch:
    file = folder / "suggested.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("suggested", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    patch: ModelPatch = module.PATCH
    return patch


def test_the_written_text_is_a_patch(tmp_path: Path) -> None:
    proposal = Proposal(
        lookup=[Prefix("visual", "model.visual")],
        packed=[Packed("qkv", ("q", "k", "v"))],
        types=[Scheme("model.layers.*.mlp.gate", "FLOAT")],
    )
    patch = loaded(patch_text(proposal.fields(), ["qwen3_vl"], VERSIONS, "made up"), tmp_path)
    assert patch.model_types == ("qwen3_vl",)
    assert [fix.lookup for fix in patch.fixes] == [(Prefix("visual", "model.visual"),)]
    assert dict(patch.fixes[0].versions) == {"vllm": ">=0.18.0", "vllm-ascend": ">=0.18.0"}
    text = patch_text({}, ["qwen3_vl"], VERSIONS, "made up", {"weights": (Prefix("core", ""),)})
    assert dict(loaded(text, tmp_path).fixes[0].versions) == {"vllm": "==0.18.0", "vllm-ascend": "==0.18.0"}
    assert patch.fixes[0].refs == ("doctor",)


def suggested(
    upstreams: Any, pair: str, model_dir: Path, toggle: str = "all", choose: dict[int, int] | None = None
) -> Suggestion:
    versions = {"vllm-ascend": "0.30.0rc2" if pair == "0.30" else f"{pair}.0"}
    env = {"ASCEND_HOTFIX_MODELS": toggle}
    return suggestion(upstreams.zygote(pair), str(model_dir), Split(), versions, env, choose=choose)


@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize("kind", ["prefix_added_both", "segment_renamed_described"])
def test_a_renamed_checkpoint_is_clean_with_the_suggested_patch(
    upstreams: Any, pair: str, kind: str, tmp_path: Path
) -> None:
    spec = genuine("qwen3_moe-w8a8")
    assert make(spec, kind, 1) is not None
    made = suggested(upstreams, pair, spec.write(tmp_path))
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and not made.choices and not made.worse
    assert [finding.message for finding in made.left] == []


# Of the target the draft's layers are not known by another name, so the draft shows what it needs only with a first patch.
@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deepseek_v3-w4a8", "draft_nested_both"),
        ("deepseek_v3_2-w8a8", "draft_moved_both"),
        ("deepseek_v3-w4a8", "prefix_added_both"),
        ("deepseek_v3_2-w8a8", "segment_renamed_both"),
    ],
)
def test_moved_draft_layers_are_clean_with_the_suggested_patch(
    upstreams: Any, pair: str, name: str, kind: str, tmp_path: Path
) -> None:
    known = {finding.message for finding in suggested(upstreams, pair, genuine(name).write(tmp_path / "right")).before}
    spec = genuine(name)
    assert make(spec, kind, 1) is not None
    made = suggested(upstreams, pair, spec.write(tmp_path / "moved"))
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and not made.choices and not made.worse
    assert {finding.message for finding in made.left} <= known


def test_names_behind_the_models_own_mapper_are_renamed_as_the_checkpoint_writes_them(
    upstreams: Any, tmp_path: Path
) -> None:
    spec = genuine("qwen3_vl-w8a8")
    assert make(spec, "segment_renamed_both", 1) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.text and not made.choices and not made.worse
    assert [finding.message for finding in made.left] == []


@pytest.mark.parametrize("toggle", ["none", "-qwen3_moe", "qwen2"])
def test_a_suggestion_is_tried_where_the_toggle_takes_the_model_out(
    upstreams: Any, toggle: str, tmp_path: Path
) -> None:
    spec = genuine("qwen3_moe-w8a8")
    assert make(spec, "segment_renamed_described", 1) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path), toggle)
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and [finding.message for finding in made.left] == []


def test_what_is_found_before_a_suggestion_is_what_the_toggle_gives(upstreams: Any) -> None:
    stock, patched = (
        suggested(upstreams, "0.11", CHECKPOINTS / "qwen3_vl_moe-w8a8", toggle) for toggle in ("none", "all")
    )
    assert stock.before and stock.text and stock.left == []
    assert patched.before == [] and patched.text == ""


@pytest.mark.parametrize(
    ("toggle", "tried"),
    [
        ("", ""),
        ("all", "all"),
        ("none", "mine"),
        ("Off", "mine"),
        ("qwen2", "qwen2,mine"),
        ("-qwen2", "-qwen2"),
        ("all,-qwen3_moe.fused", "all,-qwen3_moe.fused"),
    ],
)
def test_the_toggle_of_a_trial_selects_the_patch(toggle: str, tried: str) -> None:
    env = trial_env({ENV_MODELS: toggle, ENV_PATH: ""}, Path("at") / "Mine.py", ["qwen3_moe"])
    assert env == {ENV_MODELS: tried, ENV_PATH: str(Path("at") / "Mine.py")}


def test_a_model_type_that_is_taken_out_keeps_its_other_patches_out() -> None:
    toggle = "-qwen3_vl_moe,-glm4_moe"
    tried = trial_env({ENV_MODELS: toggle, ENV_PATH: ""}, Path("mine.py"), ["qwen3_vl_moe"])[ENV_MODELS]
    assert "-qwen3_vl_moe" not in tried.split(",")
    catalogs = [load_catalog({ENV_PATH: "", ENV_MODELS: one}) for one in (toggle, tried)]
    before, after = (
        [one.name for one in catalog.select(["qwen3_vl_moe", "glm4_moe"], {"vllm": "0.11.0", "vllm-ascend": "0.11.0"})]
        for catalog in catalogs
    )
    assert before == after


def test_swapped_gate_and_up_get_no_rename(upstreams: Any, tmp_path: Path) -> None:
    spec = genuine("qwen2_5-w8a8")
    name = "model.layers.0.mlp.gate_proj"
    for tensors in spec.files.values():
        for old in [n for n in tensors if n.startswith(name)]:
            tensors[old.replace("gate_proj", "first_proj_")] = tensors.pop(old)
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.before
    assert "up_proj" not in made.text


def test_a_right_checkpoint_gets_no_patch(upstreams: Any) -> None:
    made = suggested(upstreams, "0.30", CHECKPOINTS / "qwen3_moe-w8a8")
    assert made.text == "" and made.choices == [] and made.before == []


# --- naming conventions -----------------------------------------------------------------------------------------------

LLAMA = {
    **{f"self_attn.{one}_proj": f"self_attn.w{one}" for one in "qkvo"},
    "mlp.gate_proj": "mlp.w1",
    "mlp.up_proj": "mlp.w3",
    "mlp.down_proj": "mlp.w2",
}


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"self_attn.o_proj": "self_attn.dense"}, 2),
        ({"lm_head": "output"}, 1),
        ({"model.embed_tokens": "model.tok_embeddings"}, 1),
        (LLAMA, 14),
        ({"model.": "backbone.", ".self_attn.": ".attn."}, 4),
    ],
)
def test_well_known_names_need_no_question(upstreams: Any, changes: dict[str, str], rules: int, tmp_path: Path) -> None:
    spec = genuine("qwen2_5-w8a8")

    def change(name: str) -> str:
        for old, new in changes.items():
            name = name.replace(old, new)
        return name

    rename(spec, change, described=True, tensors=True)
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.before and made.writable and made.choices == [] and [one.message for one in made.left] == []
    assert made.text.count("Segments(") + made.text.count("Prefix(") <= rules


@pytest.mark.parametrize(
    ("name", "convention", "where"),
    [
        ("deepseek_v3-w4a8", "gpt2", "both"),
        ("qwen3_next-w8a8", "llama", "both"),
        pytest.param("qwen3_vl-w8a8", "megatron", "both", marks=pytest.mark.longer),
        pytest.param("qwen3_moe-w8a8", "qwen1", "stored", marks=pytest.mark.longer),
        pytest.param("qwen3_moe-w8a8", "llama", "described", marks=pytest.mark.longer),
    ],
)
def test_a_checkpoint_under_another_convention_is_clean_with_the_suggested_patch(
    upstreams: Any, name: str, convention: str, where: str, tmp_path: Path
) -> None:
    known = {
        finding.message for finding in suggested(upstreams, "0.30", genuine(name).write(tmp_path / "right")).before
    }
    spec = genuine(name)
    described, tensors = where != "stored", where != "described"
    assert rename(spec, renaming(spec, convention), described=described, tensors=tensors) or not tensors
    made = suggested(upstreams, "0.30", spec.write(tmp_path / "renamed"))
    assert made.before and made.writable and made.choices == []
    assert {finding.message for finding in made.left} <= known


# --- choices ----------------------------------------------------------------------------------------------------------


def strange_siblings(folder: Path) -> Path:
    """Gate and up projections whose names say nothing; they have one shape."""
    spec = genuine("qwen2_5-w8a8")
    for tensors in spec.files.values():
        for name in [name for name in tensors if "gate_proj" in name or "up_proj" in name]:
            tensors[name.replace("gate_proj", "first_").replace("up_proj", "second_")] = tensors.pop(name)
    return spec.write(folder)


def rules_of(choice: Choice) -> list[str]:
    return [text for text, _ in choice.answers]


def test_renamed_siblings_are_one_choice_between_the_ways_to_take_them(upstreams: Any, tmp_path: Path) -> None:
    made = suggested(upstreams, "0.30", strange_siblings(tmp_path))
    assert not made.writable and made.text == ""
    assert [rules_of(choice) for choice in made.choices] == [
        [
            f'weights=(Segments("first_", "{one}"), Segments("second_", "{other}"),)'
            for one, other in (("gate_proj", "up_proj"), ("up_proj", "gate_proj"))
        ]
    ]
    line = made.choices[0].lines[1]
    assert line.startswith("1.2  ") and line.endswith("mlp.first_ is mlp.up_proj, mlp.second_ is mlp.gate_proj")


def test_an_alternative_is_python_that_a_fix_takes(upstreams: Any, tmp_path: Path) -> None:
    lines = [
        line for choice in suggested(upstreams, "0.30", strange_siblings(tmp_path)).choices for line in choice.lines
    ]
    for line in lines:
        number, _, text = line.partition("  ")
        fix = eval(f"Fix('id', 'why', ('ref',), {text}\n)", dict(vars(records))) if not number.endswith(".0") else None
        assert fix is None or fix.weights or fix.drop


@pytest.mark.parametrize(
    ("choose", "clean", "worse", "unknown", "open_ones"),
    [
        ({1: 1}, True, False, [], []),
        ({1: 2}, True, False, [], []),
        ({1: 0}, False, False, [], []),
        ({1: 9, 7: 1}, False, False, ["1.9", "7.1"], [1]),
    ],
)
def test_a_chosen_alternative_is_tried_as_any_rule(
    upstreams: Any,
    choose: dict[int, int],
    clean: bool,
    worse: bool,
    unknown: list[str],
    open_ones: list[int],
    tmp_path: Path,
) -> None:
    made = suggested(upstreams, "0.30", strange_siblings(tmp_path), choose=choose)
    assert (made.left == [], made.worse, made.writable) == (clean, worse, clean)
    assert made.unknown == unknown
    assert [choice.number for choice in made.choices] == open_ones


def test_a_bias_that_no_tensor_fills_is_offered_and_not_filled(upstreams: Any) -> None:
    folder = CHECKPOINTS / "glm4_moe-w8a8"
    made = suggested(upstreams, "0.30", folder, "none")
    assert made.text == "" and not made.choices[0].blocks
    assert rules_of(made.choices[0]) == ['fill=(Fill("**.mlp.gate.e_score_correction_bias", 0.0),)']
    made = suggested(upstreams, "0.30", folder, "none", choose={1: 1})
    assert made.writable and {finding.code for finding in made.left} == {"parameter-filled"}


@pytest.mark.parametrize(("kind", "name"), [("tensor_cut", "qwen2_5-w8a8"), ("tensor_lost", "qwen3_moe-w8a8")])
def test_what_is_wrong_in_the_file_is_no_choice_of_names(upstreams: Any, kind: str, name: str, tmp_path: Path) -> None:
    spec = genuine(name)
    assert make(spec, kind, 3) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.before and made.text == "" and made.choices == []


def test_tensors_that_are_left_aside_in_silence_are_not_offered_to_be_dropped(upstreams: Any) -> None:
    made = suggested(upstreams, "0.30", CHECKPOINTS / "qwen3-w8a8", "none")
    assert [finding.code for finding in made.before] == ["tensor-unused"]
    assert made.text == "" and made.choices == []


def written(upstreams: Any, model_dir: Path, target: Path, choose: tuple[tuple[int, int], ...] = ()) -> Report:
    report = Report(str(model_dir), Options(choose=choose), installed={"vllm-ascend": "0.30.0rc2"})
    zygote = upstreams.zygote("0.30")
    before = run_split(zygote, report.path, Split())
    report.findings = write_suggestion(zygote, report, target, Split(), before)
    return report


def test_the_report_shows_the_alternatives_and_the_file_waits_for_the_answer(upstreams: Any, tmp_path: Path) -> None:
    model, target = strange_siblings(tmp_path / "model"), tmp_path / "mine.py"
    report = written(upstreams, model, target)
    assert not target.exists() and report.suggested is None
    assert [finding.code for finding in report.findings] == ["suggest-choice"]
    text = to_text(report, width=1000)
    assert 'one of  1.1  weights=(Segments("first_", "gate_proj"), Segments("second_", "up_proj"),)' in text
    assert (
        f"ascend-hotfix doctor {model} --suggest {target} --choose 1.1" in text and f"{target} is not written" in text
    )
    report = written(upstreams, model, target, ((1, 2),))
    assert report.findings == [] and report.suggested is not None and "clean" in report.suggested
    assert 'Segments("second_", "gate_proj"),' in target.read_text()


def test_a_choice_that_there_is_not_is_told(upstreams: Any, tmp_path: Path) -> None:
    report = written(upstreams, strange_siblings(tmp_path / "model"), tmp_path / "mine.py", ((3, 1),))
    assert [f.params["choice"] for f in report.findings if f.code == "suggest-unknown"] == ["3.1"]
    assert not (tmp_path / "mine.py").exists()


# --- schemes that the tensors contradict -------------------------------------------------------------------------------


def misdescribed(name: str, old: str, new: str, *, whole: bool = True, part: str = "") -> Spec:
    """A genuine checkpoint whose description says *new* for the layers of scheme *old*; *whole*: of itself as well."""
    spec = genuine(name)
    assert spec.description is not None
    for key, scheme in spec.description.items():
        if scheme == old and part in key and (whole or "." in key):
            spec.description[key] = new
    return spec


@pytest.mark.parametrize("pair", ["0.18", "0.30"])
@pytest.mark.parametrize(
    ("name", "old", "new", "part"),
    [
        ("qwen3-w8a8", "W8A8_MIX", "W8A8_DYNAMIC", "."),
        ("qwen3-w8a8", "W8A8_MIX", "W8A8_DYNAMIC", "layers.0.self_attn.q_proj."),  # upstream refuses the fused layer
        ("qwen2_5-w8a8", "W8A8", "W8A8_DYNAMIC", "."),
        ("qwen3_moe-w4a8", "W4A8_DYNAMIC", "W8A8_DYNAMIC", ""),
    ],
)
def test_a_scheme_that_the_tensors_contradict_is_corrected(
    upstreams: Any, pair: str, name: str, old: str, new: str, part: str, tmp_path: Path
) -> None:
    made = suggested(upstreams, pair, misdescribed(name, old, new, part=part).write(tmp_path))
    assert [(f.code, f.params["scheme"], f.params["stored"]) for f in made.before] == [("scheme-stored", new, old)]
    assert made.writable and "override=" in made.text and "drop=" not in made.text
    assert [finding.message for finding in made.left] == []


def test_schemes_that_store_the_same_are_one_choice_for_all_layers(upstreams: Any, tmp_path: Path) -> None:
    model = misdescribed("qwen3-w8a8", "W8A8_MIX", "W8A8_DYNAMIC").write(tmp_path)
    (choice,) = suggested(upstreams, "0.30", model).choices
    assert [note for _, note in choice.answers] == [
        f"model.layers.0.mlp.down_proj is {s}" for s in ("W8A8", "W8A8_MIX")
    ]
    for text in rules_of(choice):
        assert len(eval(f"Fix('id', 'why', ('ref',), {{'vllm': '==0.30'}}, {text})", dict(vars(records))).types) == 7
    made = suggested(upstreams, "0.30", model, choose={1: 2})
    assert made.writable and made.left == []


def test_only_the_layers_that_are_wrong_are_corrected(upstreams: Any, tmp_path: Path) -> None:
    model = misdescribed("qwen3-w8a8", "W8A8_MIX", "W8A8_DYNAMIC", part="layers.1.self_attn.o_proj.").write(tmp_path)
    made = suggested(upstreams, "0.30", model)
    assert 'Scheme("model.layers.1.self_attn.o_proj", "W8A8_MIX")' in made.text and made.text.count("Scheme(") == 1
    assert made.writable and made.left == []


# --- names of experts and their parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3_moe-w8a8", "minimax_m2-w8a8"])
def test_experts_named_by_the_other_convention_are_clean_with_three_rules(
    upstreams: Any, name: str, tmp_path: Path
) -> None:
    spec = genuine(name)
    assert make(spec, "experts_renamed_both", 1) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.before and made.writable and [finding.message for finding in made.left] == []
    assert made.text.count("Segments(") == 3


def step3p5(folder: Path) -> Path:
    """A Step-3.5 with float experts and their MTP layer: vLLM's loader of that draft asks experts.w13_weight to this day."""
    hidden, heads, kv, inner, experts = 64, 4, 2, 32, 4
    rows: dict[str, tuple[str, list[int], str]] = {}

    def linear(name: str, out: int, into: int, scheme: str = "FLOAT") -> None:
        rows[f"{name}.weight"] = ("BF16" if scheme == "FLOAT" else "I8", [out, into], scheme)
        if scheme != "FLOAT":
            rows[f"{name}.weight_scale"] = rows[f"{name}.weight_offset"] = ("F32", [out, 1], scheme)

    def vector(name: str, size: int = hidden, dtype: str = "BF16") -> None:
        rows[name] = (dtype, [size], "FLOAT")

    for head in ("model.embed_tokens", "lm_head", "model.layers.2.transformer.shared_head.output"):
        linear(head, 128, hidden)
    for number in range(3):
        layer, scheme = f"model.layers.{number}", "FLOAT" if number == 2 else "W8A8_DYNAMIC"
        for part, out, into in (("q", heads, 0), ("k", kv, 0), ("v", kv, 0), ("o", 0, heads)):
            linear(f"{layer}.self_attn.{part}_proj", out * inner or hidden, into * inner or hidden, scheme)
        for norm, size in (("self_attn.q_norm", 32), ("self_attn.k_norm", 32)):
            vector(f"{layer}.{norm}.weight", size)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            vector(f"{layer}.{norm}.weight")
        if not number:
            for part, out, into in (("gate", 128, hidden), ("up", 128, hidden), ("down", hidden, 128)):
                linear(f"{layer}.mlp.{part}_proj", out, into, scheme)
            continue
        linear(f"{layer}.moe.gate", experts, hidden)
        vector(f"{layer}.moe.router_bias", experts, "F32")
        for part, shape in (("gate", [inner, hidden]), ("up", [inner, hidden]), ("down", [hidden, inner])):
            rows[f"{layer}.moe.{part}_proj.weight"] = ("BF16", [experts, *shape], "FLOAT")
        shared = f"{layer}.share_expert" if number == 1 else f"{layer}.moe.share_expert"
        for part, out in (("gate", inner), ("up", inner)) if number == 1 else (("gate_up", 2 * inner),):
            linear(f"{shared}.{part}_proj", out, hidden)
        linear(f"{shared}.down_proj", hidden, inner)
    for norm in ("model.norm", *(f"model.layers.2.{n}" for n in ("enorm", "hnorm", "transformer.shared_head.norm"))):
        vector(f"{norm}.weight")
    linear("model.layers.2.eh_proj", hidden, 2 * hidden)
    config = {
        "architectures": ["Step3p5ForCausalLM"],
        "model_type": "step3p5",
        "hidden_size": hidden,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_nextn_predict_layers": 1,
        "num_attention_heads": heads,
        "num_attention_groups": kv,
        "head_dim": 32,
        "vocab_size": 128,
        "max_position_embeddings": 4096,
        "max_seq_len": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "torch_dtype": "bfloat16",
        "moe_layers_enum": "1,2",
        "moe_num_experts": experts,
        "moe_top_k": 2,
        "moe_intermediate_size": inner,
        "share_expert_dim": inner,
        "use_moe": True,
        "moe_every_n_layer": 1,
        "use_head_wise_attn_gate": False,
    }
    description = {name: scheme for name, (_, _, scheme) in rows.items()}
    return Spec(config, {MAIN: {name: (dtype, shape) for name, (dtype, shape, _) in rows.items()}}, description).write(
        folder
    )


def test_a_parameter_that_a_loader_asks_by_its_old_name_gets_that_name_too(upstreams: Any, tmp_path: Path) -> None:
    model = step3p5(tmp_path)
    shipped = {finding.message for finding in upstreams.check("0.30", model, models="all")}
    made = suggested(upstreams, "0.30", model, "-moe_params")
    assert any("asked model.layers.*.mtp_block.moe.experts.w13_weight" in finding.message for finding in made.before)
    assert made.writable and "params=(" in made.text
    assert {finding.message for finding in made.left} <= shipped


def test_parts_that_are_built_without_a_prefix_are_said_to_be_no_matter_of_names(
    upstreams: Any, tmp_path: Path
) -> None:
    folder = CHECKPOINTS / "hunyuan_v1_moe-w8a8_default"
    made = suggested(upstreams, "0.11", folder, "none")
    assert made.text == "" and [(choice.answers, choice.blocks) for choice in made.choices] == [((), False)] * 2
    assert made.choices[1].what.endswith("ask the description for .gate_proj, .up_proj, .down_proj")
