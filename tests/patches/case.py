"""What a case is: a public report, the release that shows it, and what must happen there without and with the patch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CI", "PAIRS", "PINS", "Case", "Fails", "Wrong"]

# the vllm-ascend release of each pair, as ascend_hotfix.sim.matrix names it
PAIRS = {
    "0.11": "0.11.0",
    "0.12": "0.12.0rc1",
    "0.13": "0.13.0",
    "0.16": "0.16.0rc1",
    "0.18": "0.18.0",
    "0.23": "0.23.0",
    "0.30": "0.30.0rc2",
}
CI = ("0.11", "0.13", "0.18", "0.23", "0.30")
# the same releases with the torch, torch_npu and transformers that they ask for
PINS = tuple(f"{pair}-pins" for pair in CI)
PAIRS |= {f"{pair}-pins": f"{PAIRS[pair]}-pins" for pair in CI}


@dataclass(frozen=True)
class Fails:
    """Stock raises an exception of class *error*; its message has *key* in it."""

    error: str
    key: str


@dataclass(frozen=True)
class Wrong:
    """Stock loads, and each of these patterns is found in a line of :func:`checks.faults`."""

    faults: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One report on one pair.

    ``report`` names it as the catalogue of reports does; ``checkpoint`` is read by :mod:`inside.checkpoints`;
    ``patch`` are the fixes that must have hits, and no other may have any. ``unused`` are patterns of tensors that
    the right model leaves out, beyond those of every model (:data:`checks.SPARE`). ``release`` and ``undo``: no pair
    shows the report, the installed release is taken back to the named one.
    """

    name: str
    report: str
    pair: str
    checkpoint: Any
    stock: Fails | Wrong
    patch: tuple[str, ...]
    draft: bool = False
    unused: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    release: dict[str, str] = field(default_factory=dict)
    undo: tuple[str, ...] = ()
    device: str = "cpu"
    engine: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """For pytest."""
        return f"{self.name}-{self.pair}"
