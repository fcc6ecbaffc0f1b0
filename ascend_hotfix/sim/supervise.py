"""Runs a command so that a signal ends it and everything it has started, whatever the command is doing at that moment.

``vllm serve`` shuts its engine and workers down once it is up. While it starts, a SIGTERM ends the process that was
told, and engine and workers may stay; hence the process in between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

__all__ = ["GRACE", "SIGNALS", "members", "run"]

GRACE = 10.0
"""Seconds that the command has to end by itself after a signal; what is left then is killed."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def members(group: int) -> list[int]:
    """Processes of a process group that have not ended (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code of ``command``, run in a process group of its own; 128 + N when the signal N ended it.

    A signal of :data:`SIGNALS` is handed on. A second one, or :data:`GRACE` seconds, kills the group. When the command
    has ended, by a signal or by itself, the rest of its group has as long.
    """
    received: list[float] = []
    process: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, frame: FrameType | None) -> None:
        received.append(time.monotonic())
        if process is not None:
            _send(process.pid, number if len(received) == 1 else signal.SIGKILL, group=len(received) > 1)

    before = {number: signal.signal(number, hand_on) for number in SIGNALS}
    try:
        if not received:
            process = subprocess.Popen(command, env=dict(environment), start_new_session=True)
            if received:  # came between the two lines above
                _send(process.pid, signal.SIGTERM, group=True)
            return _wait(process, received)
        return 128 + signal.SIGTERM
    finally:
        if process is not None:
            _send(process.pid, signal.SIGKILL, group=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _send(process: int, number: int, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, number) if group else os.kill(process, number)


def _wait(process: subprocess.Popen[bytes], received: Sequence[float]) -> int:
    ended: float | None = None
    while True:
        code = process.poll()
        if code is not None:
            ended = ended or time.monotonic()
            if not members(process.pid):
                break
        since = min([*received[:1], *([] if ended is None else [ended])], default=None)
        if since is not None and time.monotonic() - since > GRACE:
            _send(process.pid, signal.SIGKILL, group=True)
            code = process.wait()
            break
        time.sleep(0.1)
    return code if code >= 0 else 128 - code
