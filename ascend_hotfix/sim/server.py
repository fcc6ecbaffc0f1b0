"""Starts the real ``vllm serve`` on the simulated NPU, talks to it over HTTP on the loopback interface, and stops it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ascend_hotfix.sim import boot, supervise

__all__ = ["PAIR", "Server", "ServerDied", "ServerError", "environment", "free_port", "why_it_failed"]

PAIR = "0.30.0rc2"
"""The pair that serves: here vLLM's compiled CPU attention loads beside vllm-ascend."""

HOST = "127.0.0.1"
READY_TIMEOUT = 900.0  # a start takes half a minute; on a machine that is busy otherwise, much longer
STOP_TIMEOUT = 60.0
REQUEST_TIMEOUT = 120.0

_ENVIRONMENT = {
    boot.SWITCH: "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class ServerError(Exception):
    """The server was not ready in time."""


class ServerDied(ServerError):
    """The server ended before it was ready; the message says why in the log's own words."""


def environment() -> dict[str, str]:
    """Variables of a simulated server: the switch itself, and no request to the outside."""
    return dict(_ENVIRONMENT)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One ``vllm serve``; a context manager that stops it. ``command`` is the ``vllm`` program, as a list.

    ``log``: a file for everything the server prints. ``env``: variables on top of :func:`environment`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        model: str | Path,
        *arguments: str,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.port = free_port()
        self.left: list[int] = []
        self.command = [
            *map(str, command),
            "serve",
            str(model),
            *("--host", HOST, "--port", str(self.port)),
            *arguments,
        ]
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            self.command,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment(), **(env or {})},
            start_new_session=True,
        )

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> float:
        """Seconds until the server said it is healthy; :class:`ServerDied` when it ended, :class:`ServerError` when it took longer."""
        started = time.monotonic()
        while time.monotonic() - started < timeout:
            if self.process.poll() is not None:
                raise ServerDied(f"vllm serve ended with {self.process.returncode}: {why_it_failed(self.log)}")
            with contextlib.suppress(OSError), urllib.request.urlopen(self._url("/health"), timeout=5):
                return time.monotonic() - started
            time.sleep(0.2)
        raise ServerError(f"vllm serve was not ready in {timeout:g} s; its log: {self.log}")

    def wait_end(self, timeout: float = READY_TIMEOUT) -> int:
        """The exit code of a server that ends by itself."""
        return self.process.wait(timeout)

    def _url(self, path: str) -> str:
        return f"http://{HOST}:{self.port}{path}"

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON answer to ``body``; an HTTP error becomes a :class:`RuntimeError` with the server's words."""
        request = urllib.request.Request(
            self._url(path), json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: HTTP {error.code}: {error.read().decode(errors='replace')[:500]}") from None

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        """End the server by a signal, as a user would; its exit code. :attr:`left` then holds the processes of it that
        were still there a minute later, and were killed.
        """
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            code = self.process.wait(STOP_TIMEOUT)
            self.left = self._wait_alone()
        finally:
            self.kill()
        return code

    def _wait_alone(self) -> list[int]:
        """Wait until the engine and the workers are gone too; those that stay."""
        deadline = time.monotonic() + STOP_TIMEOUT
        while (left := supervise.members(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left

    def kill(self) -> None:
        """End the server and every process it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def why_it_failed(log: Path) -> str:
    """The first error of an engine or worker in a log, which is the cause of the others; else the last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    causes = [line for line in lines if _names_an_error(line)]
    chosen = causes[0] if causes else next((line for line in reversed(lines) if line.strip()), "no output")
    return chosen.rpartition("] ")[2].strip() if causes else chosen


def _names_an_error(line: str) -> bool:
    """``(Worker pid=1) ERROR 01-01 00:00:00 [file.py:1] KeyError: 'name'``: the last line of a logged traceback."""
    _, logged, text = line.partition("] ")
    name = text.partition(":")[0]
    return bool(logged) and "ERROR" in line and name.isidentifier() and name.endswith(("Error", "Exception"))
