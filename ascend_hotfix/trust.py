"""May anybody else change a patch of the user's? What it says is run, so it must be root's or ours alone to write.

Asked of the file and of every folder and link on the way to it: who may write a folder may put another file in place of
one. Two things are taken for safe that look otherwise:

- write permission for a group in which nobody else is known (``getent group``, ``getent passwd``): with a group for each
  user and umask 002, as on many systems and in many images, every file has it;
- write permission for all on a folder that is mounted read-only, as Kubernetes mounts a ConfigMap.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import stat
from collections import deque
from collections.abc import Iterator

__all__ = ["objection"]

MOST_LINKS = 40


def objection(path: str | os.PathLike[str]) -> str:
    """Who else may change *path*, and the command that mends it; an empty string where nobody may.

    Raises OSError for a path that leads nowhere.
    """
    for step, state in _steps(os.fspath(path)):
        if reason := _owned_by_another(step, state) or _writable_by_others(step, state):
            return reason
    return ""


def _steps(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder and link that the kernel passes on the way to *path*, and what it comes to, each with its lstat."""
    at, left, links = "/", deque(os.path.join(os.getcwd(), path).split("/")), 0
    yield at, os.lstat(at)
    while left:
        part = left.popleft()
        if part in ("", "."):
            continue
        here = os.path.dirname(at) if part == ".." else os.path.join(at, part)
        state = os.lstat(here)
        yield here, state
        if not stat.S_ISLNK(state.st_mode):
            at = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(f"more than {MOST_LINKS} links on the way")
        target = os.readlink(here)
        left.extendleft(reversed(target.split("/")))
        at = "/" if target.startswith("/") else at


def _owned_by_another(path: str, state: os.stat_result) -> str:
    if state.st_uid in (0, os.geteuid()) or (stat.S_ISDIR(state.st_mode) and _has_no_id_here(state.st_uid)):
        return ""
    me = _user(os.geteuid())
    mend = f"chown -h {me} {shlex.quote(path)}" if os.geteuid() == 0 else "copy the patches to a folder of your own"
    return f"{path} belongs to {_user(state.st_uid)}, who may change it; expected {_either(me)}: {mend}"


def _either(me: str) -> str:
    return "root" if me == "root" else f"root or {me}"


def _writable_by_others(path: str, state: os.stat_result) -> str:
    if stat.S_ISLNK(state.st_mode) or (stat.S_ISDIR(state.st_mode) and _is_kept(path, state)):
        return ""
    who, bits = [], ""
    if state.st_mode & stat.S_IWGRP and _has_access_list(path):
        return f"{path} may be changed by those in its access list (getfacl): setfacl -b {shlex.quote(path)}"
    if state.st_mode & stat.S_IWGRP and (others := _others_in_group(state)):
        who.append(f"group {_group(state.st_gid)} ({', '.join(others[:3])})")
        bits += "g"
    if state.st_mode & stat.S_IWOTH:
        who.append("everybody")
        bits += "o"
    return f"{path} may be changed by {' and '.join(who)}: chmod {bits}-w {shlex.quote(path)}" if who else ""


def _is_kept(path: str, state: os.stat_result) -> bool:
    """Is what lies in a folder kept from others though they may write to it: by the sticky bit, or by the mount?"""
    return bool(state.st_mode & stat.S_ISVTX) or bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _has_access_list(path: str) -> bool:
    """Has *path* an access list? Then the group's bits say what the list may grant at most."""
    with contextlib.suppress(OSError, AttributeError):
        return bool(os.getxattr(path, "system.posix_acl_access"))
    return False


def _others_in_group(state: os.stat_result) -> list[str]:
    """The known members of a file's group besides its owner, root and us."""
    names: set[str] = set()
    with contextlib.suppress(KeyError):  # a group without a name has no members by name
        names.update(grp.getgrgid(state.st_gid).gr_mem)
    ids = {one.pw_name: one.pw_uid for one in pwd.getpwall()}
    names.update(one.pw_name for one in pwd.getpwall() if one.pw_gid == state.st_gid)
    return sorted(name for name in names if ids.get(name) not in (0, os.geteuid(), state.st_uid))


def _has_no_id_here(uid: int) -> bool:
    """Is *uid* what a user namespace shows for those it does not map, root of the host among them (Apptainer)?

    Whoever that is, it is nobody of this container; its folders that others cannot write are left to it.
    """
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            unmapped = int(file.read())
        with open("/proc/self/uid_map", encoding="ascii") as file:
            every = [line.split() for line in file] == [["0", "0", "4294967295"]]
        return uid == unmapped and not every
    return False


def _user(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def _group(gid: int) -> str:
    with contextlib.suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)
