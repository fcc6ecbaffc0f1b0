"""The catalog: where patches come from, what the toggle takes, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_hotfix.catalog import Catalog, load_catalog, read_patch_file
from ascend_hotfix.records import Fix, ModelPatch, PatchError, Prefix

GOOD = """
from ascend_hotfix.records import Fix, ModelPatch, Prefix
PATCH = ModelPatch(
    model_types=("tiny",),
    fixes=(Fix(id="order", why="w", refs=("r",), lookup=(Prefix("a", "b"),)),),
    {name}
)
"""


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def patch(name: str, *model_types: str, fixes: tuple[str, ...] = ("one", "two"), versions: str = "") -> ModelPatch:
    ranges = {"vllm-ascend": versions} if versions else {}
    made = tuple(Fix(id=i, why="w", refs=("r",), versions=ranges, lookup=(Prefix("a", "b"),)) for i in fixes)
    return ModelPatch(model_types=model_types or (name,), fixes=made, name=name)


def catalog(toggle: str = "") -> Catalog:
    held = Catalog(toggle=toggle)
    held.add(patch("qwen3_vl_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"), "a")
    held.add(patch("kimi_k2"), "b")
    held.add(patch("any", "*", fixes=("experts",)), "c")
    return held


def names(held: Catalog) -> list[str]:
    return [one.name for one in held.wanted()]


ALL = ["qwen3_vl_moe.one", "qwen3_vl_moe.two", "kimi_k2.one", "kimi_k2.two", "any.experts"]


@pytest.mark.parametrize(
    ("toggle", "left"),
    [
        ("", ALL),
        ("all", ALL),
        ("none", []),
        ("0", []),
        ("OFF", []),
        ("kimi_k2", ["kimi_k2.one", "kimi_k2.two"]),
        ("qwen3_vl_moe_text", ["qwen3_vl_moe.one", "qwen3_vl_moe.two"]),
        ("kimi_k2.two, any", ["kimi_k2.two", "any.experts"]),
        ("-kimi_k2", ["qwen3_vl_moe.one", "qwen3_vl_moe.two", "any.experts"]),
        ("all,-qwen3_vl_moe.one", ALL[1:]),
        ("kimi_k2,-kimi_k2.one", ["kimi_k2.two"]),
    ],
)
def test_the_toggle_addresses_patches_model_types_and_fixes(toggle: str, left: list[str]) -> None:
    assert names(catalog(toggle)) == left


def test_an_unknown_name_is_one_message_with_the_nearest_known_names() -> None:
    messages = catalog("kimi-k2,-qwen3_vl_moe.on,any").unknown_terms()
    assert len(messages) == 2
    assert "'kimi-k2'" in messages[0] and "did you mean kimi_k2" in messages[0]
    assert "qwen3_vl_moe.one" in messages[1]


def test_a_fix_is_selected_by_model_type_and_version() -> None:
    held = Catalog()
    held.add(patch("old", "m", versions=">=0.11,<0.13"), "a")
    held.add(patch("new", "m", versions=">=0.13"), "b")
    selected = held.select(["m"], {"vllm-ascend": "0.13.0rc2"})
    assert {one.patch for one in selected} == {"new"}
    assert held.select(["other"], {"vllm-ascend": "0.13.0"}) == []
    assert held.select(["m"], {}) == [], "without vllm-ascend there is nothing to mend in it"
    reasons = [reason for _, reason in held.out_of_range(["m"], {"vllm-ascend": "0.11.0"})]
    assert reasons == ["vllm-ascend 0.11.0 is not in >=0.13"] * 2


def test_a_star_patch_fits_every_model() -> None:
    assert [one.patch for one in catalog().select(["never heard of"], {})] == ["any"]


def test_a_patch_is_named_after_its_file(tmp_path: Path) -> None:
    assert read_patch_file(write(tmp_path, "my_model.py", GOOD.format(name="")))[0].name == "my_model"


@pytest.mark.parametrize(
    ("toggle", "said"),
    [
        ("all,none", "'none' alone"),
        ("-all", "'none' alone"),
        ("-", "'none' alone"),
        ("any,-any", "leaves no fix"),
        ("all,-any", ""),
    ],
)
def test_a_toggle_that_contradicts_itself_is_told(toggle: str, said: str) -> None:
    messages = catalog(toggle).unknown_terms()
    assert len(messages) == bool(said) and all(said in message for message in messages)


def test_all_beside_a_name_is_still_all() -> None:
    assert names(catalog("all,any")) == names(catalog(""))


def test_a_name_from_a_file_that_cannot_be_one_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"Bad Name\.py: the file's name is the patch's.*give it a name="):
        read_patch_file(write(tmp_path, "Bad Name.py", GOOD.format(name="")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from ascend_hotfix.records import Fix\nFix(id='a', why='w', ref=('r',))", "did you mean refs"),
        ("from ascend_hotfix.records import Prefixx", "did you mean Prefix"),
        ("PATCH = (", "is not valid Python"),
        ("x = 1", "defines no PATCH"),
        ("PATCH = 3", "has a PATCH of another kind"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("\nraise SystemExit(3)", ":2: SystemExit"),
        (
            "from ascend_hotfix.records import *\n\nPATCH = ModelPatch(model_types='x', fixes=(Fix(id='A', why='', refs=()),))",
            ": line 3: Fix('A'): id 'A' must be lower-case",
        ),
    ],
)
def test_a_broken_patch_file_is_one_message_with_file_and_place(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, "broken.py", text)
    with pytest.raises(PatchError) as caught:
        read_patch_file(file)
    assert str(file) in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_file_leaves_the_others_in_use(tmp_path: Path) -> None:
    write(tmp_path, "a_broken.py", "PATCH = (")
    write(tmp_path, "b_good.py", GOOD.format(name=""))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)})
    assert "b_good" in held.sources
    assert len(held.problems) == 1 and "a_broken.py" in held.problems[0]


def test_of_two_patches_of_one_name_the_users_is_used_and_the_other_reported(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine.py", GOOD.format(name='name="deepseek",'))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(mine)})
    assert held.sources["deepseek"].origin == str(mine)
    assert len(held.problems) == 1 and "'deepseek' is taken by" in held.problems[0]


def test_a_path_that_is_not_there_and_an_empty_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    held = load_catalog({"ASCEND_HOTFIX_PATH": f"{tmp_path / 'gone'}:{tmp_path / 'empty'}"})
    assert ["gone" in held.problems[0], "holds no patch" in held.problems[1]] == [True, True]


def test_none_reads_no_patch_at_all(tmp_path: Path) -> None:
    write(tmp_path, "broken.py", "PATCH = (")
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path), "ASCEND_HOTFIX_MODELS": "none"})
    assert held.sources == {} and held.problems == []


def test_every_shipped_patch_is_usable() -> None:
    held = load_catalog({})
    assert held.problems == []
    assert {"kimi_k2"} <= set(held.sources) | {t for s in held.sources.values() for t in s.patch.model_types}
