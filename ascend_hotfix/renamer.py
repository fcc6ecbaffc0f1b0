"""What the rules of a field do together: a :class:`Renamer`.

It applies its rules in order, each at most once, and is idempotent by construction: a renaming whose result the same
rules would move again does not happen. vLLM calls ``load_weights`` of a wrapper and then of the model inside it, so
every rule meets names that it has already renamed.

A checkpoint has a hundred thousand names and a few hundred shapes of name: layers and experts differ in their numbers
only. So what the rules make of a name is worked out once for each shape, as the pieces of the name that stay and what
comes between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from ascend_hotfix.names import Exact, Layers, Prefix, Rule, number_of

__all__ = ["Renamer", "Renaming"]

_ZEROED = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(256))
_DIGITS = re.compile(r"[0-9]+")
_FIRST = 0xE000  # the private characters, of which no name consists, stand for the numbers of a shape
_MOST_NUMBERS = 6400


class Renaming(NamedTuple):
    """One name's way through a renamer: *new* (equal to *old* on a miss) and the rules that moved it."""

    old: str
    new: str
    rules: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)


class _Way(NamedTuple):
    """A new name of a shape, and the *rules* that give it.

    The old name up to *begin*; the *middle*, text and (first, last) of the old name's numbers; the old name from *end* on.
    """

    begin: int
    middle: tuple[str | tuple[int, int], ...]
    end: int
    rules: tuple[int, ...]

    def of(self, name: str) -> str:
        middle = [one if isinstance(one, str) else name[one[0] : one[1]] for one in self.middle]
        return f"{name[: self.begin]}{''.join(middle)}{name[self.end :]}"


class _Ways(NamedTuple):
    """What one shape becomes by all rules together, if anything, and by each alone."""

    together: _Way | None
    alone: tuple[_Way, ...]


class _Split(NamedTuple):
    """A shape of which some digits matter: *words* (``w1`` is no ``w2``) and numbers that rules speak of."""

    words: tuple[tuple[int, int], ...]
    numbers: tuple[tuple[int, int], ...]
    ways: dict[tuple[str, ...], _Ways]


