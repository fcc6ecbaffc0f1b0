"""Tells an error of the dry run's own stand-ins from what upstream says of a checkpoint.

The dry run has no NPU, and a part of what upstream needs is stood in for. Where such a part does not do, upstream fails
in the middle of a build or a load, and nothing follows for the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ascend_hotfix.sim import frames

__all__ = ["StandInFault", "check"]


class StandInFault(Exception):
    """A part could not be stood in for. ``part`` names it; the text is the error of upstream and its place."""

    def __init__(self, part: str, text: str) -> None:
        super().__init__(part, text)
        self.part, self.text = part, text

    def __str__(self) -> str:
        return f"{self.part}\n{self.text}"


_BY_TEXT = (
    (r"No backend type associated with device type (\w+)", "the process groups of the device {0}"),
    (r"Could not run '([\w:.]+)' (?:with arguments )?from the '\w+' backend", "the op {0}"),
    (r"Could not run '([\w:.]+)' with arguments", "the op {0}"),
    (r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'", "the op {0}::{1}"),
    (r"simulated NPU: ([\w:.]+)", "the op {0}"),
    (r"(\S+): cannot open shared object file", "the library {0}"),
    (r"undefined symbol: (\w+)", "the symbol {0} of a library"),
    (r"\bERR\d{5}\b|\bE[A-Z]\d{4}\b: ?|\bacl(rt|nn|op|mdl)\w+ failed", "CANN"),
    (r"\d+ active drivers", "triton's driver"),
)
"""What torch, the loader and CANN say, to the part that is missing."""

_BY_PLACE = {"torch_npu": "torch_npu", "triton": "triton", "torchvision": "torchvision"}
"""Packages that know nothing of a checkpoint."""


def check(error: BaseException) -> None:
    """Raise :class:`StandInFault` where ``error``, or what it was raised for, is one of a stand-in."""
    for one in _chain(error):
        if isinstance(one, StandInFault):
            raise one
        text = " ".join(str(one).split())
        told = f"{type(one).__name__}: {text[:300]}"
        place = frames.innermost(one.__traceback__)
        for expression, part in _BY_TEXT:
            if match := re.search(expression, text):
                raise StandInFault(part.format(*match.groups()), f"{told} (at {place})") from error
        package = place.partition("/")[0]
        if package in _BY_PLACE:
            raise StandInFault(_BY_PLACE[package], f"{told} (at {place})") from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
