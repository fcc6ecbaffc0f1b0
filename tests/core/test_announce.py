"""What is wrong with the user's patches is told once, early, in the process that starts vLLM."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_hotfix import finder, log, scope, seams, toggles
from ascend_hotfix.ledger import LEDGER

EARLY = "vllm.engine.arg_utils"
BROKEN = "from ascend_hotfix.records import *\nDrop('**')\nDrop('a b')\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (toggles.MODELS, toggles.PATH, toggles.STRICT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(toggles.TOLD, "")
    scope.reset()
    LEDGER.findings.clear()
    LEDGER.entries.clear()
    log._said.clear()
    yield
    scope.reset()


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    monkeypatch.setenv(toggles.PATH, str(file))
    return file


def imported() -> None:
    """What the finder does when vLLM's process has imported its arguments."""
    assert EARLY in finder.WATCHED
    seams.on_import(EARLY, type(os)(EARLY))


def test_a_broken_patch_is_told_when_vllm_starts(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    imported()
    [record] = caplog.records
    assert (record.name, record.levelno) == ("vllm.ascend_hotfix", logging.WARNING)
    first, *mistakes, last = record.getMessage().splitlines()
    assert first == f"ascend-hotfix: {broken}:" and [line[:10] for line in mistakes] == ["  line 2: ", "  line 3: "]
    assert last == "  The server runs without it (ASCEND_HOTFIX_STRICT=1 makes this an error)"


def test_a_mistyped_toggle_is_told_when_vllm_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(toggles.MODELS, "kimi-k2")
    imported()
    assert "did you mean kimi_k2" in caplog.text


def test_it_is_told_once_in_a_process_and_those_that_it_starts(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    imported()
    scope.announce()
    LEDGER.findings.clear()  # as in a worker, which has the environment of this process and a ledger of its own
    scope.announce()
    assert len(caplog.records) == 1
    assert str(broken) in LEDGER.findings[0]


def test_a_process_that_finds_something_else_tells_it(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    imported()
    broken.unlink()  # as on another node
    scope.reset()
    scope.announce()
    assert "No such file" in caplog.records[-1].getMessage()


def test_strict_makes_it_an_error_that_tells_every_problem(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(toggles.STRICT, "1")
    monkeypatch.setenv(toggles.MODELS, "kimi-k2,all")
    with pytest.raises(log.StrictError) as caught:
        imported()
    assert str(broken) in str(caught.value) and "'kimi-k2'" in str(caught.value)
    assert "runs without" not in str(caught.value)


@pytest.mark.parametrize("value", [None, "", " "])
def test_no_patch_is_read_where_the_user_has_none(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv(toggles.PATH, value)
        monkeypatch.setenv(toggles.MODELS, value)
    monkeypatch.setattr(scope, "load_catalog", lambda: pytest.fail("the catalog was read"))
    imported()


def test_a_patch_in_place_of_a_shipped_one_is_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = Path(__file__).parents[2] / "patches" / "models" / "molmo.py"
    (tmp_path / "molmo.py").write_text(shipped.read_text())
    monkeypatch.setenv(toggles.PATH, str(tmp_path))
    with caplog.at_level(logging.INFO, "vllm.ascend_hotfix"):
        scope.announce()
        scope.announce()
    [record] = [one for one in caplog.records if "is used in place of" in one.getMessage()]
    assert record.levelno == logging.INFO and LEDGER.findings == []


def test_a_patch_named_by_a_relative_path_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "molmo.py").write_text((Path(__file__).parents[2] / "patches" / "models" / "molmo.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(toggles.PATH, "./molmo.py")
    assert scope.from_path("molmo") and not scope.from_path("deepseek")


MINE = """from ascend_hotfix.records import *
PATCH = ModelPatch(
    model_types=("{model_type}",),
    architectures={architectures},
    fixes=(Fix(id="one", why="w", refs=("r",), versions={versions}, lookup=(Prefix("a", "b"),)),),
)
"""


@pytest.mark.parametrize(
    ("model_type", "architectures", "versions", "toggle", "reason"),
    [
        ("tinny", (), {}, "", "for tinny"),
        ("tiny", ("Other",), {}, "", "for Other"),
        ("tiny", (), {"vllm": ">=5"}, "", "vllm 0.18.0 is not in >=5"),
        ("tiny", (), {}, "-mine", "not in ASCEND_HOTFIX_MODELS"),
    ],
)
def test_a_patch_of_the_user_that_is_not_for_the_model_is_information(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model_type: str,
    architectures: tuple[str, ...],
    versions: dict[str, str],
    toggle: str,
    reason: str,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE.format(model_type=model_type, architectures=architectures, versions=versions))
    monkeypatch.setenv(toggles.PATH, str(file))
    monkeypatch.setenv(toggles.MODELS, toggle)
    monkeypatch.setattr(scope, "installed_versions", lambda: {"vllm": "0.18.0"})
    with caplog.at_level(logging.INFO, "vllm.ascend_hotfix"):
        scope.of_types(("tiny",), ("Tiny",))
        scope.of_types(("tiny", "inner"), ("Tiny",))
    told = [one.getMessage() for one in caplog.records if "not used of" in one.getMessage()]
    assert told == [f"ascend-hotfix: model tiny: not used of ASCEND_HOTFIX_PATH: mine ({reason})"]


def test_a_patch_that_is_for_the_model_around_is_not_told_of_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE.format(model_type="tiny", architectures=(), versions={}))
    monkeypatch.setenv(toggles.PATH, str(file))
    with caplog.at_level(logging.INFO, "vllm.ascend_hotfix"):
        scope.of_types(("tiny", "inner"))
        scope.of_types(("inner",))
    assert "patches armed" in caplog.text and "not used of" not in caplog.text