class Renamer:
    """Rules in order, each at most once, and a count of the hits of each.

    Of the rules that hold on to the start of a name (Exact, Prefix, Layers) only the first that fits
    moves it; Segments and Suffix add up.

    ``rename(rename(x)) == rename(x)`` for every rule set and every name: where a second pass would
    change the result of the first, the name is left alone.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._counted = [0] * len(rules)
        self._at_start = [isinstance(rule, Exact | Prefix | Layers) for rule in rules]
        self._layers = [rule for rule in rules if isinstance(rule, Layers)]
        written = ".".join(f"{rule.old}.{rule.new}" for rule in rules if not isinstance(rule, Layers))
        self._written = {part for part in written.split(".") if part.isdecimal()}
        self._shapes: dict[bytes, _Ways | _Split] = {}
        self._plain: dict[bytes, list[Any]] = {}  # rules, begin, text, end as in _Way, and how often it was used

    def rename(self, name: str) -> str:
        """The new name of *name*, counted."""
        try:
            plain = self._plain[name.encode().translate(_ZEROED)]
        except (KeyError, UnicodeEncodeError):
            return self.count(self.look(name))
        rules, begin, text, end, _ = plain
        if not rules:
            return name
        plain[4] += 1
        return f"{name[:begin]}{text}{name[end:]}"

    @property
    def hits(self) -> list[int]:
        """How often each rule has moved a name that was counted."""
        hits = list(self._counted)
        for rules, *_, uses in self._plain.values():
            for index in rules:
                hits[index] += uses
        return hits

    def look(self, name: str) -> Renaming:
        """The renaming of *name*, not counted."""
        together = self._ways(name).together
        return Renaming(name, name) if together is None else Renaming(name, together.of(name), together.rules)

    def count(self, renaming: Renaming) -> str:
        """Counts *renaming* as used and gives its result."""
        for index in renaming.rules:
            self._counted[index] += 1
        return renaming.new

    def candidates(self, name: str) -> Iterable[Renaming]:
        """All rules together first, then each alone: what *name* may be called on the other side."""
        ways = self._ways(name)
        if ways.together is not None:
            yield Renaming(name, ways.together.of(name), ways.together.rules)
        for way in ways.alone:
            yield Renaming(name, way.of(name), way.rules)

    def resolve(self, name: str, known: Callable[[str], bool]) -> Renaming:
        """Turns a miss into a hit: the first candidate that is *known*, or *name* if that is known itself."""
        if not known(name):
            for candidate in self.candidates(name):
                if known(candidate.new):
                    return candidate
        return Renaming(name, name)

    def applied(self, name: str) -> tuple[str, tuple[int, ...]]:
        """*name* with all rules applied in order; of those that hold on to its start, only the first that fits."""
        fired: list[int] = []
        held = False
        for index, rule in enumerate(self.rules):
            at_start = self._at_start[index]
            if at_start and held:
                continue
            moved = rule.apply(name)
            if moved != name:
                fired.append(index)
                name, held = moved, held or at_start
        return name, tuple(fired)

    # --- shapes of name

    def _ways(self, name: str) -> _Ways:
        """What the rules make of *name*."""
        if not name.isascii():
            return self._worked_out(name, [])
        key = name.encode().translate(_ZEROED)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._shape(name)
            if isinstance(shape, _Ways):
                self._remember(key, shape.together)
        if isinstance(shape, _Ways):
            return shape
        held = [name[first:last] for first, last in shape.words]
        held += [one if self._is_kept(one := name[first:last]) else "" for first, last in shape.numbers]
        found = shape.ways.get(tuple(held))
        if found is None:
            free = [one for one in shape.numbers if not self._is_kept(name[one[0] : one[1]])]
            found = shape.ways[tuple(held)] = self._worked_out(name, free)
        return found

    def _remember(self, key: bytes, way: _Way | None) -> None:
        """Keeps for :meth:`rename` what takes no more than one text in place of a piece of the name."""
        if way is None:
            self._plain[key] = [(), 0, "", 0, 0]
        elif all(isinstance(one, str) for one in way.middle):
            self._plain[key] = [way.rules, way.begin, "".join(map(str, way.middle)), way.end, 0]

    def _shape(self, name: str) -> _Ways | _Split:
        words: list[tuple[int, int]] = []
        numbers: list[tuple[int, int]] = []
        for found in _DIGITS.finditer(name):
            first, last = found.span()
            whole = name[first - 1 : first] in ("", ".") and name[last : last + 1] in ("", ".")
            (numbers if whole and len(numbers) < _MOST_NUMBERS else words).append((first, last))
        if words or self._written or self._layers:
            return _Split(tuple(words), tuple(numbers), {})
        return self._worked_out(name, numbers)

    def _is_kept(self, number: str) -> bool:
        """Do the rules speak of this very *number*?"""
        if number in self._written:
            return True
        value = number_of(number) if self._layers else None
        return value is not None and any(rule.start <= value < rule.stop for rule in self._layers)

    def _worked_out(self, name: str, numbers: list[tuple[int, int]]) -> _Ways:
        """What the rules make of every name like *name* that differs in these *numbers* only."""
        text = list(name)
        for place, (first, last) in enumerate(numbers):
            text[first:last] = chr(_FIRST + place) * (last - first)
        old = "".join(text)
        new, fired = self.applied(old)
        stable = bool(fired) and new != old and self.applied(new)[0] == new
        together = _way(old, new, numbers, fired) if stable else None
        alone = []
        for index, rule in enumerate(self.rules):
            moved = rule.apply(old)
            if moved not in (old, new if stable else old) and rule.apply(moved) == moved:
                alone.append(_way(old, moved, numbers, (index,)))
        return _Ways(together, tuple(alone))


def _way(old: str, new: str, numbers: list[tuple[int, int]], rules: tuple[int, ...]) -> _Way:
    """The way from *old* to *new*, in both of which private characters stand for *numbers*."""
    most = min(len(old), len(new))
    begin = next((at for at in range(most) if old[at] != new[at]), most)
    rest = most - begin
    same = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    middle = [
        numbers[place] if place >= 0 else "".join(run) for place, run in groupby(new[begin : len(new) - same], _place)
    ]
    return _Way(begin, tuple(middle), len(old) - same, rules)


def _place(character: str) -> int:
    """Of which number *character* is a part, -1 for other characters."""
    place = ord(character) - _FIRST
    return place if 0 <= place < _MOST_NUMBERS else -1
