"""Says where an exception came from: the frames of a traceback by package, wherever the packages are installed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType

__all__ = ["UPSTREAM", "innermost", "places", "within"]

UPSTREAM = ("vllm", "vllm_ascend", "transformers")


def within(filename: str, packages: Sequence[str] = UPSTREAM) -> str:
    """``package/file.py`` where ``filename`` is of one of the ``packages``, installed or in a source folder; else empty."""
    for package in packages:
        for root in getattr(sys.modules.get(package), "__path__", ()):
            if filename.startswith(root + os.sep):
                return package + filename[len(root) :].replace(os.sep, "/")
    _, found, inside = filename.replace(os.sep, "/").rpartition("site-packages/")
    return inside if found and inside.partition("/")[0] in packages else ""


def places(trace: TracebackType | None, packages: Sequence[str] = UPSTREAM) -> list[str]:
    """The frames of ``packages``, outermost first, as ``package/file.py:line function``."""
    told = ((within(frame.filename, packages), frame) for frame in traceback.extract_tb(trace))
    return [f"{inside}:{frame.lineno} {frame.name}" for inside, frame in told if inside]


def innermost(trace: TracebackType | None) -> str:
    """The frame that raised, as ``package/file.py:line function``; of a package that is not known, its whole path."""
    frames = traceback.extract_tb(trace)
    if not frames:
        return ""
    last = frames[-1]
    short = last.filename.replace(os.sep, "/").rpartition("site-packages/")[2]
    return f"{within(last.filename) or short}:{last.lineno} {last.name}"
