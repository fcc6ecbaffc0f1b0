"""Where the simulation keeps what it builds: one directory per user, every entry written atomically."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["cache_dir", "entry", "locked"]


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/ascend-hotfix``, by default ``~/.cache/ascend-hotfix``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ascend-hotfix"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for ``path`` among all processes of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(name: str, fill: Callable[[Path], None]) -> Path:
    """The cached directory ``name``; when it does not exist yet, ``fill`` writes it in a temporary place and it is
    renamed.
    """
    target = cache_dir() / name
    if target.is_dir():
        return target
    with locked(target):
        if not target.is_dir():
            work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
            try:
                fill(work)
                work.rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target
