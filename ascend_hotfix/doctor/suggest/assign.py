"""Which name template of one tree is which of the other: by structure first, then by what names say.

A template is a module's name with its numbers taken out, with one form for each of its numbers. Two templates may be
the same only where their forms fit on every number that both have. Among those that fit, evidence decides in this order:
the same end of the name, a naming convention that explains all siblings, and that no other fits (structure), unless siblings
belong elsewhere. What none decides stays open; order and likeness decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ascend_hotfix.doctor.findings import starred
from ascend_hotfix.doctor.suggest.lexicon import CONVENTIONS, Convention

__all__ = ["Assignment", "Open", "Template", "assign", "numbers_of", "templates"]

Numbers = tuple[str, ...]
Form = Hashable
Fits = Callable[[Any, Any, bool], bool]
"""May one of the first form be one of the second? The third: do they agree in everything that can be told?"""
MOST_WAYS = 24
"""So many assignments of an open group are counted out."""


def numbers_of(name: str) -> Numbers:
    """The numbers in *name*, in order."""
    return tuple(part for part in name.split(".") if part.isdigit())


@dataclass
class Template:
    """Modules that differ in numbers alone: *name* with stars, and the form of each."""

    name: str
    forms: dict[Numbers, Form] = field(default_factory=dict)

    @property
    def last(self) -> str:
        return next((part for part in reversed(self.name.split(".")) if part != "*"), "")

    @property
    def before_last(self) -> str:
        """The segment before the last, where that is no number; else a text that no segment is."""
        segments = self.name.split(".")
        return segments[-2] if len(segments) > 1 and segments[-2] != "*" else "."

    @property
    def parent(self) -> str:
        """What the siblings share; modules without a number are all siblings."""
        return self.name.rpartition(".")[0] if "*" in self.name else ""


def templates(forms: Mapping[str, Form]) -> dict[str, Template]:
    """The templates of modules with *forms*, by name."""
    found: dict[str, Template] = {}
    for name, form in forms.items():
        shape = starred(name)
        found.setdefault(shape, Template(shape)).forms[numbers_of(name)] = form
    return found


@dataclass(frozen=True)
class Open:
    """Templates that nothing tells apart: each of *ways* maps asked ones to those there."""

    ways: tuple[Mapping[str, str], ...]


@dataclass
class Assignment:
    """``pairs``: asked template to the one there; ``evidence``: what decided it; ``open``: groups of equal forms."""

    pairs: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)


def assign(asked: Mapping[str, Template], there: Mapping[str, Template], fits: Fits) -> Assignment:
    """The pairs of *asked* and *there* that the evidence leaves; see the module."""
    return _Search(asked, there, fits).run()


class _Search:
    def __init__(self, asked: Mapping[str, Template], there: Mapping[str, Template], fits: Fits) -> None:
        self.asked, self.there = asked, there
        self.strict: dict[str, set[str]] = {}
        self.loose: dict[str, set[str]] = {}
        for a in asked.values():
            for t in there.values():
                level = _level(a, t, fits)
                if level:
                    self.loose.setdefault(a.name, set()).add(t.name)
                if level == 2:
                    self.strict.setdefault(a.name, set()).add(t.name)
        self.found = Assignment()
        self.taken: dict[str, str] = {}  # there -> asked
        self.roles = _asked_roles(asked)

    def run(self) -> Assignment:
        steps = (self._by_name, self._by_inner_name, self._by_convention, self._by_structure)
        while any(step(graph) for graph in (self.strict, self.loose) for step in steps):
            pass  # what a step finds may settle what those before it could not
        self.found.open = list(self._open())
        return self.found

    # --- evidence ----------------------------------------------------------------------------------------------------

    def _left(self, graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
        """The edges of *graph* between templates that have no partner yet; siblings stay siblings where they can."""
        left = {a: {t for t in ts if t not in self.taken} for a, ts in graph.items() if a not in self.found.pairs}
        left = {a: ts for a, ts in left.items() if ts}
        to: dict[str, set[str]] = {}
        back: dict[str, set[str]] = {}
        for a, t in self.found.pairs.items():
            one, other = self.asked[a].parent, self.there[t].parent
            to.setdefault(one, set()).add(other)
            back.setdefault(other, set()).add(one)

        def together(a: str, t: str) -> bool:
            one, other = self.asked[a].parent, self.there[t].parent
            return other in to.get(one, ()) or one in back.get(other, ())

        beside = {(a, t) for a, ts in left.items() for t in ts if together(a, t)}
        sure_a, sure_t = {a for a, _ in beside}, {t for _, t in beside}
        narrowed = {
            a: {t for t in ts if (a, t) in beside or (a not in sure_a and t not in sure_t)} for a, ts in left.items()
        }
        return {a: ts for a, ts in narrowed.items() if ts}

    def _take(self, pairs: Mapping[str, str], evidence: str) -> bool:
        for a, t in pairs.items():
            self.found.pairs[a], self.found.evidence[a], self.taken[t] = t, evidence, a
        return bool(pairs)

    def _by_structure(self, graph: Mapping[str, set[str]]) -> bool:
        return self._take(self._only(self._left(graph)), "structure")

    def _only(self, left: Mapping[str, set[str]]) -> dict[str, str]:
        """Pairs of which each is the other's only one, and whose names do not speak against it."""
        seen: dict[str, list[str]] = {}
        for a, ts in left.items():
            for t in ts:
                seen.setdefault(t, []).append(a)
        return {
            a: t
            for a, ts in left.items()
            if len(ts) == 1 and len(seen[t := next(iter(ts))]) == 1 and not self._against(a, t)
        }

    def _against(self, a: str, t: str) -> bool:
        """Do names speak against it: two roles in every convention, or siblings that belong elsewhere?"""
        one, other = _known_roles(self.asked[a].last), _known_roles(self.there[t].last)
        if one and other:
            return one.isdisjoint(other)
        parents = self.asked[a].parent, self.there[t].parent
        known = {(self.asked[a].parent, self.there[t].parent) for a, t in self.found.pairs.items()}
        elsewhere = any(pair[0] == parents[0] or pair[1] == parents[1] for pair in known)
        return elsewhere and parents not in known

    def _by_name(self, graph: Mapping[str, set[str]]) -> bool:
        """The same end of the name, longer than that of any other that fits either."""
        return self._alike(graph, lambda a, t: a.last == t.last)

    def _by_inner_name(self, graph: Mapping[str, set[str]]) -> bool:
        """The end of one name stands before the end of the other: ``k_proj.base_layer``, ``gate.wg``."""
        return self._alike(graph, lambda a, t: a.last == t.before_last or a.before_last == t.last)

    def _alike(self, graph: Mapping[str, set[str]], same: Callable[[Template, Template], bool]) -> bool:
        left = {a: {t for t in ts if same(self.asked[a], self.there[t])} for a, ts in self._left(graph).items()}
        best = {a: found for a, ts in left.items() if (found := _longest(a, ts))}
        back: dict[str, set[str]] = {}
        for a, ts in left.items():
            for t in ts:
                back.setdefault(t, set()).add(a)
        return self._take({a: t for a, t in best.items() if _longest(t, back[t]) == a}, "name")

    def _by_convention(self, graph: Mapping[str, set[str]]) -> bool:
        """All siblings are called as one convention calls them, and every convention that does agrees."""
        left = self._left(graph)
        back: dict[str, set[str]] = {}
        for a, ts in left.items():
            for t in ts:
                back.setdefault(t, set()).add(a)
        families: dict[str, list[str]] = {}
        for t in self.there:
            families.setdefault(self.there[t].parent, []).append(t)
        took = False
        for family in families.values():
            if not any(t in back for t in family):
                continue
            answers = [found for one in CONVENTIONS if (found := self._read(one, family, back))]
            agreed = {t: {found.get(t, "") for found in answers} for found in answers for t in found}
            pairs = {a: t for t, held in agreed.items() if len(held) == 1 and (a := next(iter(held)))}
            took |= self._take(pairs, "convention")
        return took

    def _read(self, one: Convention, family: Iterable[str], back: Mapping[str, set[str]]) -> dict[str, str]:
        """What convention *one* makes of the siblings *family*: there -> asked, or empty where it allows for several.

        Nothing where it does not fit them all.
        """
        read: dict[str, str] = {}
        for t in family:
            last, told = self.there[t].last, one.roles.get(self.there[t].last, ())
            partner = self.taken.get(t)
            if partner is not None:
                role = self.roles.get(partner, "")
                if self.asked[partner].last == last or not role or role in told:
                    continue
                return {}
            if t not in back:
                continue
            held = [a for a in back[t] if self.roles.get(a) in told]
            if not held:
                return {}
            read[t] = held[0] if len(held) == 1 else ""
        taken = [a for a in read.values() if a]
        return read if len(set(taken)) == len(taken) else {}

    # --- what is left ------------------------------------------------------------------------------------------------

    def _open(self) -> Iterator[Open]:
        """Groups of what fits each other, with the ways to assign them; groups that are called alike have the same ways."""
        left = self._left(self.loose)
        groups: list[tuple[set[str], set[str]]] = []
        for a, ts in left.items():
            one, other = {a}, set(ts)
            for group in [group for group in groups if group[1] & other]:
                one |= group[0]
                other |= group[1]
                groups.remove(group)
            groups.append((one, other))
        alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[dict[str, str]]] = {}
        for one, other in groups:
            ways = list(_ways(sorted(one), left, sorted(other)))
            key = tuple(sorted(self.asked[a].last for a in one)), tuple(sorted(self.there[t].last for t in other))
            if not ways:
                continue
            if key not in alike:
                alike[key] = ways
                continue
            by_last = {self._lasts(way): way for way in ways}
            alike[key] = [{**way, **by_last[same]} for way in alike[key] if (same := self._lasts(way)) in by_last]
        for ways in alike.values():
            if ways:
                yield Open(tuple(ways))

    def _lasts(self, way: Mapping[str, str]) -> frozenset[tuple[str, str]]:
        return frozenset((self.asked[a].last, self.there[t].last) for a, t in way.items())


