"""What became of every fix in this process: nothing is silent.

One entry per patch, fix and seam, with a state and a count of hits. ``note`` keeps the findings that a
person should read. ``summary`` is the line a server prints; ``ASCEND_HOTFIX_LEDGER`` names a folder into
which each process writes its ledger as JSON, for tests and for support (docs/ledger-json.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from ascend_hotfix import __version__, ledgerfiles, toggles
from ascend_hotfix.words import counted

__all__ = ["JSON_VERSION", "LEDGER", "STATES", "Entry", "Ledger"]

JSON_VERSION = 1

STATES = ("armed", "applied", "unused", "out of range", "drifted")


@dataclass
class Entry:
    """One fix at one seam. *hits* counts renames, rows, defaults, dropped or filled tensors."""

    patch: str
    fix: str
    seam: str
    state: str = "armed"
    hits: int = 0
    note: str = ""
    examples: list[str] = field(default_factory=list)


class Ledger:
    """The entries and findings of one process."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str, str], Entry] = {}
        self.findings: list[str] = []
        self.loads = 0
        self.catalog = ""  # stands for the patches that were read
        self.place: dict[str, int] = {}  # of this process among the workers

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def entry(self, patch: str, fix: str, seam: str) -> Entry:
        """The entry, made in state *armed* where it is new."""
        return self.entries.setdefault((patch, fix, seam), Entry(patch, fix, seam))

    def hit(self, patch: str, fix: str, seam: str, example: str = "", times: int = 1) -> None:
        """Counts *times* hits; the first two examples are kept."""
        entry = self.entry(patch, fix, seam)
        entry.state = "applied"
        entry.hits += times
        if example and len(entry.examples) < 2:
            entry.examples.append(example)

    def mark(self, patch: str, fix: str, seam: str, state: str, note: str = "") -> None:
        """Sets a state other than *applied*; what has been applied stays so."""
        if state not in STATES:
            raise ValueError(f"no such state: {state!r}; known are {', '.join(STATES)}")
        entry = self.entry(patch, fix, seam)
        if entry.state != "applied":
            entry.state, entry.note = state, note

    def find(self, message: str) -> bool:
        """Keeps a finding once; True where it is new."""
        if message in self.findings:
            return False
        self.findings.append(message)
        return True

    def hits(self) -> int:
        """All hits in this process."""
        return sum(entry.hits for entry in self)

    def used(self) -> dict[str, int]:
        """``patch.fix-id`` of each fix that did something -> its hits at all seams."""
        used: dict[str, int] = {}
        for entry in self:
            if entry.hits:
                name = f"{entry.patch}.{entry.fix}"
                used[name] = used.get(name, 0) + entry.hits
        return used

    def settle(self) -> None:
        """After loading: what is still armed was not needed. A seam that this load did not pass stays armed."""
        for entry in self:
            if entry.state == "armed":
                entry.state, entry.note = "unused", "nothing missed what it offers"

    def summary(self) -> str:
        """One line: how many hits by which fixes, and what went wrong."""
        parts = [f"{name} ({counted(hits, 'hit')})" for name, hits in sorted(self.used().items())]
        bad = [f"{e.patch}.{e.fix} {e.state} at {e.seam}" for e in self if e.state == "drifted"]
        text = "applied " + ", ".join(parts) if parts else "nothing had to be fixed"
        return text + (f"; NOT applied: {', '.join(sorted(set(bad)))}" if bad else "")

    def to_json(self) -> dict[str, object]:
        """The ledger as plain data, see ``docs/ledger-json.md``."""
        return {
            "schema": "ascend-hotfix/ledger",
            "version": JSON_VERSION,
            "tool_version": __version__,
            "pid": os.getpid(),
            "process": {**ledgerfiles.process(), **self.place},
            "toggles": {name: os.environ[name] for name in toggles.ALL if os.environ.get(name)},
            "catalog": self.catalog,
            "entries": [asdict(entry) for entry in self],
            "findings": self.findings,
        }

    def write(self) -> None:
        """Writes the ledger to the folder that ASCEND_HOTFIX_LEDGER names; without it, nothing. Raises OSError."""
        if folder := toggles.ledger():
            ledgerfiles.write(folder, json.dumps(self.to_json(), indent=1))


LEDGER = Ledger()
