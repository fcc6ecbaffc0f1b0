"""Dot-anchored renaming of module, parameter and checkpoint names.

A name is a run of segments joined by dots. Rules match whole segments only, so ``mlp.gate`` never
matches ``mlp.gate_proj`` (vllm-ascend 0.16 to 0.29 does, by a bare ``startswith``). What rules do together is in
:mod:`ascend_hotfix.renamer`.

This module imports nothing of ours.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = [
    "Exact",
    "Layers",
    "Prefix",
    "Refusal",
    "Rule",
    "Segments",
    "Suffix",
    "filled",
    "gathering",
    "layer_number",
    "literals",
    "locate",
    "matches",
    "number_of",
    "refuse",
    "reorders",
]

WILDCARD = "*"
ANY_DEPTH = "**"
_NUMBERED = re.compile(r"\*[1-9]")
MOST_MOVED = 1 << 30
DIGITS = 9  # of a number in a name; a damaged name may hold thousands


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
    for place, want in enumerate(pattern, start):
        if want == WILDCARD:
            captured.append(segments[place])
        elif want != segments[place]:
            return None
    return captured


def _fill(pattern: list[str], captured: list[str], order: Iterable[int] | None = None) -> list[str]:
    """*pattern* with its ``*`` replaced by *captured*, in order or in the *order* given."""
    supply = iter(captured if order is None else [captured[place] for place in order])
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


def _whole_segments(rule: object, label: str, value: str, *, numbered: bool = False) -> None:
    _require(rule, label, value, str, "a string")
    if odd := odd_characters(value):
        raise ValueError(f"{rule!r}: {label} has {odd[0]!r} in it, which no name has")
    if any(not part for part in _split(value)):
        raise ValueError(
            f"{rule!r}: {label} has an empty segment; write whole segments without outer dots, "
            f"such as {value.strip('.')!r}"
        )
    for part in _split(value):
        if WILDCARD in part and part not in (WILDCARD, ANY_DEPTH) and not (numbered and _NUMBERED.fullmatch(part)):
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
    """A rule that replaces a run of segments.

    Rules match whole segments. ``*`` stands for one, and is carried over in order. In *new*, ``*1`` is what the first ``*`` of
    *old* stands for, ``*2`` the second: ``Segments("h.*.e.*", "experts.*2.layer.*1")``. Number all of them, or none.
    """

    old: str
    new: str

    def _validate(self) -> None:
        _whole_segments(self, "old", self.old)
        _whole_segments(self, "new", self.new, numbered=True)
        if self.old == self.new:
            raise ValueError(f"{self!r} changes nothing")
        if ANY_DEPTH in _split(self.old) + _split(self.new):
            raise ValueError(f"{self!r}: '**' is for patterns (types, drop, fill); a rule takes '*'")
        object.__setattr__(self, "_order", self._stars())
        object.__setattr__(self, "_old", _split(self.old))
        object.__setattr__(self, "_new", [WILDCARD if WILDCARD in part else part for part in _split(self.new)])
        if self._old == self._new and self._order == list(range(len(self._order))):  # type: ignore[attr-defined]
            raise ValueError(f"{self!r} changes nothing")
        if self._is_covered():
            raise ValueError(
                f"{self!r} would never fire: its result has the form of what it renames, so each name passes for renamed; "
                "keep a segment that tells them apart, as in Segments('experts.up_proj.*', 'experts.*.up_proj')"
            )

    def _is_covered(self) -> bool:
        """Does every name that *old* fits look as if it were renamed already?"""
        old: list[str] = self._old  # type: ignore[attr-defined]
        new: list[str] = self._new  # type: ignore[attr-defined]
        return len(old) == len(new) and all(two in (WILDCARD, one) for one, two in zip(old, new, strict=True))

    def _stars(self) -> list[int]:
        """For each ``*`` of *new* the place of the ``*`` of *old* that it stands for."""
        held = _split(self.old).count(WILDCARD)
        stars = [part for part in _split(self.new) if WILDCARD in part]
        numbered = [int(part[1:]) - 1 for part in stars if part != WILDCARD]
        if numbered and len(numbered) < len(stars):
            raise ValueError(f"{self!r}: new has numbered and plain '*'; number them all, or none")
        if len(stars) - len(numbered) > held:
            raise ValueError(f"{self!r}: new has more '*' than old")
        if max(numbered, default=-1) >= held:
            raise ValueError(f"{self!r}: new has '*{max(numbered) + 1}', but old has {held} '*'")
        return numbered or list(range(len(stars)))

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
            moved = _fill(new, captured, self._order)  # type: ignore[attr-defined]
            return ".".join(segments[:start] + moved + segments[start + len(old) :])
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
        number = number_of(rest[len(head)]) if rest[: len(head)] == head and len(rest) > len(head) else None
        if number is None or not self.start <= number < self.stop:
            return name
        return ".".join([*head, str(number + self.by), *rest[len(head) + 1 :]])


Rule = Exact | Prefix | Segments | Suffix | Layers


def literals(rule: Rule) -> tuple[list[str], list[str]]:
    """The segments that *rule* asks for by name, and those that it writes."""
    if isinstance(rule, Layers):
        return _split(rule.prefix), []
    old, new = ([part for part in _split(side) if WILDCARD not in part] for side in (rule.old, rule.new))
    return old, new


def reorders(rule: Rule) -> bool:
    """Does *rule* write what its ``*`` stand for in another order, or more than once?"""
    return not isinstance(rule, Layers) and any(map(_NUMBERED.fullmatch, _split(rule.new)))


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
    return int(segment) if len(segment) <= DIGITS and segment.isascii() and segment.isdecimal() else None