def _level(a: Template, t: Template, fits: Fits) -> int:
    """0: cannot be the same; 1: may be; 2: agree in numbers and forms."""
    common = a.forms.keys() & t.forms.keys()
    if not common or common not in (a.forms.keys(), t.forms.keys()):
        return 0  # layers that are counted otherwise: the same numbers are not the same layers
    pairs = {(a.forms[n], t.forms[n]) for n in common}
    if not all(fits(one, other, False) for one, other in pairs):
        return 0
    exact = a.forms.keys() == t.forms.keys() and all(fits(one, other, True) for one, other in pairs)
    return 2 if exact else 1


def _longest(name: str, others: Iterable[str]) -> str:
    """The one of *others* whose end is the longest that *name* has too; empty where two are."""
    ranked = sorted(((_likeness(name, other), other) for other in others), reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return ""
    return ranked[0][1]


def _likeness(one: str, other: str) -> tuple[int, int]:
    """How many last segments are the same, and how many at all."""
    left, right = one.split("."), other.split(".")
    tail = 0
    while tail < min(len(left), len(right)) and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    return tail, len(set(left) & set(right))


def _known_roles(segment: str) -> frozenset[str]:
    """The roles that any convention gives *segment*."""
    return frozenset(role for one in CONVENTIONS for role in one.roles.get(segment, ()))


def _asked_roles(asked: Mapping[str, Template]) -> dict[str, str]:
    """The role of each asked template, as vLLM's loaders call it: by the usual names, or by one convention for all siblings."""
    families: dict[str, list[Template]] = {}
    for one in asked.values():
        families.setdefault(one.parent, []).append(one)
    usual, found = CONVENTIONS[0].roles, {}
    for family in families.values():
        strange = [one for one in family if one.last not in usual]
        for one in family:
            if told := usual.get(one.last):
                found[one.name] = told[0]
        held = [c for c in CONVENTIONS[1:] if any(one.last in c.roles for one in strange)]
        most = max((sum(one.last in c.roles for one in strange) for c in held), default=0)
        held = [c for c in held if sum(one.last in c.roles for one in strange) == most]
        for one in strange:
            roles = {role for c in held for role in c.roles.get(one.last, ("",))}
            if len(roles) == 1 and "" not in roles:
                found[one.name] = roles.pop()
    return found


def _ways(asked: list[str], edges: Mapping[str, set[str]], there: list[str]) -> Iterator[dict[str, str]]:
    """Every assignment of *asked* to *there* along *edges* that leaves as few open as can be, bounded."""
    want = min(len(asked), len(there))

    def grow(at: int, held: dict[str, str]) -> Iterator[dict[str, str]]:
        if len(held) + len(asked) - at < want:
            return
        if at == len(asked):
            yield dict(held)
            return
        for t in there:
            if t in edges[asked[at]] and t not in held.values():
                yield from grow(at + 1, {**held, asked[at]: t})
        if len(asked) > want:
            yield from grow(at + 1, held)

    yield from islice(grow(0, {}), MOST_WAYS)
