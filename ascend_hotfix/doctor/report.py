"""Shows what the doctor found: a table for people, JSON for machines, an exit code for scripts.

The JSON is versioned by :data:`JSON_VERSION` and described in ``docs/doctor-json.md``: fields are added within a
version, and only removed or changed in meaning with a new one.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from ascend_hotfix import __version__
from ascend_hotfix.doctor.bounds import MOST_ODD
from ascend_hotfix.doctor.checkpoint import Checkpoint, model_types
from ascend_hotfix.doctor.findings import Finding, Severity, worst_first
from ascend_hotfix.doctor.releases import listed_from
from ascend_hotfix.doctor.schemes import is_float
from ascend_hotfix.doctor.texts import label_of, phrase, said_in
from ascend_hotfix.words import printable

__all__ = [
    "JSON_VERSION",
    "CouldNotRun",
    "Options",
    "ProgressBar",
    "Report",
    "Stage",
    "padded",
    "to_json",
    "to_json_text",
    "to_text",
]

JSON_VERSION = 1
JSON_SCHEMA = "ascend-hotfix/doctor"
RIGHT, FAULTS, NOT_CHECKED = 0, 1, 2
COLOURS = {Severity.FAULT: "31;1", Severity.WARNING: "33;1", Severity.NOTE: "36"}
LABEL = 10  # columns of the left column
NOT_FIRST = "\uff0c\u3002\uff1b\uff1a\u3001\uff09"  # Chinese punctuation that no line begins with


class CouldNotRun(Exception):
    """A stage that was asked for cannot run here; the text says why and what would let it."""


@dataclass(frozen=True)
class Options:
    """What the user asked for. *choose*: the choices that a suggestion left, each with the answer to it."""

    static_only: bool = False
    tensor_parallel_size: int = 1
    expert_parallel: bool = False
    choose: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Stage:
    """One stage of a diagnosis. ``status`` is ``done``, ``skipped`` (not asked for) or ``failed`` (could not run)."""

    name: str
    status: str
    seconds: float = 0.0
    reason: str = ""


@dataclass
class Report:
    """Everything about one checkpoint. ``checkpoint`` is None where the path is no model directory."""

    path: str
    options: Options
    checkpoint: Checkpoint | None = None
    installed: Mapping[str, str] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    suggested: str | None = None
    fixes: dict[str, int] = field(default_factory=dict)
    """``patch.fix-id`` of each fix that did something in the dry run -> how often."""

    def count(self, severity: Severity) -> int:
        return sum(f.severity is severity for f in self.findings)

    @property
    def exit_code(self) -> int:
        """0 right, 1 faults, 2 could not check (no model directory, or a stage that was asked for could not run)."""
        if self.checkpoint is None:
            return NOT_CHECKED
        if self.count(Severity.FAULT):
            return FAULTS
        return NOT_CHECKED if any(stage.status == "failed" for stage in self.stages) else RIGHT

    def schemes(self) -> dict[str, int]:
        """How many weights have which scheme, the most frequent first, at most :data:`MOST_ODD`."""
        description = self.checkpoint.description if self.checkpoint is not None else None
        if description is None:
            return {}
        weights = (s for name, s in description.schemes.items() if name.endswith((".weight", ".weight_packed")))
        counts = Counter("FLOAT" if is_float(s) else s for s in weights).most_common(MOST_ODD)
        return {printable(scheme): count for scheme, count in counts}

    @property
    def command(self) -> str:
        """How the checkpoint is served: every quantized one needs ``--quantization ascend``, up to 0.16 in any case."""
        words = ["vllm", "serve", self.path, "--quantization", "ascend"]
        if self.checkpoint is not None and self.checkpoint.ranks:
            words += ["--load-format", "sharded_state"]
        if self.options.tensor_parallel_size > 1:
            words += ["--tensor-parallel-size", str(self.options.tensor_parallel_size)]
        if self.options.expert_parallel:
            words.append("--enable-expert-parallel")
        return shlex.join(words)

    def remedy(self, finding: Finding, language: str = "en") -> str:
        """The remedy with DIR replaced by the checkpoint's path, ready to paste."""
        return re.sub(r"\bDIR\b", lambda _: shlex.quote(self.path), finding.sentences(language)[2])


# -- JSON -------------------------------------------------------------------------------------------------------------


def _finding_json(report: Report, finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.label,
        "stage": finding.stage,
        "message": finding.message,
        "count": finding.count,
        "examples": list(finding.examples),
        "patterns": list(finding.patterns),
        "place": finding.place,
        "consequence": finding.consequence,
        "remedy": report.remedy(finding),
        "params": dict(finding.params),
    }


