"""``python -m ascend_hotfix.sim serve MODEL`` as a user types it: it answers, says what it is, and a signal ends all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascend_hotfix.sim import supervise
from ascend_hotfix.sim.server import Server

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "data" / "checkpoints" / "qwen3-w8a8c8"
SOON = 20.0
"""Seconds after a signal in which everything must be gone."""


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def _end(process: subprocess.Popen[bytes], number: int) -> tuple[int, float, list[int]]:
    """Exit code, seconds until everything was gone, and what was left after :data:`SOON` (and is killed)."""
    groups = [process.pid, *_children(process.pid)]
    started = time.monotonic()
    process.send_signal(number)
    code = process.wait(SOON + 10)
    left = [pid for group in groups for pid in supervise.members(group)]
    while left and time.monotonic() - started < SOON:
        time.sleep(0.1)
        left = [pid for group in groups for pid in supervise.members(group)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return code, time.monotonic() - started, left


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def command(*options: str, env: dict[str, str] | None = None) -> Server:
        server = Server(
            [sys.executable, "-m", "ascend_hotfix.sim"],
            MODEL,
            *("--max-model-len", "128", "--served-model-name", "tiny", *options),
            log=tmp_path / "log",
            env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})},
        )
        running.append(server)
        return server

    yield command
    for server in running:
        server.stop()


def test_what_a_user_types_answers_and_ends_with_control_c(command: Callable[..., Server]) -> None:
    server = command()
    server.wait_ready()
    asked = {"model": "tiny", "prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    answer = server.post("/v1/completions", asked)
    assert answer["usage"]["completion_tokens"] == 4
    assert "the NPU is SIMULATED" in server.log.read_text(errors="replace").splitlines()[0]
    code, seconds, left = _end(server.process, signal.SIGINT)
    assert (code, left) == (0, [])
    assert seconds <= SOON


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("", id="at once"),
        pytest.param("the NPU is SIMULATED", id="announced"),
        pytest.param("(APIServer pid=", id="server starting", marks=pytest.mark.longer),
        pytest.param("EngineCore", id="engine starting", marks=pytest.mark.longer),
    ],
)
def test_a_signal_during_start_up_leaves_no_process(moment: str, command: Callable[..., Server]) -> None:
    """``moment``: what the log says when the signal comes. A SIGTERM to vLLM alone ends nothing while its engine starts."""
    server = command()
    deadline = time.monotonic() + 600
    while moment not in server.log.read_text(errors="replace"):
        assert time.monotonic() < deadline and server.process.poll() is None, server.log.read_text(errors="replace")
        time.sleep(0.05)
    code, seconds, left = _end(server.process, signal.SIGTERM)
    assert code != 0
    assert left == []
    assert seconds <= SOON
