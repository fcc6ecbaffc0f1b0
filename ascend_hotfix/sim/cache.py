"""Where the simulation keeps what it builds: one directory per user, each entry complete or rebuilt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["cache_dir", "entry"]

_COMPLETE = ".complete"


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/ascend-hotfix``, by default ``~/.cache/ascend-hotfix``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ascend-hotfix"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for ``path`` among all processes of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(name: str, fill: Callable[[Path], None]) -> Path:
    """The cached directory ``name``, written by ``fill`` when it is not there.

    It is written in place, because a virtual environment cannot be moved, and marked when complete; one without the
    mark is what an interrupted run left, and is written anew. Whatever ``fill`` raises is passed on and nothing is
    kept.
    """
    target = cache_dir() / name
    if (target / _COMPLETE).is_file():
        return target
    with _locked(target):
        if not (target / _COMPLETE).is_file():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            try:
                fill(target)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
            (target / _COMPLETE).touch()
    return target
