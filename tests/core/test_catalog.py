"""The catalog: where patches come from, what the toggle takes, and what is said of those that cannot be used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ascend_hotfix.catalog import Catalog, installed_versions, load_catalog, of_class, read_patch_file
from ascend_hotfix.records import Fix, ModelPatch, PatchError, Prefix, spelled_out

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
        (" none, ", []),
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


def family() -> ModelPatch:
    """A patch whose second fix is for one model type of the family, and its third for one class."""
    rule = Prefix("a", "b")
    return ModelPatch(
        name="family",
        model_types=("big", "small"),
        fixes=(
            Fix(id="both", why="w", refs=("r",), lookup=(rule,)),
            Fix(id="draft", why="w", refs=("r",), model_types=("small",), lookup=(rule,)),
            Fix(id="class", why="w", refs=("r",), architectures=("SmallForCausalLM",), lookup=(rule,)),
        ),
    )


@pytest.mark.parametrize(
    ("toggle", "model", "left"),
    [
        ("", "big", ["both", "class"]),
        ("", "small", ["both", "draft", "class"]),
        ("", "other", []),
        ("small", "big", ["both", "class"]),
        ("-small", "small", []),
        ("-family.both", "small", ["draft", "class"]),
        ("family", "small", ["both", "draft", "class"]),
    ],
)
def test_a_fix_may_be_for_part_of_the_models_of_its_patch(toggle: str, model: str, left: list[str]) -> None:
    held = Catalog(toggle=toggle)
    held.add(family(), "a")
    assert [one.fix.id for one in held.select([model], {})] == left
    assert held.model_types() == {"big", "small"}


def test_a_fix_may_be_for_one_model_class_of_its_patch() -> None:
    fixes = {fix.id: fix for fix in spelled_out(family()).fixes}
    assert [one for one, fix in fixes.items() if of_class(fix, ["BigForCausalLM"])] == ["both", "draft"]
    assert all(of_class(fix, ["SmallForCausalLM"]) and of_class(fix, ()) for fix in fixes.values())


def test_a_patch_is_left_as_it_was_written_and_its_fixes_can_be_used_in_another() -> None:
    held = Catalog()
    written = family()
    held.add(written, "a")
    assert [fix.model_types for fix in written.fixes] == [(), ("small",), ()]
    held.add(ModelPatch(name="other", model_types=("x", "small"), fixes=written.fixes), "b")
    assert [fix.model_types for fix in held.sources["other"].patch.fixes] == [
        ("x", "small"),
        ("small",),
        ("x", "small"),
    ]


def test_a_patch_whose_fixes_all_name_models_need_name_none() -> None:
    held = Catalog()
    held.add(ModelPatch(name="format", model_types=(), fixes=(family().fixes[1],)), "a")
    assert [one.name for one in held.select(["small"], {})] == ["format.draft"] and held.select(["big"], {}) == []


def test_a_patch_is_named_after_its_file(tmp_path: Path) -> None:
    assert read_patch_file(write(tmp_path, "my_model.py", GOOD.format(name="")))[0].name == "my_model"


@pytest.mark.parametrize(
    ("toggle", "said"),
    [
        ("all,none", "'none' alone"),
        ("-all", "'none' alone"),
        ("-", "'none' alone"),
        ("any,-any", "leaves no fix"),
        ("anny", "'anny' names no patch, model_type or fix, so it selects nothing; did you mean any"),
        ("-anny", "'anny' names no patch, model_type or fix, so it takes nothing out; did you mean any"),
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
        (GOOD.format(name="").replace("PATCH", "patch"), "defines no PATCH but 'patch', which is one"),
        (GOOD.format(name="") + "PATCHES = (ModelPatch(('a',), PATCH.fixes),)", "a PATCH that is not in its PATCHES"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("\nraise SystemExit(3)", ":2: SystemExit"),
        ("import sys\nsys.exit('bye')", ":2: SystemExit: bye"),
        ("raise GeneratorExit", ":1: GeneratorExit"),
        ("class Odd(BaseException): pass\nraise Odd", ":2: Odd"),
        ("class Odd(Exception):\n    def __str__(self): 1 / 0\nraise Odd", ":3: Odd"),
        ("raise ValueError('two\\nlines')", ":1: ValueError: two lines"),
        ("def f(): f()\nf()", ":1: RecursionError"),
        ("x = " + "-" * 100_000 + "1", "is not valid Python: nested too deeply"),
        ("\nimport torch.nn", ":2: imports torch.nn; a patch holds data, take the import out"),
        ("def f():\n    from vllm_ascend import x", ":2: imports vllm_ascend; a patch holds data"),
        ("Prefx('a', 'b')", ":1: NameError: name 'Prefx' is not defined; did you mean Prefix?"),
        ("from ascend_hotfix.records import *\nPrefix('a')", "Prefix.__init__() missing 1 required"),
        ("from ascend_hotfix.records import *\nPrefix('a', nev='b')", "did you mean new?"),
        ("x = [\n" + "1,\n" * 600_000 + "]", "is 1.8 MB large; a patch is a page of text"),
    ],
)
def test_a_broken_patch_file_is_one_message_with_file_and_place(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, "broken.py", text)
    with pytest.raises(PatchError) as caught:
        read_patch_file(file)
    assert str(file) in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_mistakes_are_a_list_under_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "broken.py", "from ascend_hotfix.records import *\n\nDrop('**')\nPrefix('a.', 'b')\n1 / 0")
    [told] = load_catalog({"ASCEND_HOTFIX_PATH": str(file)}).problems
    first, *others = told.splitlines()
    assert first == f"{file}:" and [line[:10] for line in others] == ["  line 3: ", "  line 4: ", "  line 5: "]


@pytest.mark.parametrize(
    "content", ["# é\n".encode("latin-1"), "x = 1\n".encode("utf-16"), b"x = 1\0\n", b"# coding: no-such\n"]
)
def test_a_file_that_is_not_in_utf8_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.py").write_bytes(content)
    assert load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)}).problems == [
        f"{tmp_path / 'odd.py'}: is not text in UTF-8; save it as such"
    ]


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbf" + GOOD.format(name="").encode())
    assert "marked" in load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)}).sources


def test_what_a_patch_prints_stays_out_of_the_output_of_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_patch_file(write(tmp_path, "loud.py", "print('hello')" + GOOD.format(name="")))
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("name", ["two\nlines.py", os.fsdecode(b"no text \xff.py")])
def test_a_file_with_an_odd_name_is_told_in_one_line_that_can_be_printed(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, GOOD.format(name=""))
    [told] = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)}).problems
    assert told.isprintable() and "give it a name=" in told
    write(tmp_path, name, "1 / 0")
    [told] = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)}).problems
    assert told.isprintable() and ":1: ZeroDivisionError" in told


@pytest.mark.parametrize("name", ["all", "none", "0"])
def test_a_patch_that_the_toggle_could_not_name_is_told(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"{name}.py", GOOD.format(name=""))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)})
    assert name not in held.sources and f"{name!r} is a word of ASCEND_HOTFIX_MODELS" in held.problems[0]


def test_what_is_no_file_is_told_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a_pipe.py")
    (tmp_path / "b_folder.py").mkdir()
    (tmp_path / "c_gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d_loop.py").symlink_to(tmp_path / "d_loop.py")
    told = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)}).problems
    assert [line.partition(".py: ")[2] for line in told] == [
        "is no regular file",
        "is no regular file",
        "cannot be read: No such file or directory",
        "cannot be read: Too many levels of symbolic links",
    ]


def test_nothing_is_written_beside_a_patch(tmp_path: Path) -> None:
    read_patch_file(write(tmp_path, "mine.py", GOOD.format(name="")))
    assert [one.name for one in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_that_is_named_beside_its_folder_is_read_once(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine.py", GOOD.format(name=""))
    held = load_catalog({"ASCEND_HOTFIX_PATH": f"{tmp_path}:{mine}:{tmp_path}/../{tmp_path.name}"})
    assert "mine" in held.sources and held.problems == []


def test_a_broken_file_leaves_the_others_in_use(tmp_path: Path) -> None:
    write(tmp_path, "a_broken.py", "PATCH = (")
    write(tmp_path, "b_good.py", GOOD.format(name=""))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)})
    assert "b_good" in held.sources
    assert len(held.problems) == 1 and "a_broken.py" in held.problems[0]


def test_a_users_patch_is_used_in_place_of_a_shipped_one_which_is_no_problem(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine.py", GOOD.format(name='name="deepseek",'))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(mine)})
    assert (held.sources["deepseek"].origin, held.sources["deepseek"].kind) == (str(mine), "user")
    assert held.problems == [] and len(held.notes) == 1
    assert held.notes[0].startswith(f"patch 'deepseek' of {mine} is used in place of the one of ")


def test_of_two_patches_of_the_user_with_one_name_the_first_is_used_and_the_other_reported(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        write(tmp_path, name, GOOD.format(name='name="mine",'))
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path)})
    assert held.sources["mine"].origin == str(tmp_path / "a.py")
    assert len(held.problems) == 1 and "b.py: patch name 'mine' is taken by" in held.problems[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("x = 1", "AttributeError"),
        ("PATCH = [1]", "defines no PATCH"),
        ("from ascend_hotfix.records import *\nPATCH = Drop('**')", "matches everything"),
    ],
)
def test_an_entry_point_that_fails_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    package = tmp_path / "theirs-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[ascend_hotfix.patches]\nmodels = theirs_patches:PATCH\n")
    write(tmp_path, "theirs_patches.py", body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs_patches", raising=False)
    held = load_catalog({})
    assert len(held.problems) == 1 and len(held.sources) > 40
    assert held.problems[0].startswith("theirs: entry point models: ") and said in held.problems[0]


@pytest.mark.parametrize("metadata", ["", "Name: vllm\n", "not a header"])
def test_a_distribution_without_a_version_counts_as_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: str
) -> None:
    (tmp_path / "vllm-0.18.0.dist-info").mkdir()
    (tmp_path / "vllm-0.18.0.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert "vllm" not in installed_versions()


def test_a_path_that_is_not_there_and_an_empty_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    named = [str(tmp_path / "gone"), str(tmp_path / "empty"), os.devnull, "~nobody-has-this-name/x", "a,b", "x" * 5000]
    held = load_catalog({"ASCEND_HOTFIX_PATH": os.pathsep.join(named)})
    assert len(held.problems) == len(named)
    for problem, name, reason in zip(
        held.problems, named, ["No such", "holds no patch", "neither", "home dir", "No such", "too long"], strict=True
    ):
        assert problem.startswith(f"ASCEND_HOTFIX_PATH: {name}: ") and reason in problem
        assert problem.endswith("; expected patch files or folders of patch files, joined by ':'")


def test_none_reads_no_patch_at_all(tmp_path: Path) -> None:
    write(tmp_path, "broken.py", "PATCH = (")
    held = load_catalog({"ASCEND_HOTFIX_PATH": str(tmp_path), "ASCEND_HOTFIX_MODELS": "none"})
    assert held.sources == {} and held.problems == []


def test_every_shipped_patch_is_usable() -> None:
    held = load_catalog({})
    assert held.problems == []
    assert "kimi_k2" in held.model_types()
