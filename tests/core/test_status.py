"""``ascend-hotfix status``."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from ascend_hotfix import cli, status
from ascend_hotfix.catalog import Catalog
from ascend_hotfix.records import Fix, ModelPatch, PatchError, Prefix
from ascend_hotfix.status import lines


def catalog(toggle: str = "") -> Catalog:
    held = Catalog(toggle=toggle)
    rules = {"why": "w", "refs": ("r",), "lookup": (Prefix("a", "b"),)}
    old = Fix(id="old", versions={"vllm-ascend": "<0.13"}, **rules)
    held.add(ModelPatch(model_types=("tiny",), fixes=(old, Fix(id="new", **rules)), name="tiny"), "here")
    return held


def test_it_counts_what_fits_the_installed_versions() -> None:
    text = "\n".join(lines(catalog(), {"vllm-ascend": "0.18.0"}, armed=True))
    assert "vllm not installed, vllm-ascend 0.18.0" in text
    assert "1 patch with 2 fixes: 2 wanted, 1 of these" in text and "tiny.new" in text and "tiny.old" not in text
    assert "problem:" not in text


def test_it_says_what_is_wrong() -> None:
    held = catalog("tinny")
    held.problems.append("x.py: broken")
    found = [line for line in lines(held, {}, armed=False) if line.startswith("problem:")]
    assert ["broken" in found[0], "did you mean tiny" in found[1], ".pth" in found[2]] == [True] * 3


def test_each_mistake_has_a_line_of_its_own() -> None:
    held = catalog()
    held.problems.append(str(PatchError("x.py", ["line 2: one", "line 3: two"])))
    text = "\n".join(lines(held, {}, armed=True))
    assert text.endswith("\nproblem: x.py:\n  line 2: one\n  line 3: two")


def test_a_patch_in_place_of_a_shipped_one_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = shutil.copy(Path(__file__).parents[2] / "patches" / "models" / "deepseek.py", tmp_path)
    monkeypatch.setenv("ASCEND_HOTFIX_PATH", mine)
    monkeypatch.setattr(status, "is_armed", lambda: True)
    assert status.command(Namespace()) == 0
    assert f"note: patch 'deepseek' of {mine} is used in place of the one of " in capsys.readouterr().out
    assert cli.main(["list", "deepseek"]) == 0


def test_it_says_that_everything_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOTFIX_MODELS", "none")
    *_, toggle, last = lines(catalog("none"), {}, armed=False)
    assert toggle == "ASCEND_HOTFIX_MODELS=none" and "switched off" in last
