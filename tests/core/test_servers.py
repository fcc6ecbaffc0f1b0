"""``ascend-hotfix status --ledger DIR``: what is patched in each process of a server, and whether all are alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix import cli, ledgerfiles
from ascend_hotfix.ledger import Ledger


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELS", "PATH", "STRICT", "LEDGER"):
        monkeypatch.delenv(f"ASCEND_HOTFIX_{name}", raising=False)


def ledger(
    hits: dict[str, int], *, off: bool = False, findings: tuple[str, ...] = (), **process: Any
) -> dict[str, Any]:
    """What a process writes that has used the fixes *hits* so often."""
    made = Ledger()
    for name, times in hits.items():
        made.entry("patch", name, "lookup")
        if times:
            made.hit("patch", name, "lookup", times=times)
    made.settle()
    made.mark("patch", "old", "lookup", "out of range", "for another release")
    for finding in findings:
        made.find(finding)
    held = made.to_json()
    held["process"] = {**ledgerfiles.process(), "server": "s", "host": "host", **process}
    held["toggles"] = {"ASCEND_HOTFIX_MODELS": "none"} if off else {}
    return json.loads(json.dumps({**held, "entries": [] if off else held["entries"]}))


def status(folder: Path, *ledgers: dict[str, Any]) -> int:
    for number, held in enumerate(ledgers):
        (folder / f"{number}.json").write_text(json.dumps(held))
    return cli.main(["status", "--ledger", str(folder)])


def worker(rank: int, hits: dict[str, int] | None = None, size: int = 2, **more: Any) -> dict[str, Any]:
    used = {"a": 3, "b": 0} if hits is None else hits
    return ledger(used, name=f"VllmWorker-{rank}", rank=rank, world_size=size, **more)


def test_processes_that_are_patched_alike_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(tmp_path, worker(0), worker(1)) == 0
    said = capsys.readouterr().out
    assert (
        "server s: 2 processes\n" in said
        and "(VllmWorker-1, rank 1 of 2), running: 2 fixes armed, 1 of these used" in said
    )
    assert said.count("    patch.a: 3 hits") == 2 and "old" not in said and "problem" not in said


@pytest.mark.parametrize(
    ("ledgers", "words"),
    [
        ((worker(0), worker(1, off=True)), "not patched: host pid"),
        ((worker(0), worker(1, {})), "not patched: host pid"),
        ((ledger({}, off=True, name="MainProcess"), ledger({"a": 2})), "not patched: host pid"),
        ((worker(0), worker(1, {"a": 3})), "has not patch.b, which others have"),
        ((worker(0), worker(1, {"a": 0, "b": 0})), "none in host pid"),
        ((worker(0),), "of 2 ranks, 1 wrote no ledger here"),
        (
            (worker(0), {**worker(1), "tool_version": "0.0.1"}),
            "not every process has the same release of ascend-hotfix",
        ),
        ((worker(0), {**worker(1), "catalog": "another"}), "not every process has the same set of patches"),
        (
            (worker(0), {**worker(1), "toggles": {"ASCEND_HOTFIX_MODELS": "patch"}}),
            "not every process has the same ASCEND_HOTFIX_MODELS. none: host pid",
        ),
    ],
)
def test_processes_of_one_server_that_are_not_end_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ledgers: tuple[dict[str, Any], ...], words: str
) -> None:
    assert status(tmp_path, *ledgers) == 1
    said = capsys.readouterr().out
    assert words in said and "problem: server s: " in said


@pytest.mark.parametrize(
    "ledgers",
    [
        (worker(0, off=True), worker(1, off=True)),
        (worker(0, {"a": 3}, pipeline_rank=0), worker(1, {"a": 0, "b": 4}, pipeline_rank=1)),
        (worker(0, server="one"), worker(1, server="two")),  # started on two nodes, in one folder
        (worker(0, off=True, size=1, server="one"), worker(0, size=1, server="two")),
        (worker(0, {"a": 0}), worker(1, {"a": 0})),
    ],
    ids=["off alike", "stages of a pipeline", "two nodes", "two servers", "nothing to fix"],
)
def test_what_is_no_difference(tmp_path: Path, ledgers: tuple[dict[str, Any], ...]) -> None:
    assert status(tmp_path, *ledgers) == 0


def test_what_is_no_ledger_is_told_and_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad\x1b[31m.json").write_text("{}")
    (tmp_path / "later.json").write_text(json.dumps({**worker(0), "version": 2}))
    (tmp_path / "odd.json").write_text(json.dumps({**worker(0), "entries": [1]}))
    (tmp_path / "other.txt").write_text("not ours")
    finding = "a name\nwith \x1b[31m escapes"
    assert status(tmp_path, worker(0, size=1, findings=(finding,), host="h\x07")) == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said and "finding: a name with \\x1b[31m escapes\n" in said
    assert "problem: bad\\x1b[31m.json is no ledger of ascend-hotfix\n" in said
    assert "problem: later.json is a ledger of version 2; this ascend-hotfix reads version 1\n" in said
    assert "problem: odd.json is a ledger with fields that are missing or of another type" in said


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_folder_without_ledgers_ends_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert cli.main(["status", "--ledger", str(tmp_path / kind)]) == 2
    caught = capsys.readouterr()
    assert caught.out == "" and len(caught.err.splitlines()) == 1 and f"--ledger {tmp_path / kind}: " in caught.err


def test_a_ledger_of_before_is_a_server_of_its_own(tmp_path: Path) -> None:
    old = [worker(0), worker(0, {})]
    for held in old:
        for key in ("process", "toggles", "catalog"):
            del held[key]
    assert status(tmp_path, *old) == 0
