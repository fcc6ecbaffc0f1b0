"""Dot-anchored renaming of module, parameter and checkpoint names.

A name is a run of segments joined by dots. Rules match whole segments only, so ``mlp.gate`` never
matches ``mlp.gate_proj`` (vllm-ascend 0.16 to 0.29 does, by a bare ``startswith``). A :class:`Renamer`
applies its rules in order, each at most once, and is idempotent by construction: a renaming whose
result the same rules would move again does not happen. vLLM calls ``load_weights`` of a wrapper and
then of the model inside it, so every rule meets names that it has already renamed.

This module imports nothing of ours.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as sre_parse
else:
    import sre_constants as sre
    import sre_parse

__all__ = [
    "Exact",
    "Layers",
    "Prefix",
    "Refusal",
    "Regex",
    "Renamer",
    "Renaming",
    "Rule",
    "Segments",
    "Suffix",
    "filled",
    "gathering",
    "layer_number",
    "locate",
    "matches",
    "number_of",
    "refuse",
]

WILDCARD = "*"
ANY_DEPTH = "**"
_NUMBER = re.compile(r"[0-9]+")
MOST_MOVED = 1 << 30
DIGITS = 9  # of a number in a name; a damaged name may hold thousands
LONG = 100  # characters of a long name
MOST_WAYS = LONG**2
ANY_NAMES = ("x" * LONG, "0" * LONG)  # a pattern that finds both finds any name


@dataclass
class Refusal:
    """A mistake in *subject* found while a patch file ran, and the line of that file where it is (0 where none is).

    *place* is the fix and the field that hold the subject, which are known when the fix is made.
    """

    error: Exception
    line: int
    subject: object
    place: str = ""


_GATHERED: ContextVar[tuple[str, list[Refusal]] | None] = ContextVar("_GATHERED", default=None)


@contextmanager
def gathering(file: str) -> Iterator[list[Refusal]]:
    """Keeps what rules and records refuse while *file* runs, so that all of its mistakes can be told at once.

    What was refused exists then, but must not be used.
    """
    refusals: list[Refusal] = []
    token = _GATHERED.set((file, refusals))
    try:
        yield refusals
    finally:
        _GATHERED.reset(token)


def refuse(error: Exception, subject: object) -> None:
    """Raises *error*, a mistake in *subject*; under :func:`gathering` keeps it and returns."""
    held = _GATHERED.get()
    if held is None:
        raise error
    file, refusals = held
    frame = sys._getframe(1)
    while frame.f_code.co_filename != file and frame.f_back is not None:
        frame = frame.f_back
    refusals.append(Refusal(error, frame.f_lineno if frame.f_code.co_filename == file else 0, subject))


def locate(subject: object, place: str) -> None:
    """Tells where *subject* is, if it has been refused under :func:`gathering`."""
    held = _GATHERED.get()
    for refusal in held[1] if held is not None else ():
        if refusal.subject is subject:
            refusal.place = place


def _split(name: str) -> list[str]:
    """Segments of a dotted name; the empty name has none."""
    return name.split(".") if name else []


def _match_run(pattern: list[str], segments: list[str], start: int) -> list[str] | None:
    """What each ``*`` of *pattern* stands for where it matches at *start*, or None."""
    if start < 0 or start + len(pattern) > len(segments):
        return None
    captured = []
    for want, have in zip(pattern, segments[start:], strict=False):
        if want == WILDCARD:
            captured.append(have)
        elif want != have:
            return None
    return captured


def _fill(pattern: list[str], captured: list[str]) -> list[str]:
    """*pattern* with its ``*`` replaced in order by *captured*."""
    supply = iter(captured)
    return [next(supply) if part == WILDCARD else part for part in pattern]


def _new_covers(new: list[str], segments: list[str], start: int, length: int) -> bool:
    """Is the run at *start* part of an occurrence of *new*? Then it has been renamed already."""
    return any(
        first + len(new) >= start + length and _match_run(new, segments, first) is not None
        for first in range(max(0, start + length - len(new)), start + 1)
    )


def _require(rule: object, label: str, value: object, kind: type, what: str) -> None:
    if type(value) is not kind:  # True is no number
        raise TypeError(f"{type(rule).__name__}.{label} must be {what}, not {value!r}")


def odd_characters(value: str) -> str:
    """The white space and control characters of *value*: no name has any."""
    return "".join(one for one in value if one.isspace() or not one.isprintable())


def _whole_segments(rule: object, label: str, value: str) -> None:
    _require(rule, label, value, str, "a string")
    if odd := odd_characters(value):
        raise ValueError(f"{rule!r}: {label} has {odd[0]!r} in it, which no name has")
    if any(not part for part in _split(value)):
        raise ValueError(
            f"{rule!r}: {label} has an empty segment; write whole segments without outer dots, "
            f"such as {value.strip('.')!r}"
        )
    for part in _split(value):
        if WILDCARD in part and part not in (WILDCARD, ANY_DEPTH):
            raise ValueError(f"{rule!r}: '*' stands for a whole segment, not part of one ({part!r})")


class _Validated:
    """A rule that is checked when it is made. *refused* is True only under :func:`gathering`."""

    refused = False

    def __post_init__(self) -> None:
        try:
            self._validate()
        except (TypeError, ValueError) as error:
            object.__setattr__(self, "refused", True)
            refuse(error, self)

    def _validate(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class _Run(_Validated):
    """A rule that replaces a run of segments. ``*`` stands for one segment and is carried over in order."""

    old: str
    new: str

    def _validate(self) -> None:
        _whole_segments(self, "old", self.old)
        _whole_segments(self, "new", self.new)
        if self.old == self.new:
            raise ValueError(f"{self!r} changes nothing")
        if ANY_DEPTH in _split(self.old) + _split(self.new):
            raise ValueError(f"{self!r}: '**' is for patterns (types, drop, fill); a rule takes '*'")
        if _split(self.new).count(WILDCARD) > _split(self.old).count(WILDCARD):
            raise ValueError(f"{self!r}: new has more '*' than old")
        object.__setattr__(self, "_old", _split(self.old))
        object.__setattr__(self, "_new", _split(self.new))

    def _places(self, segments: list[str]) -> Iterable[int]:
        raise NotImplementedError

    def apply(self, name: str) -> str:
        """*name* with the first run that matches replaced; *name* itself where none does."""
        old: list[str] = self._old  # type: ignore[attr-defined]
        new: list[str] = self._new  # type: ignore[attr-defined]
        segments = _split(name)
        for start in self._places(segments):
            captured = _match_run(old, segments, start)
            if captured is None or _new_covers(new, segments, start, len(old)):
                continue
            return ".".join(segments[:start] + _fill(new, captured) + segments[start + len(old) :])
        return name


@dataclass(frozen=True)
class Exact(_Run):
    """The whole name. ``Exact("", "lm_head")`` names a layer that was built without a prefix."""

    def _places(self, segments: list[str]) -> Iterable[int]:
        return (0,) if len(segments) == len(_split(self.old)) else ()


@dataclass(frozen=True)
class Prefix(_Run):
    """The leading segments. An empty *old* puts *new* in front of every name that lacks it."""

    def _places(self, segments: list[str]) -> Iterable[int]:
        return (0,)

    def apply(self, name: str) -> str:
        if not self.old and _match_run(_split(self.new), _split(name), 0) is not None:
            return name
        return super().apply(name)


@dataclass(frozen=True)
class Segments(_Run):
    """The first run of these segments, anywhere. An empty *new* removes it."""

    def _validate(self) -> None:
        super()._validate()
        if not self.old:
            raise ValueError(f"{self!r}: old must not be empty")

    def _places(self, segments: list[str]) -> Iterable[int]:
        return range(len(segments) - len(_split(self.old)) + 1)


@dataclass(frozen=True)
class Suffix(_Run):
    """The trailing segments."""

    def _validate(self) -> None:
        super()._validate()
        if not self.old:
            raise ValueError(f"{self!r}: old must not be empty")

    def _places(self, segments: list[str]) -> Iterable[int]:
        return (len(segments) - len(_split(self.old)),)


@dataclass(frozen=True)
class Layers(_Validated):
    """Moves layer numbers: ``Layers("model.layers", 30, stop=30)`` turns ``model.layers.1`` into ``model.layers.31``.

    *start* and *stop* bound the numbers that move (``start <= n < stop``). A range that would move its
    own results again is refused, so that the rule stays idempotent (vllm-ascend ``patch_eagle3_pp_aux``).
    """

    prefix: str
    by: int
    start: int = 0
    stop: int = 1 << 30

    def _validate(self) -> None:
        _whole_segments(self, "prefix", self.prefix)
        for label in ("by", "start", "stop"):
            _require(self, label, getattr(self, label), int, "a whole number")
            if not -MOST_MOVED <= getattr(self, label) <= MOST_MOVED:
                raise ValueError(f"Layers.{label} lies beyond {MOST_MOVED:,}, and no layer has such a number")
        if WILDCARD in self.prefix:
            raise ValueError(f"{self!r}: prefix takes no '*'; write the segments before the number")
        if not self.by:
            raise ValueError(f"{self!r} changes nothing")
        if self.start >= self.stop:
            raise ValueError(f"{self!r}: no number lies between start and stop")
        if self.start < 0 or self.start + self.by < 0:
            raise ValueError(f"{self!r}: would give a number below zero; bound it with start")
        if self.start + self.by < self.stop and self.start < self.stop + self.by:
            raise ValueError(f"{self!r}: would move its own results again; bound it with start and stop")

    def apply(self, name: str) -> str:
        """*name* with the number that follows the prefix moved."""
        head, rest = _split(self.prefix), _split(name)
        if len(rest) <= len(head) or rest[: len(head)] != head or not _NUMBER.fullmatch(rest[len(head)]):
            return name
        number = number_of(rest[len(head)])
        if number is None or not self.start <= number < self.stop:
            return name
        return ".".join([*head, str(number + self.by), *rest[len(head) + 1 :]])


def _flat(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """The items of a parsed pattern, those inside of groups too."""
    for op, argument in parsed:
        if op is sre.SUBPATTERN:
            yield from _flat(argument[-1])
        else:
            yield op, argument


def _ways(parsed: Any) -> float:
    """In how many ways a parsed pattern can match one text of :data:`LONG` characters, at most; infinity for no bound.

    That is what a search that fails has to try. A fixed character between two repeats leaves few places for both, so
    the count starts anew behind it.
    """
    most = ways = 1.0
    for op, argument in _flat(parsed):
        ways = 1.0 if op is sre.LITERAL else ways * _ways_of(op, argument)
        most = max(most, ways)
    return most


def _ways_of(op: Any, argument: Any) -> float:
    if op is sre.BRANCH:
        return sum(map(_ways, argument[1]), 0.0)
    if op not in (sre.MAX_REPEAT, sre.MIN_REPEAT):  # of the rest only what holds a pattern counts, such as (?=...)
        held = argument if isinstance(argument, tuple) else (argument,)
        return math.prod((_ways(one) for one in held if isinstance(one, sre_parse.SubPattern)), start=1.0)
    least, most, body = argument
    each = _ways(body)
    if each == 1:
        return float(min(most - least + 1, LONG))
    if most == sre.MAXREPEAT or each > MOST_WAYS:
        return math.inf
    return float(each ** min(most, 64) + bool(least == 0))


@dataclass(frozen=True)
class Regex(_Validated):
    """The escape hatch: ``re.sub`` once. Use it only where no other rule can say it.

    Refused are patterns that match every name, that a long name could keep busy for ever (a repeat of what repeats or
    has alternatives, more than two repeats with no fixed character between), and those that match their own result,
    such as ``Regex("visual", "model.visual")``: a rename must be stable, so they would never fire.
    """

    pattern: str
    new: str

    def _validate(self) -> None:
        _require(self, "pattern", self.pattern, str, "a string")
        _require(self, "new", self.new, str, "a string")
        try:
            compiled = re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{self!r}: not a regular expression: {error}") from error
        try:
            compiled.sub(self.new, "")  # reads the replacement whether or not there is a match
        except (re.error, IndexError) as error:
            raise ValueError(f"{self!r}: new is not a replacement for it: {error}") from error
        if problem := self._problem(compiled):
            raise ValueError(f"{self!r}: {problem}")
        object.__setattr__(self, "_compiled", compiled)

    def _problem(self, compiled: re.Pattern[str]) -> str:
        """Why a pattern that compiles cannot be meant, or an empty string."""
        if _ways(sre_parse.parse(self.pattern)) > MOST_WAYS:
            return (
                "would try a long name for ever, as its repeats can share one text in too many ways; repeat only single "
                r"characters, as in [^.]+ for a segment or \d+, with a fixed character such as \. between two repeats"
            )
        if compiled.search("") or all(map(compiled.search, ANY_NAMES)):
            return (
                "pattern matches every name or the empty one; say in it which names are meant. Prefix('', 'model') "
                "puts segments in front of every name, Exact('', 'lm_head') names a layer without a prefix"
            )
        if "\\" not in self.new and compiled.sub(self.new, self.new, count=1) != self.new:
            return (
                "pattern matches its own result, so it would never fire: a rename must be stable; "
                "hold it to the start with ^, or use Prefix or Segments, which see what is renamed already"
            )
        return ""

    def apply(self, name: str) -> str:
        """*name* with the first match replaced."""
        compiled: re.Pattern[str] = self._compiled  # type: ignore[attr-defined]
        return compiled.sub(self.new, name, count=1)


Rule = Exact | Prefix | Segments | Suffix | Layers | Regex


@dataclass(frozen=True)
class Renaming:
    """One name's way through a renamer: *new* (equal to *old* on a miss) and the rules that moved it."""

    old: str
    new: str
    rules: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)


