"""Import upstream once, run each case in a forked child: the server (:func:`serve`) and its client (:class:`Zygote`).

The server is one process per environment in which the lab is prepared; a case is a function ``"package.module:name"``
with JSON-able keyword arguments. It runs in a child of its own, so nothing that it does to upstream outlives it. The
client needs the standard library only and talks to the server over its pipes, one JSON object per line. A guard
(:mod:`ascend_hotfix.sim.guard`) sees to it that nothing stays when the client ends, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ascend_hotfix.sim import frames, guard
from ascend_hotfix.words import text_of

__all__ = ["CaseCrash", "CaseError", "CaseTimeout", "Zygote", "ZygoteError", "run_forked", "serve"]

START_TIMEOUT = 300.0
CASE_TIMEOUT = 120.0
_OUTPUT_TAIL = 4000
_ERROR_FIELDS = ("type", "message", "frames", "traceback", "output", "place")


class ZygoteError(Exception):
    """The server could not be started, or died. ``cause``: what was raised while it prepared, where it could say so."""

    def __init__(self, text: str, cause: CaseError | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class CaseError(Exception):
    """A case raised. ``type`` and ``message`` are those of its exception, ``frames`` the upstream part of its
    traceback, outermost first, as ``package/file.py:line function``, ``place`` the frame that raised.
    """

    def __init__(
        self, type: str, message: str, frames: Sequence[str], traceback: str, output: str, place: str = ""
    ) -> None:
        super().__init__(f"{type}: {message}" + "".join(f"\n  at {frame}" for frame in list(frames)[-3:]))
        self.type, self.message, self.frames, self.place = type, message, list(frames), place
        self.traceback, self.output = traceback, output


class CaseTimeout(Exception):
    """A case did not finish in time and was killed."""


class CaseCrash(Exception):
    """The child of a case ended without an answer, for example by a signal."""


class Zygote:
    """A server in the environment of ``python``; a context manager, or :meth:`close` it.

    ``path``: directories to put in front of ``sys.path`` there (the root of the test suite). ``arm``: put
    ascend-hotfix's own finder in place before upstream is imported; which patches then apply is decided in each case,
    from its environment. Without ``kernels`` the cases have the meta device only.
    """

    def __init__(
        self,
        python: str | Path,
        *,
        path: Sequence[str | Path] = (),
        arm: bool = False,
        kernels: bool = True,
        env: Mapping[str, str] | None = None,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self.python = str(python)
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        command = [self.python, "-m", "ascend_hotfix.sim.pool", *(["--arm"] if arm else [])]
        command += [] if kernels else ["--no-kernels"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **(env or {}), "PYTHONPATH": _joined(path)},
            start_new_session=True,
        )
        self._buffer = b""
        try:
            hello = self._read(start_timeout)
        except BaseException:  # Ctrl-C: importing is what takes longest
            self.close()
            raise
        if hello.get("kind") == "error":
            cause = CaseError(*({**hello, "output": self._errors()}[name] for name in _ERROR_FIELDS))
            self.close()
            raise ZygoteError(f"{self.python}: {cause}", cause)
        self.pair: str = hello["pair"]
        self.import_seconds: float = hello["seconds"]
        self.scratch: str = hello["scratch"]
        """A folder that is removed when the server ends."""

    def call(
        self,
        function: str,
        *,
        timeout: float = CASE_TIMEOUT,
        env: Mapping[str, str] | None = None,
        memory: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run ``"package.module:name"`` with ``kwargs`` in a fresh child and return its JSON value.

        ``env`` is set in the child alone, which may take ``memory`` bytes more than the server has. Raises
        :class:`CaseError` for an exception of the function, :class:`CaseTimeout`, :class:`CaseCrash` or
        :class:`ZygoteError`.
        """
        request = {"function": function, "kwargs": kwargs, "timeout": timeout, "env": dict(env or {}), "memory": memory}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        answer = self._read(timeout + 30)
        kind = answer["kind"]
        if kind == "value":
            return answer["value"]
        if kind == "error":
            raise CaseError(*(answer[name] for name in _ERROR_FIELDS))
        if kind == "timeout":
            raise CaseTimeout(f"{function} was killed after {timeout:g} s; its last output:\n{answer['output']}")
        raise CaseCrash(f"{function}: the child ended with {answer['status']}; its last output:\n{answer['output']}")

    def _read(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise ZygoteError(f"{self.python}: no answer in {timeout:g} s\n{self._errors()}")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise self._died()
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> ZygoteError:
        self.close()
        return ZygoteError(f"{self.python}: ended with {self._process.returncode}\n{self._errors()}")

    def _errors(self) -> str:
        return _tail(self._stderr)

    def close(self) -> None:
        """End the server and every child of it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(guard.PATIENCE + 5)  # the guard sees the end of the requests, and ends all
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _joined(path: Sequence[str | Path]) -> str:
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, path), *([inherited] if inherited else [])])


def _tail(handle: IO[bytes]) -> str:
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(0, size - _OUTPUT_TAIL))
    return handle.read().decode(errors="replace")


def serve(*, arm: bool, kernels: bool = True) -> None:
    """Prepare the lab, then answer requests on standard input until it ends."""
    guard.adopt()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what upstream prints must not mix with the answers
    started = time.monotonic()
    try:
        _prepare(arm, kernels)
    except BaseException as error:
        _answer(answers, {**_told(error), "pair": ""})
        raise
    from ascend_hotfix.sim import lab

    seconds = round(time.monotonic() - started, 1)
    _answer(answers, {"pair": str(lab.installed_pair()), "seconds": seconds, "scratch": tempfile.gettempdir()})
    for line in requests:
        _answer(answers, run_forked(json.loads(line)))


def _prepare(arm: bool, kernels: bool) -> None:
    if arm:
        from ascend_hotfix import gate

        gate.arm()
    from ascend_hotfix.sim import lab

    lab.prepare(kernels=kernels)
    lab.apply_upstream_patches()
    with contextlib.suppress(Exception):  # parts of it need a device; its imports, which patch upstream, come first
        importlib.import_module("vllm_ascend.worker.model_runner_v1")
    importlib.import_module("torch").set_num_threads(1)  # a thread pool does not survive the fork
    gc.collect()
    gc.freeze()  # no case frees what was imported, and looking at it again and again takes seconds


def _answer(stream: IO[bytes], answer: Mapping[str, Any]) -> None:
    stream.write(json.dumps(answer).encode() + b"\n")
    stream.flush()


def run_forked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the case of *request* (``function``, ``kwargs``, ``timeout``, ``env``) in a fork of this process; the answer
    has the ``kind`` ``value``, ``error``, ``timeout`` or ``crash``.
    """
    with tempfile.TemporaryFile() as output, guard.scratch() as scratch:
        reader, writer = os.pipe()
        ours = guard.children()
        child = os.fork()
        if child == 0:
            _run_in_child(request, writer, output, scratch)
        os.close(writer)
        result, in_time = _read_all(reader, float(request["timeout"]))
        os.close(reader)
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        guard.end_children(spared=ours)
        tail = _tail(output)
    if not in_time:
        return {"kind": "timeout", "output": tail}
    if not result:
        code = os.waitstatus_to_exitcode(status)
        return {"kind": "crash", "status": f"signal {-code}" if code < 0 else f"exit code {code}", "output": tail}
    answer: dict[str, Any] = json.loads(result)
    return {**answer, "output": tail}


def _read_all(descriptor: int, timeout: float) -> tuple[bytes, bool]:
    """Everything until the other end is closed, and whether that was in time."""
    deadline, received = time.monotonic() + timeout, b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return received, False
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return received, True
        received += chunk


def _run_in_child(request: Mapping[str, Any], writer: int, output: IO[bytes], scratch: str | None) -> None:
    """Never returns."""
    code = 1
    try:
        guard.end_with_parent()
        os.setsid()
        if scratch is not None:
            tempfile.tempdir = os.environ["TMPDIR"] = scratch
        if request.get("memory"):
            guard.bound_memory(request["memory"])
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.environ.update(request["env"])
        answer = json.dumps(_outcome(request["function"], request["kwargs"]))
        with os.fdopen(writer, "wb") as stream:
            stream.write(answer.encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _outcome(function: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        module, _, name = function.partition(":")
        value = getattr(importlib.import_module(module), name)(**kwargs)
        json.dumps(value)
        return {"kind": "value", "value": value}
    except BaseException as error:
        return _told(error)


def _told(error: BaseException) -> dict[str, Any]:
    return {
        "kind": "error",
        "type": type(error).__name__,
        "message": text_of(error),
        "frames": frames.places(error.__traceback__),
        "traceback": "".join(traceback.format_exception(error)),
        "place": frames.innermost(error.__traceback__),
    }


if __name__ == "__main__":
    guard.keep(lambda: serve(arm="--arm" in sys.argv[1:], kernels="--no-kernels" not in sys.argv[1:]))
