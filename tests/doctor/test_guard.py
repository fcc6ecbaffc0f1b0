"""Nothing stays of what the doctor has started, however the doctor, its server or the guard between them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs import interpreter
from writer import tiny

from ascend_hotfix.sim import guard

SERVER = """
import os, subprocess, sys, tempfile, time
from ascend_hotfix.sim import guard

def serve():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    child = os.fork()
    if not child:  # leaves an orphan behind
        subprocess.Popen(sleep, start_new_session=True)
        os._exit(0)
    os.waitpid(child, 0)
    with guard.scratch() as folder:
        tempfile.mkdtemp(dir=folder)
        print(os.getpid(), os.getppid(), folder, flush=True)
        time.sleep(600)

guard.keep(serve)
"""
CLIENT = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and nohup SIGHUP
signal.signal(signal.SIGHUP, signal.SIG_DFL)
server = subprocess.Popen([sys.executable, "-c", {SERVER!r}, sys.argv[1]], stdin=-1, stdout=-1, start_new_session=True)
print(server.stdout.readline().decode().strip(), flush=True)
time.sleep(600)
"""
MOST_SECONDS = 30.0  # on a machine that is busy


def marked(marker: str) -> dict[int, str]:
    """Living processes with *marker* on their command line or in their environment -> their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if marker.encode() in line and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:
            continue
    return found


def settled(marker: str) -> dict[int, str]:
    """What is left of :func:`marked` when nothing more ends."""
    deadline = time.monotonic() + MOST_SECONDS
    while (left := marked(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@pytest.fixture
def marker() -> Iterator[str]:
    name = f"marked-{uuid.uuid4().hex}"
    yield name
    for pid in marked(name):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("who", "number"),
    [
        *(("client", one) for one in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")),
        *(("server", one) for one in ("SIGKILL", "SIGTERM", "SIGSEGV")),
        *(("guard", one) for one in ("SIGTERM", "SIGHUP")),
    ],
)
def test_no_process_and_no_folder_is_left(marker: str, who: str, number: str) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, marker], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout is not None
    server, between, folder = client.stdout.readline().split()
    assert len(marked(marker)) == 6 and Path(folder.decode()).is_dir()
    os.kill({"client": client.pid, "server": int(server), "guard": int(between)}[who], signal.Signals[number])
    if who != "client":
        deadline = time.monotonic() + MOST_SECONDS
        while len(marked(marker)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        client.kill()
    client.wait(timeout=MOST_SECONDS)
    assert settled(marker) == {}
    assert not Path(folder.decode()).parent.exists()


def test_a_guard_that_is_killed_takes_the_server_along(marker: str) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, marker], stdout=subprocess.PIPE)
    assert client.stdout is not None
    server, between, folder = client.stdout.readline().split()
    os.kill(int(between), signal.SIGKILL)
    deadline = time.monotonic() + MOST_SECONDS
    while int(server) in marked(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert int(server) not in marked(marker)
    client.kill()
    client.wait()
    guard.shutil.rmtree(Path(folder.decode()).parent)


def test_the_guard_ends_as_the_server_does(marker: str) -> None:
    for body, code in (
        ("raise SystemExit(3)", 3),
        ("pass", 0),
        ("1 / 0", 1),
        ("import os; os.abort()", -signal.SIGABRT),
    ):
        text = f"from ascend_hotfix.sim import guard\ndef serve():\n    {body}\nguard.keep(serve)"
        ended = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert ended.wait() == code, body


def test_a_case_may_not_take_more_memory_than_it_is_given() -> None:
    text = (
        "from ascend_hotfix.sim import guard\nguard.bound_memory(64 << 20)\nbytearray(16 << 20)\n"
        "try:\n    bytearray(256 << 20)\nexcept MemoryError:\n    print('refused')"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "refused\n"


# --- the doctor itself ------------------------------------------------------------------------------------------------


def doctor(marker: str, pair: str, model: Path, folder: Path, *before: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "MARKED": marker,
        "TMPDIR": str(folder),
        "PYTHONPATH": str(Path(guard.__file__).parents[2]),
    }
    command = [*before, str(interpreter(pair)), "-m", "ascend_hotfix.cli", "doctor", str(model)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def started(marker: str, many: int) -> None:
    """Waits until the doctor, the guard and the server are there, or a case too."""
    deadline = time.monotonic() + 240
    while len(marked(marker)) < many and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(marked(marker)) >= many


@pytest.mark.parametrize("pair", ["0.18"])
@pytest.mark.parametrize(
    ("number", "many"),
    [
        ("SIGKILL", 3),
        *(pytest.param(one, 3, marks=pytest.mark.longer) for one in ("SIGTERM", "SIGINT", "SIGHUP")),
        *(pytest.param(one, 4, marks=pytest.mark.longer) for one in ("SIGKILL", "SIGTERM", "SIGINT")),
    ],
)
def test_a_doctor_that_is_killed_leaves_nothing(tmp_path: Path, marker: str, pair: str, number: str, many: int) -> None:
    """*many* processes: while the server imports upstream there are three, while it checks four."""
    (tmp_path / "tmp").mkdir()
    process = doctor(marker, pair, auto_mapped(tmp_path / "model"), tmp_path / "tmp")
    started(marker, many)
    process.send_signal(signal.Signals[number])
    process.wait()
    assert settled(marker) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.longer
@pytest.mark.parametrize("pair", ["0.18"])
def test_timeout_ends_the_doctor_and_all_of_it(tmp_path: Path, marker: str, pair: str) -> None:
    (tmp_path / "tmp").mkdir()
    process = doctor(marker, pair, auto_mapped(tmp_path / "model"), tmp_path / "tmp", "timeout", "10")
    assert process.wait() == 124
    assert settled(marker) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("pair", ["0.18"])
def test_a_dry_run_leaves_no_folder(tmp_path: Path, marker: str, pair: str) -> None:
    """A config with auto_map is staged: a folder of links around a corrected config.json."""
    (tmp_path / "tmp").mkdir()
    assert doctor(marker, pair, auto_mapped(tmp_path / "model"), tmp_path / "tmp").wait() in (0, 1)
    assert settled(marker) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


def auto_mapped(folder: Path) -> Path:
    spec = tiny()
    spec.config["auto_map"] = {"AutoConfig": "configuration_tiny.TinyConfig"}
    return spec.write(folder)