@dataclass
class Renamer:
    """Rules in order, each at most once, and a count of the hits of each.

    Of the rules that hold on to the start of a name (Exact, Prefix, Layers) only the first that fits
    moves it; Segments, Suffix and Regex add up.

    ``rename(rename(x)) == rename(x)`` for every rule set and every name: where a second pass would
    change the result of the first, the name is left alone.
    """

    rules: tuple[Rule, ...]
    hits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hits = [0] * len(self.rules)
        self._memo: dict[str, Renaming] = {}

    def _pass(self, name: str) -> tuple[str, tuple[int, ...]]:
        """*name* with all rules applied in order; of those that hold on to its start, only the first that fits."""
        fired: list[int] = []
        held = False
        for index, rule in enumerate(self.rules):
            at_start = isinstance(rule, Exact | Prefix | Layers)
            if at_start and held:
                continue
            moved = rule.apply(name)
            if moved != name:
                fired.append(index)
                name, held = moved, held or at_start
        return name, tuple(fired)

    def look(self, name: str) -> Renaming:
        """The renaming of *name*, not counted."""
        found = self._memo.get(name)
        if found is None:
            new, fired = self._pass(name)
            stable = bool(fired) and self._pass(new)[0] == new and new != name
            found = self._memo[name] = Renaming(name, new, fired) if stable else Renaming(name, name)
        return found

    def count(self, renaming: Renaming) -> str:
        """Counts *renaming* as used and gives its result."""
        for index in renaming.rules:
            self.hits[index] += 1
        return renaming.new

    def rename(self, name: str) -> str:
        """The new name of *name*, counted."""
        return self.count(self.look(name))

    def candidates(self, name: str) -> Iterable[Renaming]:
        """All rules together first, then each alone: what *name* may be called on the other side."""
        together = self.look(name)
        if together:
            yield together
        for index, rule in enumerate(self.rules):
            moved = rule.apply(name)
            if moved not in (name, together.new) and rule.apply(moved) == moved:
                yield Renaming(name, moved, (index,))

    def resolve(self, name: str, known: Callable[[str], bool]) -> Renaming:
        """Turns a miss into a hit: the first candidate that is *known*, or *name* if that is known itself."""
        if not known(name):
            for candidate in self.candidates(name):
                if known(candidate.new):
                    return candidate
        return Renaming(name, name)


