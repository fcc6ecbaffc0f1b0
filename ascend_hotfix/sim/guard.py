"""A process that outlives the one it was started for by as long as it takes to end all that was started.

Whoever is killed cannot tidy up, so somebody else has to. :func:`keep` runs a server in a child and waits: until the
server has ended, until the pipe of requests is closed (the client has ended, by whatever signal), or until it is told to
end by a signal. Then it ends every process that descends from the server, those in sessions of their own too, and removes
the folder that their temporary files are in. Linux gives an orphan to the nearest ancestor that asks for them (a
*subreaper*), so none gets away. Standard library only, and forked before anything is imported: it is small.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

__all__ = ["adopt", "bound_memory", "children", "end_children", "end_with_parent", "keep", "scratch"]

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 10.0
"""Seconds in which killed processes go; one that waits for a device that does not answer may stay longer."""
_FOLDER = "ASCEND_HOTFIX_SIM_SCRATCH"


def keep(server: Callable[[], None]) -> None:
    """Runs *server* in a child; returns never. The exit status is the server's."""
    folder = tempfile.mkdtemp(prefix="ascend-hotfix-")
    adopt()
    child = os.fork()
    if child == 0:
        end_with_parent()
        os.setsid()
        os.environ[_FOLDER] = tempfile.tempdir = os.environ["TMPDIR"] = folder
        _serve(server)
    status = -1
    try:
        status = _wait(child)
    finally:
        end_children()
        shutil.rmtree(folder, ignore_errors=True)
        _end_as(status)


def _serve(server: Callable[[], None]) -> None:
    code = 1
    try:
        server()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int:
    """The status of *child* when it has ended, or -1 where the client has, or a signal says to end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # or the client would not see the end of the server's answers
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    received: list[int] = []
    for number in (*SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda number, _: received.append(number))
    signal.set_wakeup_fd(wake)
    events = select.poll()
    events.register(awake, select.POLLIN)
    events.register(0, 0)  # hang-ups are always told
    while True:
        for pid, status in _ended():
            if pid == child:
                return status
        if any(number in SIGNALS for number in received):
            return -1
        for descriptor, _ in events.poll():
            if descriptor == 0:
                return -1
            os.read(awake, 512)


def _ended() -> Iterator[tuple[int, int]]:
    """(process, status) of each child that has ended, which is thereby forgotten."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


def _end_as(status: int) -> None:
    """Ends this process as the one with *status* did."""
    code = os.waitstatus_to_exitcode(status) if status >= 0 else 128 + signal.SIGKILL
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(1)
    os._exit(code % 256)


def children() -> set[int]:
    """The processes whose parent this one is (Linux; elsewhere none can be told)."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def end_children(spared: Collection[int] = ()) -> None:
    """Kills the children of this process but *spared*, and what they leave behind, until there are none."""
    deadline = time.monotonic() + PATIENCE
    while left := children().difference(spared):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            _reap(pid, deadline)
        if time.monotonic() > deadline:
            return


def _reap(pid: int, deadline: float) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(Exception):  # not Linux: then a group's end is all that can be seen to
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt() -> None:
    """Makes this process the parent of what its descendants leave behind."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """The kernel kills this process when its parent ends, however that ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def scratch() -> Iterator[str | None]:
    """A folder for the temporary files of one case, inside of the guard's; None where no guard is."""
    outer = os.environ.get(_FOLDER)
    if not outer or not os.path.isdir(outer):
        yield None
        return
    folder = tempfile.mkdtemp(dir=outer)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bound_memory(more: int) -> None:
    """Lets this process and each that it starts take no more than *more* bytes beyond what it has."""
    held = 0
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        held = int(next(line for line in lines if line.startswith("VmData:")).split()[1]) << 10
    if held:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = held + more
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
