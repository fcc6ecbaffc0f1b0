"""What the rules of a field do together: a :class:`Renamer`.

It applies its rules in order, each at most once, and is idempotent by construction: a renaming whose result the same
rules would move again does not happen. vLLM calls ``load_weights`` of a wrapper and then of the model inside it, so
every rule meets names that it has already renamed.

A checkpoint has a hundred thousand names and a few hundred shapes of name: layers and experts differ in their numbers
only. So what the rules make of a name is worked out once for each shape, as the pieces of the name that stay and what
comes between them. Rules compare whole segments, so a segment with digits that no rule speaks of may be any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ascend_hotfix.names import Exact, Layers, Prefix, Rule, literals, number_of, reorders

__all__ = ["Renamer", "Renaming"]

_ZEROED = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(256))
_NUMBERED = re.compile(r"[^.]*[0-9][^.]*")  # a segment with a digit in it
_FIRST = 0xE000  # the private characters, of which no ASCII name consists, stand for such segments
_MOST_SEGMENTS = 6400
_MOST_SHAPES = 1 << 16  # of names that come from nowhere; a checkpoint has some hundred


class Renaming(NamedTuple):
    """One name's way through a renamer: *new* (equal to *old* on a miss) and the rules that moved it."""

    old: str
    new: str
    rules: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)