def matches(pattern: str, name: str) -> bool:
    """Does *name* match *pattern*, where ``*`` is one segment and ``**`` any number of them?

    Only the last ``**`` is ever tried anew, so that many of them cost no more than the product of both lengths.
    """
    wanted, segments = _split(pattern), _split(name)
    at = place = 0
    depth, reached = -1, 0  # the last ``**``, and how far it reaches
    while place < len(segments):
        want = wanted[at] if at < len(wanted) else None
        if want == ANY_DEPTH:
            depth, reached, at = at, place, at + 1
        elif want in (WILDCARD, segments[place]):
            at, place = at + 1, place + 1
        elif depth >= 0:
            reached += 1
            at, place = depth + 1, reached
        else:
            return False
    return all(want == ANY_DEPTH for want in wanted[at:])


def filled(pattern: str, name: str, template: str) -> str | None:
    """*template* with its ``*`` replaced in order by what those of *pattern* stand for in *name*; None on a miss."""
    segments = _split(name)
    captured = _match_run(_split(pattern), segments, 0)
    if captured is None or len(_split(pattern)) != len(segments):
        return None
    return ".".join(_fill(_split(template), captured))


def layer_number(name: str) -> int | None:
    """The number after the first segment ``layers`` of *name*, or None where there is none."""
    numbers = (number_of(number) for segment, number in itertools.pairwise(_split(name)) if segment == "layers")
    return next((number for number in numbers if number is not None), None)


def number_of(segment: str) -> int | None:
    """The number that a segment of a name is, or None; what no layer or expert can be numbered with is no number."""
    return int(segment) if segment.isdecimal() and len(segment) <= DIGITS else None
