"""What became of every fix in this process: nothing is silent.

One entry per patch, fix and seam, with a state and a count of hits: for the process, and for each model that was
built in it (:class:`Build`). ``findings`` keeps what a person should read. ``summary`` is the line a server prints;
``ASCEND_HOTFIX_LEDGER`` names a folder into which each process writes its ledger as JSON, for tests and for support
(docs/ledger-json.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from ascend_hotfix import __version__, ledgerfiles, toggles
from ascend_hotfix.words import counted

__all__ = ["JSON_VERSION", "LEDGER", "STATES", "Build", "Entry", "Ledger"]

JSON_VERSION = 1

Key = tuple[str, str, str]
"""Patch, fix and seam."""

UNUSED = "nothing missed what it offers"
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


@dataclass(eq=False)
class Build:
    """What the fixes did to one model, target or draft, while it was built and loaded."""

    model: str = ""
    entries: dict[Key, Entry] = field(default_factory=dict)
    target: Build | None = None
    """The target's build, where this is the draft's."""
    awaited: set[Key] = field(default_factory=set)
    """Entries that are for the draft of this model as well: unused only when that is loaded too."""

    def used(self) -> dict[str, int]:
        """As :meth:`Ledger.used`, in this build."""
        return _used(self.entries.values())


class _Current(threading.local):
    build: Build | None = None


class Ledger:
    """The entries and findings of one process, and those of each build."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.findings: list[str] = []
        self.builds: list[Build] = []
        self._early: dict[Key, Entry] = {}
        self._current = _Current()
        self._lock = threading.Lock()
        self.catalog = ""  # stands for the patches that were read
        self.place: dict[str, int] = {}  # of this process among the workers

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self.entries.values()))

    def entry(self, patch: str, fix: str, seam: str) -> Entry:
        """The entry, made in state *armed* where it is new."""
        return self.entries.setdefault((patch, fix, seam), Entry(patch, fix, seam))

    # --- builds ---------------------------------------------------------------------------------------------------

    def begin(self, keys: Iterable[Key] = ()) -> Build:
        """A new build for which the fixes of *keys* are armed. Hits since the last one began, on what is read before
        a model is built, are its own.
        """
        with self._lock:
            early, self._early = self._early, {}
            build = Build(entries={key: early.pop(key) if key in early else Entry(*key) for key in keys})
            build.entries.update(early)
            self.builds.append(build)
        return build

    @contextlib.contextmanager
    def counting(self, build: Build) -> Iterator[None]:
        """Hits of this thread are those of *build* while this is entered."""
        before, self._current.build = self._current.build, build
        try:
            yield
        finally:
            self._current.build = before

    @property
    def current(self) -> Build | None:
        """The build that is counted in this thread."""
        return self._current.build

    # --- hits -----------------------------------------------------------------------------------------------------

    def hit(self, patch: str, fix: str, seam: str, example: str = "", times: int = 1) -> None:
        """Counts *times* hits; the first two examples are kept."""
        with self._lock:
            for entries in self._books():
                entry = entries.setdefault((patch, fix, seam), Entry(patch, fix, seam))
                entry.state, entry.note = "applied", ""
                entry.hits += times
                if example and len(entry.examples) < 2:
                    entry.examples.append(example)

    def take_back(self, patch: str, fix: str, seam: str, example: str = "") -> None:
        """Undoes one hit: what was done has turned out not to be needed."""
        with self._lock:
            for entries in self._books():
                entry = entries.get((patch, fix, seam))
                if entry is None or not entry.hits:
                    continue
                entry.hits -= 1
                if example in entry.examples:
                    entry.examples.remove(example)
                if not entry.hits:
                    entry.state = "armed"

    def _books(self) -> tuple[dict[Key, Entry], dict[Key, Entry]]:
        build = self._current.build
        return self.entries, self._early if build is None else build.entries

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
        return _used(self)

    def settle(self, build: Build | None = None) -> list[Entry]:
        """When *build* (or all) has been loaded: its entries that are still armed were not needed. Gives those that no model
        needed.

        What a draft may still need waits for the draft.
        """
        unused = []
        build = build or Build(entries=self.entries)
        before = build.target or Build()
        for key, entry in build.entries.items():
            if entry.state != "armed" or key in build.awaited:
                continue
            entry.state, entry.note = "unused", UNUSED
            earlier = before.entries.get(key)
            if earlier is None or not earlier.hits:
                self.mark(*key, "unused", UNUSED)
                unused.append(entry)
        for entry in [before.entries[key] for key in before.awaited & before.entries.keys()]:
            if entry.state == "armed":
                entry.state, entry.note = "unused", UNUSED
        return unused

    def summary(self, build: Build | None = None) -> str:
        """One line: how many hits by which fixes, in *build* or in the process, and what went wrong."""
        used: Mapping[str, int] = self.used() if build is None else build.used()
        parts = [f"{name} ({counted(hits, 'hit')})" for name, hits in sorted(used.items())]
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
            "models": [
                {"model": build.model, "entries": [asdict(entry) for entry in build.entries.values()]}
                for build in self.builds
            ],
        }

    def write(self) -> None:
        """Writes the ledger to the folder that ASCEND_HOTFIX_LEDGER names; without it, nothing. Raises OSError."""
        if folder := toggles.ledger():
            ledgerfiles.write(folder, json.dumps(self.to_json(), indent=1))


def _used(entries: Iterable[Entry]) -> dict[str, int]:
    used: dict[str, int] = {}
    for entry in entries:
        if entry.hits:
            name = f"{entry.patch}.{entry.fix}"
            used[name] = used.get(name, 0) + entry.hits
    return used


LEDGER = Ledger()