class _Spoken(dict[str, str]):
    """Each segment with digits: itself if a rule speaks of it, and nothing if it may be any other; and a dot."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        super().__init__()
        self._layers = [rule for rule in rules if isinstance(rule, Layers)]
        written = {part for rule in rules for side in literals(rule) for part in side if _NUMBERED.match(part)}
        self._written, self._alike = written, {part.encode().translate(_ZEROED) for part in written}

    def __missing__(self, segment: str) -> str:
        found = segment in self._written
        if not found and self._layers and (number := number_of(segment)) is not None:
            found = any(one.start <= number < one.stop for one in self._layers)
        if len(self) >= _MOST_SHAPES:
            self.clear()
        self[segment] = f"{segment}." if found else "."
        return self[segment]

    def may_be(self, segment: str) -> bool:
        """Does a rule speak of *segment*, or of one that differs in digits only?"""
        return (bool(self._layers) and segment.isdecimal()) or segment.encode().translate(_ZEROED) in self._alike


class _Way(NamedTuple):
    """A new name of a shape, and the *rules* that give it.

    The old name up to *begin*, the *middle*, and the old name from *end* on. The middle is a text, or texts and what
    the old name has at a place.
    """

    begin: int
    middle: str | list[str | slice]
    end: int
    rules: tuple[int, ...]

    def of(self, name: str) -> str:
        middle = self.middle
        if not isinstance(middle, str):
            middle = "".join([one if isinstance(one, str) else name[one] for one in middle])
        return f"{name[: self.begin]}{middle}{name[self.end :]}"


class _Ways:
    """What one shape becomes by all rules together, if anything, and by each alone."""

    __slots__ = ("_alone", "_work_out", "together")

    def __init__(self, together: _Way | None, alone: Callable[[], Iterable[_Way]]) -> None:
        self.together = together
        self._work_out: Callable[[], Iterable[_Way]] | None = alone
        self._alone: tuple[_Way, ...] = ()

    @property
    def alone(self) -> tuple[_Way, ...]:
        """Worked out at first need: most are asked for the first alone."""
        work_out = self._work_out
        if work_out is not None:
            self._alone = tuple(work_out())
            self._work_out = None
        return self._alone


class _Split(NamedTuple):
    """A shape that the rules treat in several ways, by what stands in *spoken*: the *places* that a rule may speak of."""

    places: list[slice]
    spoken: list[slice]
    ways: dict[tuple[Any, ...], _Ways]


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
        self._reordered = any(map(reorders, rules))
        self._anchored, self._anywhere = _anchors(rules)
        self._spoken = _Spoken(rules)
        self._shapes: dict[bytes, _Ways | _Split] = {}
        self._quick: dict[bytes, tuple[Any, Any, Any, list[slice] | None]] = {}
        """By shape: the text to replace once, by what, and its entry of ``_used``; all None where nothing is replaced.
        Where a shape is split: its places, and the same for each text that the rules speak of there."""
        self._kept = 0
        self._used: list[list[Any]] = []
        """How often each way of ``_quick`` was gone, and its rules."""

    def rename(self, name: str) -> str:
        """The new name of *name*, counted."""
        try:
            old, new, used, places = self._quick[name.encode().translate(_ZEROED)]
            if places is not None:
                spoken = ""
                for place in places:
                    spoken += self._spoken[name[place]]
                old, new, used = new[spoken]
        except (KeyError, UnicodeEncodeError):
            return self.count(self.look(name))
        if old is None:
            return name
        used[0] += 1
        return name.replace(old, new, 1)

    @property
    def hits(self) -> list[int]:
        """How often each rule has moved a name that was counted."""
        hits = list(self._counted)
        for uses, rules in self._used:
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
        return self._candidates(name, ways) if ways.together is not None or ways.alone else ()

    @staticmethod
    def _candidates(name: str, ways: _Ways) -> Iterator[Renaming]:
        first = name
        if ways.together is not None:
            first = ways.together.of(name)
            yield Renaming(name, first, ways.together.rules)
        for way in ways.alone:
            new = way.of(name)
            if new != first:  # two ways of a shape are one where two numbers of the name are one
                yield Renaming(name, new, way.rules)

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
        todo = self._fitting(name)
        while todo:
            index = todo.pop()
            at_start = self._at_start[index]
            if at_start and held:
                continue
            moved = self.rules[index].apply(name)
            if moved != name:
                fired.append(index)
                name, held = moved, held or at_start
                todo = [one for one in self._fitting(name) if one > index]
        return name, tuple(fired)

    def _fitting(self, name: str) -> list[int]:
        """The rules that may have something to do with *name*, last first: a rule set of hundreds has a few for each."""
        found = self._anywhere.copy()
        for segment in name.split("."):
            if segment in self._anchored:
                found += self._anchored[segment]
        return sorted({*found}, reverse=True) if len(found) > 1 else found

    # --- shapes of name

    def _ways(self, name: str) -> _Ways:
        """What the rules make of *name*."""
        if not name.isascii() or name.count(".") >= _MOST_SEGMENTS:
            return self._worked_out(name, [])
        key = name.encode().translate(_ZEROED)
        shape = self._shapes.get(key)
        if shape is None:
            self._make_room()
            shape = self._shapes[key] = self._shape(name)
            self._quicken(key, name, shape)
        return shape if isinstance(shape, _Ways) else self._way_of_split(key, name, shape)

    def _way_of_split(self, key: bytes, name: str, shape: _Split) -> _Ways:
        spoken = "".join([self._spoken[name[place]] for place in shape.spoken])
        same = _first_of_each(name, shape.places) if self._reordered else ()
        found = shape.ways.get((spoken, same))
        if found is None:
            self._make_room()
            free = [
                (place, same[at] if same else at)
                for at, place in enumerate(shape.places)
                if self._spoken[name[place]] == "."
            ]
            found = shape.ways[spoken, same] = self._worked_out(name, free)
            if key in self._quick and (quick := self._quick_way(name, found.together)) is not None:
                self._quick[key][1][spoken] = quick
        return found

    def _shape(self, name: str) -> _Ways | _Split:
        """What is the same for all names that differ from *name* in digits only."""
        places = [slice(*found.span()) for found in _NUMBERED.finditer(name)]
        spoken = [place for place in places if self._spoken.may_be(name[place])]
        if spoken or (self._reordered and len(places) > 1):
            return _Split(places, spoken, {})
        return self._worked_out(name, [(place, at) for at, place in enumerate(places)])

    def _quicken(self, key: bytes, name: str, shape: _Ways | _Split) -> None:
        """Lets :meth:`rename` find what it needs of *shape* at once."""
        if isinstance(shape, _Split):
            if not self._reordered:
                self._quick[key] = (None, {}, None, shape.spoken)
        elif (quick := self._quick_way(name, shape.together)) is not None:
            self._quick[key] = (*quick, None)

    def _quick_way(self, name: str, way: _Way | None) -> tuple[Any, Any, Any] | None:
        if way is None:
            return None, None, None
        replaced = _replaced(name, way)
        if replaced is None:
            return None
        self._used.append([0, way.rules])
        return (*replaced, self._used[-1])

    def _make_room(self) -> None:
        """Counts what is kept, and forgets it where it is more than any checkpoint needs."""
        self._kept += 1
        if self._kept > _MOST_SHAPES:
            self._counted, self._kept = self.hits, 1
            for table in (self._used, self._shapes, self._quick):
                table.clear()

    def _worked_out(self, name: str, free: list[tuple[slice, int]]) -> _Ways:
        """What the rules make of every name like *name*, whatever stands in the *free* places; same number, same text."""
        text = list(name)
        for place, number in free:
            text[place] = chr(_FIRST + number) * (place.stop - place.start)
        old = "".join(text)
        places = {old[place]: place for place, _ in free}
        new, fired = self.applied(old)
        stable = bool(fired) and new != old and self.applied(new)[0] == new
        together = _way(old, new, places, fired) if stable else None
        return _Ways(together, lambda: self._alone(old, new if stable else old, places))

    def _alone(self, old: str, together: str, places: dict[str, slice]) -> Iterator[_Way]:
        """What each rule alone makes of *old*, where that is something else than all make of it *together*."""
        for index in reversed(self._fitting(old)):
            rule = self.rules[index]
            moved = rule.apply(old)
            if moved not in (old, together) and rule.apply(moved) == moved:
                yield _way(old, moved, places, (index,))


def _anchors(rules: tuple[Rule, ...]) -> tuple[dict[str, list[int]], list[int]]:
    """By segment the rules that do nothing to a name without it, and the rules for which there is no such segment."""
    common = Counter(part for rule in rules for part in set(literals(rule)[0]))
    anchored: dict[str, list[int]] = {}
    anywhere = []
    for index, rule in enumerate(rules):
        old = literals(rule)[0]
        if old:
            anchored.setdefault(min(old, key=common.__getitem__), []).append(index)
        else:
            anywhere.append(index)
    return anchored, anywhere


def _first_of_each(name: str, places: list[slice]) -> tuple[int, ...]:
    """For each of *places* the first that has the same text in *name*."""
    texts = [name[place] for place in places]
    return tuple([texts.index(text) for text in texts])


def _way(old: str, new: str, places: dict[str, slice], rules: tuple[int, ...]) -> _Way:
    """The way from *old* to *new*, in both of which the keys of *places* stand for what the name has there."""
    before, after = old.split(".") if old else [], new.split(".") if new else []
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] != after[-1 - at]), most - head)
    begin = len(".".join(before[:head]))
    end = len(old) - len(".".join(before[len(before) - tail :]))
    middle: list[str | slice] = []
    for at, segment in enumerate(after[head : len(after) - tail], head):
        middle += ["."] if at else []
        middle.append(places.get(segment, segment))
    if tail and len(after) > tail:
        middle.append(".")
    if all(isinstance(one, str) for one in middle):
        return _Way(begin, "".join(map(str, middle)), end, rules)
    return _Way(begin, middle, end, rules)


def _replaced(name: str, way: _Way) -> tuple[str, str] | None:
    """A text without digits and what replaces its first occurrence, where that is all that *way* does to *name*."""
    begin, end = way.begin, way.end
    while isinstance(way.middle, str):
        old = name[begin:end]
        if any(map(str.isdigit, old)):
            return None
        if name.find(old) == begin:
            return old, f"{name[begin : way.begin]}{way.middle}{name[way.end : end]}"
        if begin and not name[begin - 1].isdigit():
            begin -= 1
        elif end < len(name):
            end += 1
        else:
            return None
    return None
