"""``ascend-hotfix status --ledger DIR``: what is patched in each process of a server, from the ledgers they have written.

Processes of one server must be patched alike. Those of different stages of a pipeline have different modules, so what
they have used is compared within a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ascend_hotfix import ledgerfiles, toggles
from ascend_hotfix.ledger import JSON_VERSION
from ascend_hotfix.words import counted

__all__ = ["Process", "lines", "read"]

OUT_OF_RANGE = "out of range"


@dataclass(frozen=True)
class Process:
    """One process, as its ledger tells. ``hits``: ``patch.fix-id`` -> its hits, of every fix that was for its model."""

    file: str
    pid: int
    tool_version: str
    born: Mapping[str, Any]
    toggles: Mapping[str, str]
    catalog: str
    hits: Mapping[str, int]
    drifted: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def server(self) -> str:
        """The server it belongs to; the file's own name for a ledger that does not say."""
        return str(self.born.get("server") or self.file)

    @property
    def off(self) -> bool:
        """Is everything switched off in it?"""
        return toggles.means_off(self.toggles.get(toggles.MODELS, ""))

    @property
    def patched(self) -> bool:
        """Is any fix armed in it?"""
        return not self.off and bool(self.hits)

    @property
    def title(self) -> str:
        """Host, id and what else tells it from the others."""
        rank = f", rank {self.born['rank']} of {self.born['world_size']}" if "world_size" in self.born else ""
        return f"{self.born.get('host', '?')} pid {self.pid} ({self.born.get('name', '?')}{rank})"

    def state(self) -> str:
        """``running``, ``ended``, or nothing where that cannot be seen from here."""
        running = ledgerfiles.is_running(self.pid, dict(self.born))
        return {True: "running", False: "ended", None: "not seen from here"}[running]


def read(folder: str) -> tuple[list[Process], list[str]]:
    """The processes whose ledgers lie in *folder*, and what cannot be read there. Raises OSError for the folder itself."""
    found, problems = [], []
    for name, held in ledgerfiles.read_all(folder):
        try:
            if isinstance(held, ledgerfiles.LedgerFileError):
                raise held
            found.append(_process(name, held))
        except ledgerfiles.LedgerFileError as error:
            problems.append(f"{name} {error}")
    return found, problems


def _process(file: str, held: Any) -> Process:
    """A ledger as a Process. Raises LedgerFileError for what is none."""
    if not isinstance(held, dict) or held.get("schema") != "ascend-hotfix/ledger":
        raise ledgerfiles.LedgerFileError("is no ledger of ascend-hotfix")
    if held.get("version") != JSON_VERSION:
        raise ledgerfiles.LedgerFileError(
            f"is a ledger of version {held.get('version')}; this ascend-hotfix reads version {JSON_VERSION}"
        )
    try:
        entries = [(f"{one['patch']}.{one['fix']}", str(one["state"]), int(one["hits"])) for one in held["entries"]]
        hits: dict[str, int] = {}
        for name, state, times in entries:
            if state != OUT_OF_RANGE:
                hits[name] = hits.get(name, 0) + times
        return Process(
            file,
            int(held["pid"]),
            str(held["tool_version"]),
            dict(held.get("process", {})),
            {str(name): str(value) for name, value in dict(held.get("toggles", {})).items()},
            str(held.get("catalog", "")),
            hits,
            tuple(sorted({name for name, state, _ in entries if state == "drifted"})),
            tuple(str(one) for one in held["findings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ledgerfiles.LedgerFileError(
            "is a ledger with fields that are missing or of another type (docs/ledger-json.md)"
        ) from None


def lines(processes: list[Process], problems: list[str]) -> Iterator[str]:
    """The report: each server with its processes, and at the end what is wrong, on lines that start with ``problem:``."""
    servers: dict[str, list[Process]] = {}
    for one in processes:
        servers.setdefault(one.server, []).append(one)
    found = [f"problem: {problem}" for problem in problems]
    for name, members in servers.items():
        yield f"server {name}: {counted(len(members), 'process', 'processes')}"
        for one in members:
            yield from _told(one)
        found += [f"problem: server {name}: {text}" for text in _differences(members)]
        found += [f"problem: server {name}: {text}" for text in _missing(members, processes)]
    yield from found


def _told(one: Process) -> Iterator[str]:
    used = {name: times for name, times in sorted(one.hits.items()) if times}
    if one.off:
        said = f"switched off by {toggles.MODELS}={one.toggles[toggles.MODELS]}"
    else:
        said = f"{counted(len(one.hits), 'fix', 'fixes')} armed, {len(used)} of these used"
    yield f"  {one.title}, {one.state()}: {said}"
    yield from (f"    {name}: {counted(times, 'hit')}" for name, times in used.items())
    yield from (f"    NOT applied: {name}, its place in upstream is gone" for name in one.drifted)
    yield from (f"    finding: {' '.join(text.split())}" for text in one.findings)


def _differences(members: list[Process]) -> Iterator[str]:
    """How processes of one server are not patched alike."""
    patched = [one for one in members if one.patched]
    bare = [one for one in members if not one.patched]
    if patched and bare:
        yield (
            f"patched: {_listed(patched)}; not patched: {_listed(bare)}. "
            f"Set {toggles.MODELS} alike for all of them, and install ascend-hotfix in each one's environment"
        )
    for what, asked in (
        ("release of ascend-hotfix", lambda one: one.tool_version),
        ("set of patches", lambda one: one.catalog),
        (toggles.MODELS, lambda one: one.toggles.get(toggles.MODELS, "")),
    ):
        kinds = _by(patched, asked)
        if len(kinds) > 1:
            shown = "; ".join(f"{kind or 'none'}: {_listed(of_kind)}" for kind, of_kind in kinds.items())
            yield f"not every process has the same {what}. {shown}"
    for stage in _by(patched, lambda one: str(one.born.get("pipeline_rank", ""))).values():
        yield from _differences_of_a_stage(stage)


def _differences_of_a_stage(stage: list[Process]) -> Iterator[str]:
    every = {name for one in stage for name in one.hits}
    for one in stage:
        if lacking := sorted(every - set(one.hits)):
            more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            yield f"{one.title} has not {', '.join(lacking[:3])}{more}, which others have"
    idle = [one for one in stage if not sum(one.hits.values())]
    if idle and len(idle) < len(stage):
        busy = [one for one in stage if one not in idle]
        yield f"fixes were used in {_listed(busy)} and none in {_listed(idle)}, which has the same modules"


def _missing(members: list[Process], every: list[Process]) -> Iterator[str]:
    """The ranks of a server of which no ledger is there, not of another server's in the same folder either."""
    for size in sorted({one.born["world_size"] for one in members if isinstance(one.born.get("world_size"), int)}):
        known = {one.born.get("rank") for one in every if one.born.get("world_size") == size}
        lacking = [str(rank) for rank in range(min(size, 1 << 16)) if rank not in known]
        if lacking:
            shown = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
            yield (
                f"of {size} ranks, {shown} wrote no ledger here. Either it has not loaded the model yet, or it writes "
                "to another folder, or ascend-hotfix is not armed in it"
            )


def _by(processes: list[Process], asked: Any) -> dict[str, list[Process]]:
    kinds: dict[str, list[Process]] = {}
    for one in processes:
        kinds.setdefault(asked(one), []).append(one)
    return kinds


def _listed(processes: list[Process]) -> str:
    shown = ", ".join(one.title for one in processes[:3])
    return shown + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")
