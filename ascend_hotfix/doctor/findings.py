"""What the doctor reports: one :class:`Finding` per cause, with a count and two examples.

A finding carries a stable code and the values its sentences are filled with. The sentences themselves live in
:mod:`ascend_hotfix.doctor.texts`, one entry per code, so that a second language is a second table.

>>> found = Collector()
>>> found.add("tensor-absent", "model.layers.0.mlp.up_proj.weight", place="a.safetensors")
>>> found.add("tensor-absent", "model.layers.1.mlp.up_proj.weight", place="a.safetensors")
>>> [(f.code, f.count, len(f.examples)) for f in found.findings()]
[('tensor-absent', 2, 2)]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ascend_hotfix.doctor.bounds import MOST_CAUSES
from ascend_hotfix.doctor.texts import TEXTS, phrase, said_in, text_of

__all__ = [
    "Collector",
    "Finding",
    "Severity",
    "exit_code",
    "finding_data",
    "finding_of",
    "pattern",
    "starred",
    "told_apart",
    "worst_first",
]

EXAMPLES = 2
PATTERNS = 4
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class Severity(IntEnum):
    """How bad a finding is. A fault: the model does not load, or loads wrongly. A warning: something the user should
    look at. A note: worth knowing, nothing to do."""

    NOTE = 0
    WARNING = 1
    FAULT = 2

    @property
    def label(self) -> str:
        return self.name.lower()


def pattern(name: str) -> str:
    """*name* with every numeric segment replaced by ``*``."""
    return _NUMBER.sub("*", name)


def starred(name: str) -> str:
    """As :func:`pattern`, for a name that may begin with a number or be one."""
    return pattern(f".{name}")[1:]


def told_apart(old: str, new: str) -> tuple[str, str]:
    """Two parts of names as a finding shows them: numbers as ``*``, so that a difference in every layer is one cause.

    >>> told_apart("layers.3.block3", "layers.3")
    ('layers.*.block*', 'layers.*')
    >>> told_apart("layers.3", "layers.4")
    ('layers.*', 'layers.* of another number')
    """
    shown = [re.sub(r"\d+", "*", part) or "(nothing)" for part in (old, new)]
    return shown[0], f"{shown[1]} of another number" if shown[0] == shown[1] else shown[1]


@dataclass(frozen=True)
class Finding:
    """One cause.

    ``code`` is a key of the table of texts and stays the same between releases. ``place`` is the file (relative to
    the checkpoint) or the seam where the cause sits, empty where there is no single one. ``count`` is the number of
    names concerned, ``examples`` at most two of them, ``patterns`` their shapes with numbers replaced by ``*``.
    ``params`` fill the sentences of the code. ``stage`` is ``static``, ``dry-run`` or ``run-time``. ``settled``: a later
    stage has shown that it does no harm here, so it is only a note.
    """

    code: str
    place: str = ""
    count: int = 1
    examples: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    stage: str = "static"
    settled: bool = False

    def __post_init__(self) -> None:
        if self.code not in TEXTS:
            raise ValueError(f"finding code {self.code!r} has no text; add it to ascend_hotfix.doctor.texts")

    @property
    def severity(self) -> Severity:
        return Severity.NOTE if self.settled else Severity[TEXTS[self.code].severity.upper()]

    def sentences(self, language: str = "en") -> tuple[str, str, str]:
        """Message, consequence and remedy, in one of the languages of :mod:`ascend_hotfix.doctor.texts`."""
        example = self.examples[0] if self.examples else self.place
        values = {"count": str(self.count), "place": self.place, "example": example}
        values.update({name: said_in(language, value) for name, value in self.params.items()})
        message, consequence, remedy = text_of(self.code, language).filled(values)
        if self.settled:
            consequence, remedy = (phrase(key, language) for key in ("settled then", "settled do"))
        return message, consequence, remedy

    @property
    def message(self) -> str:
        """What is wrong."""
        return self.sentences()[0]

    @property
    def consequence(self) -> str:
        """What the user sees at ``vllm serve`` if nothing is done."""
        return self.sentences()[1]

    @property
    def remedy(self) -> str:
        """A command to type, or a concrete action."""
        return self.sentences()[2]


@dataclass
class _Cause:
    """What a collector knows of one cause while it still counts."""

    params: Mapping[str, str]
    count: int = 0
    examples: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)


class Collector:
    """Gathers single observations into findings: the same code, place and params are one cause.

    In the static stage each name of a damaged file may be a cause of its own: beyond :data:`MOST_CAUSES` of a code they
    count with the last.
    """

    def __init__(self, stage: str = "static") -> None:
        self._stage = stage
        self._causes: dict[tuple[str, str, tuple[tuple[str, str], ...]], _Cause] = {}
        self._kinds: Counter[str] = Counter()
        self._last: dict[str, _Cause] = {}
        self._taken: list[Finding] = []
        self.added = 0  # observations, to see whether a check had any

    def add(self, code: str, example: str = "", *, place: str = "", count: int = 1, **params: object) -> None:
        """Count one observation. ``params`` are what the sentences of *code* name; they tell causes apart."""
        self.added += 1
        texts = {name: value if isinstance(value, str) else str(value) for name, value in params.items()}
        key = code, place, tuple(sorted(texts.items()))
        cause = self._causes.get(key)
        if cause is None and self._stage == "static" and self._kinds[code] >= MOST_CAUSES:
            cause = self._last[code]
        elif cause is None:
            self._kinds[code] += 1
            cause = self._causes[key] = self._last[code] = _Cause(texts)
        cause.count += count
        if not example:
            return
        if len(cause.examples) < EXAMPLES and example not in cause.examples:
            cause.examples.append(example)
        if len(cause.patterns) < PATTERNS and (shape := pattern(example)) not in cause.patterns:
            cause.patterns.append(shape)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Take over findings made elsewhere as they are."""
        self._taken.extend(findings)

    def findings(self) -> list[Finding]:
        """Every cause, worst first."""
        made = (
            Finding(code, place, c.count, tuple(c.examples), tuple(c.patterns), c.params, self._stage)
            for (code, place, _), c in self._causes.items()
        )
        return worst_first([*self._taken, *made])


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Faults before warnings before notes; within one severity the larger count first, then by code and place."""
    return sorted(findings, key=lambda f: (-f.severity, -f.count, f.code, f.place))


def exit_code(findings: Iterable[Finding]) -> int:
    """0 where nothing is worse than a warning, 1 where there is a fault."""
    return 1 if any(f.severity is Severity.FAULT for f in findings) else 0


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as plain data; :func:`finding_of` turns it back."""
    return {
        "code": finding.code,
        "place": finding.place,
        "count": finding.count,
        "examples": list(finding.examples),
        "patterns": list(finding.patterns),
        "params": dict(finding.params),
        "stage": finding.stage,
    }


def finding_of(data: Mapping[str, Any]) -> Finding:
    """The finding that :func:`finding_data` wrote."""
    fields = dict(data)
    return Finding(**{**fields, "examples": tuple(fields["examples"]), "patterns": tuple(fields["patterns"])})
