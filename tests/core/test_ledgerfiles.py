"""Ledgers in a folder that others write to: whole, each process's its own, no link followed, no pipe waited for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ascend_hotfix import ledgerfiles, toggles


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgerfiles, "_name", (0, ""))
    monkeypatch.setattr(ledgerfiles, "_server", "")
    monkeypatch.delenv(toggles.SERVER, raising=False)


def test_a_process_has_one_file_that_it_replaces_whole(tmp_path: Path) -> None:
    ledgerfiles.write(str(tmp_path / "a" / "b"), "[1]")
    ledgerfiles.write(str(tmp_path / "a" / "b"), "[2]")
    assert list(ledgerfiles.read_all(str(tmp_path / "a" / "b"))) == [(next((tmp_path / "a/b").iterdir()).name, [2])]


def test_two_containers_with_the_same_process_ids_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("one", "two", "two"):
        nodename = type("Uname", (), {"nodename": f"{host}/../.."})
        monkeypatch.setattr(os, "uname", lambda nodename=nodename: nodename)
        monkeypatch.setattr(ledgerfiles, "_name", (0, ""))
        ledgerfiles.write(str(tmp_path), "{}")
    names = [file.name for file in tmp_path.iterdir()]
    assert len(set(names)) == 3 and all(re.fullmatch(r"(one|two)_.._..-\d+-[0-9a-f]{16}\.json", name) for name in names)


def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    ledgerfiles.write(str(tmp_path), "{}")
    child = os.fork()
    if not child:
        ledgerfiles.write(str(tmp_path), "{}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(int(file.name.split("-")[-2]) for file in tmp_path.iterdir()) == sorted([os.getpid(), child])


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    ledgerfiles.write(str(folder), "{}")
    [file] = folder.iterdir()
    (tmp_path / "precious").write_text("precious")
    file.unlink()
    file.symlink_to(tmp_path / "precious")
    ledgerfiles.write(str(folder), "[]")
    assert (tmp_path / "precious").read_text() == "precious" and not file.is_symlink() and file.read_text() == "[]"


def test_a_pipe_in_place_of_the_file_or_of_the_folder_hangs_nobody(tmp_path: Path) -> None:
    ledgerfiles.write(str(tmp_path / "ledgers"), "{}")
    [file] = (tmp_path / "ledgers").iterdir()
    file.unlink()
    os.mkfifo(file)
    os.mkfifo(tmp_path / "pipe")
    ended: list[object] = []

    def run() -> None:
        for folder in ("ledgers", "pipe"):
            try:
                ledgerfiles.write(str(tmp_path / folder), "[]")
            except OSError as error:
                ended.append(error)
        ended.append(file.read_text())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert [type(one).__name__ for one in ended] == ["FileExistsError", "str"] and ended[-1] == "[]"


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    ledgerfiles.write(str(tmp_path), "{}")
    [file] = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(OSError):
        ledgerfiles.write(str(tmp_path), "[]")
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_tells_of_what_it_does_not_open(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("{}")
    (tmp_path / "a.json").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "b.json")
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.json").write_text("[" * 100_000)
    (tmp_path / "e.json").write_bytes(b"\xff\xfe{")
    (tmp_path / "f.json").write_text("1" * 5000)
    (tmp_path / "g.json").write_text("{}")
    (tmp_path / ".h.json.part").write_text("{")
    said = {name: str(held) for name, held in ledgerfiles.read_all(str(tmp_path))}
    assert said == {
        "a.json": "is a link, which is not followed",
        "b.json": "is no regular file",
        "c.json": "is no regular file",
        "d.json": "is not JSON",
        "e.json": "is not JSON",
        "f.json": "is not JSON",
        "g.json": "{}",
    }


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    ledgerfiles.write(str(tmp_path), "[]")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ledgerfiles.write(str(tmp_path), json.dumps(["x" * 200_000]))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        seen = [list(ledgerfiles.read_all(str(tmp_path))) for _ in range(50)]
    finally:
        stop.set()
        thread.join()
    assert all(len(one) == 1 and isinstance(one[0][1], list) for one in seen)


SAY = "from ascend_hotfix import ledgerfiles; print(ledgerfiles.server(), flush=True)"
PARENT = f"""
import multiprocessing, os, subprocess, sys
from ascend_hotfix import ledgerfiles
def child():
    print(ledgerfiles.server(), flush=True)
if __name__ == "__main__":
    child()
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
    if not os.fork():
        child()
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, "-c", {SAY!r}], check=True)
"""


def test_a_server_is_what_one_program_starts_and_another_program_is_another_server(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    done = subprocess.run([sys.executable, tmp_path / "parent.py"], capture_output=True, text=True, timeout=120)
    mine, *others, another = done.stdout.split()
    assert others == [mine] * 3 and another != mine, done.stderr


def test_is_running() -> None:
    me = ledgerfiles.process()
    assert ledgerfiles.is_running(os.getpid(), me) is True
    assert ledgerfiles.is_running(os.getpid(), {**me, "started": 1}) is False  # another one has the id now
    assert ledgerfiles.is_running(os.getpid(), {**me, "boot": "another"}) is None
    assert ledgerfiles.is_running(os.getpid(), {**me, "pid_namespace": "pid:[1]"}) is None
    assert ledgerfiles.is_running(os.getpid(), {}) is None
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    born = {**me, "started": ledgerfiles._birth(child)["started"]}
    assert ledgerfiles.is_running(child, born) is False  # a zombie
    os.waitpid(child, 0)
    assert ledgerfiles.is_running(child, born) is False