def _checkpoint_json(report: Report) -> dict[str, Any] | None:
    checkpoint = report.checkpoint
    if checkpoint is None:
        return None
    architectures = checkpoint.config.get("architectures")
    return {
        "model_types": list(model_types(checkpoint.config)),
        "listed_from": listed_from(model_types(checkpoint.config)),
        "architectures": [str(a) for a in architectures] if isinstance(architectures, list) else [],
        "tensors": len(checkpoint.tensors),
        "files": len({tensor.file for tensor in checkpoint.tensors.values()}),
        "description": checkpoint.description.place if checkpoint.description is not None else None,
        "schemes": report.schemes(),
    }


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain data, see ``docs/doctor-json.md``."""
    return {
        "schema": JSON_SCHEMA,
        "version": JSON_VERSION,
        "tool_version": __version__,
        "path": report.path,
        "checkpoint": _checkpoint_json(report),
        "installed": dict(report.installed),
        "options": {
            "static_only": report.options.static_only,
            "tensor_parallel_size": report.options.tensor_parallel_size,
            "expert_parallel": report.options.expert_parallel,
        },
        "stages": [
            {"name": s.name, "status": s.status, "seconds": round(s.seconds, 3), "reason": s.reason}
            for s in report.stages
        ],
        "findings": [_finding_json(report, finding) for finding in worst_first(report.findings)],
        "command": report.command,
        "summary": {f"{severity.label}s": report.count(severity) for severity in reversed(Severity)},
        "suggested": report.suggested,
        "fixes": dict(report.fixes),
        "exit_code": report.exit_code,
    }


# -- text -------------------------------------------------------------------------------------------------------------


def _columns(text: str) -> int:
    """Terminal columns that *text* takes: two for each Chinese character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _fold(text: str, width: int) -> list[str]:
    """*text* in lines of at most *width* columns where it can be: at spaces and between Chinese characters.

    Names and commands are never broken, however long they are.
    """
    lines = [""]
    text = printable(text)
    for piece in re.findall(
        r"\s+|(?<!\S)'[^']*'\S*|[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef]+", text
    ):
        if _columns(lines[-1] + piece.rstrip()) > width and lines[-1] and piece not in NOT_FIRST:
            lines[-1] = lines[-1].rstrip()
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return [line for line in lines if line.strip()] or [""]


def padded(text: str, width: int = LABEL) -> str:
    """*text* with spaces up to *width* columns."""
    return text + " " * (width - _columns(text))


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """*text* in the right column with *label* beside its first line."""
    first, *rest = _fold(text, max(width - LABEL, 20))
    return [padded(label) + first, *(" " * LABEL + line for line in rest)]


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def _label(severity: Severity, colour: bool, language: str) -> str:
    """The severity in the left column."""
    label = label_of(severity.label, language)
    return _painted(label, COLOURS[severity], colour) + " " * (LABEL - _columns(label))


def _finding_text(report: Report, finding: Finding, width: int, colour: bool, language: str) -> list[str]:
    message, consequence, _ = finding.sentences(language)
    # the mistakes of a patch file have a line each; elsewhere a line break is part of a name
    parts = message.split("\n") if finding.code == "patch-problem" else [message]
    first, *rest = (line for part in parts for line in _wrapped("", part, width))
    lines = [_label(finding.severity, colour, language) + first[LABEL:], *rest]
    alternatives = finding.params.get("alternatives", "").splitlines()
    label = "one of" if alternatives else "e.g."
    room = sys.maxsize if alternatives else width  # a rule is to be pasted
    for number, example in enumerate(alternatives or finding.examples):
        lines.extend(_wrapped("" if number else f"  {label_of(label, language)}", example, room))
    lines.extend(_wrapped(f"  {label_of('then', language)}", consequence, width))
    lines.extend(_wrapped(f"  {label_of('do', language)}", report.remedy(finding, language), width))
    origin = f"{finding.code}, {finding.stage}" + (f", {finding.place}" if finding.place else "")
    lines.extend(_wrapped(f"  {label_of('code', language)}", origin, width))
    return lines


