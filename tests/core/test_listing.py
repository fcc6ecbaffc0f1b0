"""``ascend-hotfix list``: the first screen is what fits, ``--all`` has the rest with reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascend_hotfix import cli, listing

V013 = {"vllm": "0.13.0", "vllm-ascend": "0.13.0"}
V018 = {"vllm": "0.18.0", "vllm-ascend": "0.18.0"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions that are taken for installed; change it in place."""
    versions = dict(V013)
    monkeypatch.setattr(listing, "installed_versions", lambda: versions)
    monkeypatch.setenv("COLUMNS", "100")
    return versions


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    assert cli.main(["list", *arguments]) == code
    return capsys.readouterr().out.splitlines()


def names(shown: list[str]) -> list[str]:
    return [line.split()[0] for line in shown if line.startswith("  ")]


def test_the_first_screen_is_what_fits_the_model_here(
    installed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, *shown, last = told(capsys, "qwen3_vl_moe")
    assert first.startswith("qwen3_vl_moe with vllm 0.13.0, vllm-ascend 0.13.0: ")
    assert names(shown)[0] == "qwen3_vl.wrapper-order"
    assert "qwen3_vl.lm-head" not in names(shown) and "deepseek.rows" not in names(shown)
    assert {"kv_cache.c8-absent", "description_files.file-name"} < set(names(shown))
    assert max(map(len, shown)) <= 100 and last.endswith("fixes do not fit; --all says why")

    installed.update(V018)
    assert names(told(capsys, "qwen3_vl_moe"))[0] == "qwen3_vl.lm-head"


def test_all_tells_the_reason_of_every_other_fix_those_for_this_model_first(
    installed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = told(capsys, "qwen3_vl_moe", "--all")
    rest = shown[shown.index("not used here:") + 1 :]
    assert rest[0].split(maxsplit=1) == ["qwen3_vl.lm-head", "vllm-ascend 0.13.0 is not in >=0.18.0rc1,<0.21"]
    assert rest[-1].split(maxsplit=1)[1].startswith("is for ")
    assert len(names(shown)) == len(set(names(shown))) == int(shown[0].split(" of ")[1].split()[0])


def test_a_folder_is_the_model_of_its_config(
    installed: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "longcat_flash", "architectures": ["LongcatFlashNgramForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shown = told(capsys, str(tmp_path), "--all")
    line = next(line for line in shown if line.split()[0] == "longcat_flash.mtp-tensors")
    assert line.endswith("is for the class LongcatFlashForCausalLM")

    config = {"model_type": "wrapper_of_nobody", "text_config": {"model_type": "qwen3_vl_text"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert names(told(capsys, str(tmp_path)))[0] == "qwen3_vl.wrapper-order"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "config.json: cannot be read: No such file or directory"),
        ("{", "config.json: is not JSON"),
        ("[" * 100_000, "config.json: is not JSON"),
        ("[]", "config.json: must hold an object, not list"),
        ("{}", "config.json: has no model_type"),
    ],
)
def test_a_folder_of_which_nothing_can_be_told_is_one_line(
    tmp_path: Path, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert cli.main(["list", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_control_characters_of_a_config_stay_out_of_the_terminal(
    installed: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "a\x1b[31m\n" + "x" * 9000}))
    assert cli.main(["list", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and len(out.splitlines()[0]) < 500 and len(err) < 500


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", str(tmp_path / "gone")]) == 2
    assert "gone: is not a directory; give a folder with config.json" in capsys.readouterr().err


def test_a_patch_or_a_fix_is_told_alone(installed: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert set(names(told(capsys, "deepseek", "--all"))) >= {"deepseek.rows", "deepseek.mtp-in-float"}
    assert {name.partition(".")[0] for name in names(told(capsys, "deepseek", "--all"))} == {"deepseek"}
    assert names(told(capsys, "qwen3_vl.wrapper-order", "--all")) == ["qwen3_vl.wrapper-order"]


def test_without_a_model_it_is_every_fix_for_the_versions(
    installed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = told(capsys)
    assert shown[0].startswith("every model with ") and "glm4.wrapper-order" in names(shown)
    assert "qwen3_vl.lm-head" not in names(shown)


def test_what_the_toggle_takes_out_says_so(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_MODELS", "-qwen3_vl.wrapper-order")
    assert "qwen3_vl.wrapper-order" not in names(told(capsys, "qwen3_vl"))
    line = next(line for line in told(capsys, "qwen3_vl", "--all") if "qwen3_vl.wrapper-order" in line)
    assert line.endswith("  switched off by ASCEND_HOTFIX_MODELS")


def test_where_vllm_is_not_installed_it_says_so(installed: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    installed.clear()
    shown = told(capsys, "qwen3_vl")
    assert shown[0].startswith("qwen3_vl with vllm not installed, vllm-ascend not installed: 0 of ")
    assert "without vllm and vllm-ascend" in shown[1]


@pytest.mark.parametrize("everything", [False, True])
def test_json_holds_what_is_shown(
    installed: dict[str, str], everything: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = names(told(capsys, "qwen3_vl", *["--all"] * everything))
    held = json.loads("\n".join(told(capsys, "qwen3_vl", "--json", *["--all"] * everything)))
    assert (held["schema"], held["version"]) == ("ascend-hotfix-list", 1)
    assert (held["model_types"], held["installed"]) == (["qwen3_vl"], V013)
    assert {one["name"] for one in held["fixes"]} == set(shown)
    assert all(one["fits"] is not bool(one["reason"]) for one in held["fixes"])
    assert {one["fits"] for one in held["fixes"]} == ({True, False} if everything else {True})
    first = held["fixes"][[one["name"] for one in held["fixes"]].index("qwen3_vl.wrapper-order")]
    assert first["versions"] == {"vllm-ascend": ">=0.11,<0.18"} and "qwen3_vl_moe" in first["model_types"]
    assert first["file"].endswith("models/qwen3_vl.py") and first["from"] == "shipped"


def test_the_fields_of_the_json_are_documented(installed: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "list-json.md").read_text(encoding="utf-8")
    held = json.loads("\n".join(told(capsys, "qwen3_vl", "--json")))
    assert [name for name in held if f"`{name}`" not in page] == []
    assert [name for name in held["fixes"][0] if f"`fixes[].{name}`" not in page] == []


def test_a_typing_error_is_told_with_the_nearest_names(
    installed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["list", "qwen3_vl_mo"]) == 0
    out, err = capsys.readouterr()
    assert "no patch is for 'qwen3_vl_mo' alone; did you mean qwen3_vl_moe" in err
    assert "description_files.file-name" in out  # it may be a model that no patch knows
