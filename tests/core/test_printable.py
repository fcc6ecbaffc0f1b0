"""Names and errors as they are said: nothing in them that a terminal or a log would obey."""

from __future__ import annotations

import logging

import pytest

from ascend_hotfix import log
from ascend_hotfix.catalog import load_catalog, version_notes
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.seams import hooking, lookup
from ascend_hotfix.words import printable, said

FORGED = "layers.0\x1b[31m\nWARNING 01-01 forged\r\x9b2K\u202e\udc80"


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Ended(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOTFIX_STRICT", raising=False)
    LEDGER.findings.clear()
    log._said.clear()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records for line in record.getMessage().split("\n")]


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert printable(FORGED) == r"layers.0\x1b[31m\nWARNING 01-01 forged\r\x9b2K\u202e\udc80"
    assert printable("model.层.0") == "model.层.0"
    assert printable("x" * 5000).endswith("... (5000 characters)") and len(printable("x" * 5000)) < 2100


@pytest.mark.parametrize("say", [log.info, log.finding, log.error])
def test_a_name_can_neither_colour_nor_forge_a_line_of_the_log(say, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm.ascend_hotfix"):
        say(f"the tensor {FORGED} is not there")
    first, *rest = logged(caplog)
    assert first.startswith("ascend-hotfix: the tensor") and all(line.startswith("  ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))


def test_the_hint_for_a_lookup_names_a_forged_name_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError(f"{FORGED}.weight")
    description = lookup.Description({f"model.{FORGED}.weight": "W8A8"})
    hooking.add_hint(error, lookup._hint(error, (object(), FORGED), {}, description))
    (line,) = logged(caplog)
    assert line.isprintable() and "nearest names: model.layers.0" in line
    assert all(note.isprintable() for note in getattr(error, "__notes__", [line]))


@pytest.mark.parametrize(
    "error", [Untold("x"), Ended("x"), OSError(2, FORGED), KeyError(FORGED), type(FORGED[:-1], (Exception,), {})()]
)
def test_an_error_is_told_whatever_its_text_does(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert said(error).isprintable()
    log.contained(f"renaming {FORGED}", error)
    assert "internal error while renaming" in logged(caplog)[0] and all(line.isprintable() for line in logged(caplog))


@pytest.mark.parametrize("body", ["raise RuntimeError", "raise SystemExit", "return 1", r"return '\x1b[31m'"])
def test_a_patch_whose_error_cannot_be_told_is_a_problem_like_any_other(tmp_path, body: str) -> None:
    file = tmp_path / "odd.py"
    file.write_text(f"class Odd(Exception):\n    def __str__(self):\n        {body}\n\nraise Odd\n")
    (problem,) = load_catalog({"ASCEND_HOTFIX_PATH": str(file)}).problems
    assert problem.startswith(f"{file}:5: Odd") and problem.isprintable()


def test_a_version_is_told_printably_and_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_hotfix.catalog import installed_versions

    monkeypatch.setenv("VLLM_VERSION", f"{FORGED}{'9' * 5000}")
    notes = version_notes(installed_versions())
    assert len(notes) >= 2 and all(note.isprintable() and len(note) < 500 for note in notes)