def _head(report: Report, language: str) -> list[tuple[str, str]]:
    """What was looked at: (label, text) rows."""
    rows = [("path", report.path)]
    about = _checkpoint_json(report)
    if about is not None:
        names = ", ".join(about["model_types"][:2]) or phrase("no model type", language)
        classes = ", ".join(about["architectures"]) or phrase("no architecture", language)
        rows.append(("model", f"{names} ({classes})"))
        rows.append(("weights", phrase("size", language, tensors=about["tensors"], files=about["files"])))
        if about["schemes"] or (report.checkpoint is not None and report.checkpoint.ranks):
            rows.append(("serve as", report.command))
        if about["listed_from"]:
            rows.append(("known", phrase("known from", language, release=about["listed_from"])))
        if about["schemes"]:
            rows.append(("schemes", ", ".join(f"{scheme} {count}" for scheme, count in about["schemes"].items())))
    if report.installed:
        rows.append(("installed", ", ".join(f"{name} {version}" for name, version in report.installed.items())))
    if report.fixes:
        rows.append(("patched", ", ".join(f"{name} {count}" for name, count in sorted(report.fixes.items()))))
    for stage in report.stages:
        key = "seconds" if stage.status == "done" else stage.status
        rows.append((stage.name, phrase(key, language, seconds=f"{stage.seconds:.1f}", reason=stage.reason)))
    return rows


def _overview(report: Report, width: int, colour: bool, language: str) -> list[str]:
    """A table of the findings, one line each, worst first."""
    rows = [
        (f.severity, str(f.count), f.code, printable(f.place or next(iter(f.patterns), "")))
        for f in worst_first(report.findings)
    ]
    severity, count, finding, where = (label_of(one, language) for one in ("severity", "count", "finding", "where"))
    counts = max(_columns(count), *(len(row[1]) for row in rows))
    codes = max(_columns(finding), *(len(row[2]) for row in rows))
    lines = [f"{padded(severity)}{' ' * (counts - _columns(count))}{count}  {padded(finding, codes)}  {where}"]
    for level, count, code, place in rows:
        room = max(width - LABEL - counts - codes - 4, 8)
        shown = place if len(place) <= room else "..." + place[-(room - 3) :]
        lines.append(f"{_label(level, colour, language)}{count:>{counts}}  {code:<{codes}}  {shown}".rstrip())
    return lines


def _verdict(report: Report, language: str) -> str:
    code = report.exit_code
    if code == FAULTS:
        key = "wrong"
    elif code == NOT_CHECKED:
        key = "unchecked"
    elif report.options.static_only:
        key = "files right"
    else:
        key = "right patched" if report.fixes else "right"
    counts = {f"{severity.label}s": report.count(severity) for severity in Severity}
    return phrase("counts", language, **counts, verdict=phrase(key, language))


def to_text(report: Report, width: int | None = None, colour: bool = False, language: str = "en") -> str:
    """The report for a person, *width* columns wide (the terminal's by default), worst finding first."""
    columns = width if width is not None else min(shutil.get_terminal_size((100, 24)).columns, 140)
    rule = "-" * columns
    lines: list[str] = []
    for label, text in _head(report, language):
        lines.extend(_wrapped(label_of(label, language), text, columns))
    if len(report.findings) > 1:
        lines += [rule, *_overview(report, columns, colour, language)]
    for finding in worst_first(report.findings):
        lines.append(rule)
        lines.extend(_finding_text(report, finding, columns, colour, language))
    lines.append(rule)
    if report.suggested is not None:
        lines.extend(_wrapped(label_of("suggested", language), str(said_in(language, report.suggested)), columns))
    worst = max((f.severity for f in report.findings), default=None)
    verdict = "\n".join(_fold(_verdict(report, language), columns))
    lines.append(_painted(verdict, "32;1" if worst is None else COLOURS[worst], colour))
    return "\n".join(lines)


def to_json_text(report: Report) -> str:
    """:func:`to_json` as text, in which what a terminal would obey is escaped as JSON escapes it."""
    text = json.dumps(to_json(report), indent=2, ensure_ascii=False)
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_as_json, line)) for line in lines)


def _as_json(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


class ProgressBar:
    """A bar on a terminal, nothing elsewhere. Call it with (done, all, what); it appears after a moment of waiting."""

    WAIT = 0.3  # seconds before the first drawing, so that short work does not flicker
    EVERY = 0.1  # seconds between drawings

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._active = stream.isatty()
        self._next = time.monotonic() + self.WAIT
        self._drawn = False

    def __call__(self, done: int, total: int, what: str = "") -> None:
        now = time.monotonic()
        if not self._active or now < self._next:
            return
        self._next = now + self.EVERY
        columns = shutil.get_terminal_size((80, 24)).columns
        size = max(min(30, columns - 30), 5)
        full = size * done // total if total else 0
        line = f"[{'#' * full}{'.' * (size - full)}] {done}/{total} {printable(what)}"
        self._stream.write("\r\x1b[K" + line[: columns - 1])
        self._stream.flush()
        self._drawn = True

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False
