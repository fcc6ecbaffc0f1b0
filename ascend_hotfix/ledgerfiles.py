"""The files of the ledger, in a folder that other processes, containers and users may write to as well.

Each process has one file, with a name that nobody can foresee and no other host or container has, and puts a new one in
its place in one step. Nothing here follows a link inside the folder, or waits for the other end of a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator

from ascend_hotfix import toggles

__all__ = ["LedgerFileError", "is_running", "process", "read_all", "server", "write"]

SUFFIX = ".json"
MOST_BYTES = 64 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_name: tuple[int, str] = (0, "")
_server = ""


class LedgerFileError(Exception):
    """A file in the folder cannot be read as a ledger; the text says why."""


def write(folder: str, text: str) -> None:
    """Puts *text* into this process's file in *folder*, which is made where it is missing. Raises OSError.

    A reader finds the old text or the new one, whole.
    """
    os.makedirs(folder, exist_ok=True)
    name = _own_name()
    part = f".{name}.{secrets.token_hex(8)}"
    with _opened(folder) as where:
        try:
            with open(os.open(part, _NEW, 0o644, dir_fd=where), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, name, src_dir_fd=where, dst_dir_fd=where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=where)
            raise


def _own_name() -> str:
    """``HOST-PID-RANDOM.json``, the same for each writing of a process; a forked child has its own."""
    global _name
    if _name[0] != os.getpid():
        host = re.sub(r"[^\w.-]", "_", os.uname().nodename, flags=re.ASCII)[:100]
        _name = os.getpid(), f"{host}-{os.getpid()}-{secrets.token_hex(8)}{SUFFIX}"
    return _name[1]


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield where
    finally:
        os.close(where)


def read_all(folder: str) -> Iterator[tuple[str, object]]:
    """Each ``*.json`` in *folder*, sorted: its name, and what it holds or a LedgerFileError. Raises OSError for the folder."""
    with _opened(folder) as where:
        for name in sorted(os.listdir(where)):
            if name.endswith(SUFFIX) and not name.startswith("."):
                try:
                    yield name, _read(name, where)
                except LedgerFileError as error:
                    yield name, error


def _read(name: str, where: int) -> object:
    try:
        held = os.open(name, _OLD, dir_fd=where)
    except OSError as error:
        is_link = error.errno in (errno.ELOOP, errno.EMLINK)
        reason = "is a link, which is not followed" if is_link else f"cannot be read: {error.strerror}"
        raise LedgerFileError(reason) from None
    try:
        state = os.fstat(held)
        if not stat.S_ISREG(state.st_mode):
            raise LedgerFileError("is no regular file")
        if state.st_size > MOST_BYTES:
            raise LedgerFileError(f"is {state.st_size / 1e6:.0f} MB large, which no ledger is")
        with open(held, "rb", closefd=False) as file:
            return json.loads(file.read(MOST_BYTES))
    except (ValueError, RecursionError):  # also of text in no encoding
        raise LedgerFileError("is not JSON") from None
    except OSError as error:
        raise LedgerFileError(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(held)


def server() -> str:
    """The server that this process belongs to: a random name that the processes it starts inherit.

    A program that another one has started is a server of its own; what multiprocessing or Ray starts is not.
    """
    global _server
    if not _server:
        given = os.environ.get(toggles.SERVER, "")
        _server = given if given and _is_started_by_a_server() else secrets.token_hex(4)
        os.environ[toggles.SERVER] = _server
    return _server


def _is_started_by_a_server() -> bool:
    by_ray = os.path.basename(sys.argv[0] if getattr(sys, "argv", None) else "") == "default_worker.py"
    return by_ray or multiprocessing.parent_process() is not None


def process() -> dict[str, object]:
    """What tells this process from others, as the ledger holds it."""
    return {
        "server": server(),
        "host": os.uname().nodename,
        "name": multiprocessing.current_process().name,
        "parent": os.getppid(),
        **_birth(os.getpid()),
    }


def is_running(pid: int, born: dict[str, object]) -> bool | None:
    """Is the process *pid* that said *born* of itself still there? None where this machine or container cannot tell."""
    here = _birth(os.getpid())
    if not born.get("boot") or any(born.get(key) != here[key] for key in ("boot", "pid_namespace")):
        return None
    return not _is_zombie(pid) and _birth(pid)["started"] == born.get("started")


def _is_zombie(pid: int) -> bool:
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["Z"]


def _birth(pid: int) -> dict[str, object]:
    """The boot of the machine, the pid namespace, and the clock ticks since boot at which *pid* has started.

    Empty, or 0, where the system does not tell (Linux does, in /proc).
    """
    return {
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _link("/proc/self/ns/pid"),
        "started": int((_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["0"] * 20)[19]),
    }


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""
