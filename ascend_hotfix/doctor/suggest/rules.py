"""From pairs of names to the fewest anchored rules that say them all.

What differs between two templates becomes a rule about those segments, with as much around them as tells it from other
places. All rules together are then applied as the seams apply them; where that does not give every pair, each pair has a
rule of its own, which no other rule meets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ascend_hotfix.names import Exact, Prefix, Rule, Segments
from ascend_hotfix.renamer import Renamer

__all__ = ["renames"]

Run = tuple[str, ...]
MOST_MERGES = 4


class _Edit(NamedTuple):
    """At *start* of *name*, *old* is written as *new*."""

    name: Run
    start: int
    old: Run
    new: Run

    @property
    def stop(self) -> int:
        return self.start + len(self.old)


def renames(pairs: Mapping[str, str], others: Iterable[str] = (), *, whole: bool = False) -> list[Rule]:
    """Rules that turn each template of *pairs* into its value, as few as do it.

    No rule gives any of the templates *others* a name that a value of *pairs* is. *whole*: the rules are about whole
    module names (``lookup``), not about what tensor names begin with.
    """
    moved = {old: new for old, new in sorted(pairs.items()) if old != new}
    for rules in (_factored(moved), _fronts(moved)):
        if rules is not None and _gives(rules, moved) and not _takes(rules, others, pairs):
            return rules
    kind = Exact if whole else Prefix
    ordered = sorted(moved.items(), key=lambda pair: -pair[0].count("."))
    own: list[Rule] = [kind(old, new) for old, new in ordered]
    return (
        own if _gives(own, moved) else [kind(old, new) for old, new in ordered if _gives([kind(old, new)], {old: new})]
    )


def _fronts(pairs: Mapping[str, str]) -> list[Rule]:
    """Rules about what names begin with, up to where both go on alike."""
    found: dict[tuple[str, str], None] = {}
    for old, new in pairs.items():
        one, other = old.split("."), new.split(".")
        while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
            one.pop()
            other.pop()
        found[".".join(one), ".".join(other)] = None
    return [Prefix(old, new) for old, new in sorted(found, key=lambda pair: -pair[0].count("."))]


def _gives(rules: Iterable[Rule], pairs: Mapping[str, str]) -> bool:
    """Do *rules* turn every template of *pairs*, with numbers in it, into its value and let it stay so?"""
    renamer = Renamer(tuple(rules))
    return all(renamer.look(_numbered(old)).new == _numbered(new) for old, new in pairs.items())


def _takes(rules: Collection[Rule], others: Iterable[str], pairs: Mapping[str, str]) -> bool:
    """Does any of *rules*, or all of them, call one of *others* as a value of *pairs* is called?"""
    held, renamer = {_numbered(new) for new in pairs.values()}, Renamer(tuple(rules))
    strange = [_numbered(name) for name in others if name not in pairs]
    return any(moved.new in held for name in strange for moved in renamer.candidates(name))


def _numbered(template: str) -> str:
    """A name of *template*; the numbers are told apart, so that none takes the place of another."""
    numbers = iter(range(7, 7 + template.count("*")))
    return ".".join(str(next(numbers)) if part == "*" else part for part in template.split("."))


def _factored(pairs: Mapping[str, str]) -> list[Rule] | None:
    """Rules about what differs alone; None where one cannot be told from another place."""
    edits = [edit for old, new in pairs.items() for edit in _edits(tuple(old.split(".")), tuple(new.split(".")))]
    names = [tuple(old.split(".")) for old in pairs]
    chosen = _chosen(edits, names)
    for _ in range(MOST_MERGES):
        merged = _merged(edits, chosen or {})
        if merged == edits:
            break
        edits, chosen = merged, _chosen(merged, names)
    if chosen is None:
        return None
    held = chosen
    # what needs to see the old names around it comes first
    return sorted(held, key=lambda rule: (-held[rule], isinstance(rule, Prefix)))


def _chosen(edits: Iterable[_Edit], names: Collection[Run]) -> dict[Rule, int] | None:
    """A rule for each of *edits*, with the number of segments around what it changes."""
    chosen: dict[Rule, int] = {}
    for edit in edits:
        if any(_covers(rule, edit) for rule in chosen):
            continue
        rule = _anchored(edit, edits, names)
        if rule is None:
            return None
        chosen[rule] = len(getattr(rule, "old", "").split(".")) - len(edit.old)
    return chosen


def _merged(edits: list[_Edit], chosen: Iterable[Rule]) -> list[_Edit]:
    """*edits*, those as one that are at the start of one name by rules of which only the first would act."""
    fronts = [rule for rule in chosen if isinstance(rule, Prefix)]
    by_name: dict[Run, list[_Edit]] = {}
    for edit in edits:
        by_name.setdefault(edit.name, []).append(edit)
    found = []
    for name, held in by_name.items():
        front = [edit for edit in held if any(_covers(rule, edit) for rule in fronts)]
        found += [edit for edit in held if edit not in front]
        if len(front) > 1:
            new: list[str] = []
            for one, following in zip(front, [*front[1:], None], strict=True):
                new += [*one.new, *(name[one.stop : following.start] if following else ())]
            front = [_Edit(name, front[0].start, name[front[0].start : front[-1].stop], tuple(new))]
        found += front
    return found if len(found) < len(edits) else edits


def _edits(old: Run, new: Run) -> list[_Edit]:
    """The runs of *old* that *new* writes otherwise, whatever both have in order taken as the same; stars are."""
    size = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            weight = 100 if old[i] == "*" else 1
            size[i][j] = max(size[i + 1][j], size[i][j + 1])
            if old[i] == new[j]:
                size[i][j] = max(size[i][j], size[i + 1][j + 1] + weight)
    found, i, j, start, run = list[_Edit](), 0, 0, 0, list[str]()

    def close() -> None:
        if len(run) == i - start:  # segment by segment, so that what is renamed everywhere is one rule
            found.extend(_Edit(old, start + at, (old[start + at],), (one,)) for at, one in enumerate(run))
        elif start < i or run:
            found.append(_Edit(old, start, old[start:i], tuple(run)))

    while i < len(old) and j < len(new):
        if old[i] == new[j] and size[i][j] == size[i + 1][j + 1] + (100 if old[i] == "*" else 1):
            close()
            i, j = i + 1, j + 1
            start, run = i, []
        elif size[i + 1][j] >= size[i][j + 1]:
            i += 1
        else:
            run.append(new[j])
            j += 1
    i = len(old)
    run += new[j:]
    close()
    return found


def _anchored(edit: _Edit, edits: Iterable[_Edit], names: Iterable[Run]) -> Rule | None:
    """The shortest rule that makes *edit*, and makes no other change in any of *names*."""
    last = len(edit.name)
    for around in range(last + 1):
        for left in range(around, -1, -1):
            lo, hi = edit.start - left, edit.stop + around - left
            if lo < 0 or hi > last or lo == hi:
                continue
            old, new = edit.name[lo:hi], (*edit.name[lo : edit.start], *edit.new, *edit.name[edit.stop : hi])
            kinds: list[type[Prefix] | type[Segments]] = [Prefix, Segments] if lo == 0 else [Segments]
            for kind in kinds:
                if not new and kind is Segments and lo:
                    continue
                if old and all(part == "*" for part in old):
                    continue
                rule = _made(kind, old, new)
                if rule is not None and all(_is_right(rule, name, edits) for name in names):
                    return rule
    return None


def _made(kind: type[Prefix] | type[Segments], old: Run, new: Run) -> Rule | None:
    if old.count("*") != new.count("*"):
        return None
    try:
        return kind(".".join(old), ".".join(new))
    except (TypeError, ValueError):
        return None


def _at(rule: Rule, name: Run) -> int:
    """Where in *name* *rule* acts, or -1."""
    old = tuple(getattr(rule, "old", "").split("."))
    starts = (0,) if isinstance(rule, Prefix) else range(len(name) - len(old) + 1)
    for start in starts:
        run = name[start : start + len(old)]
        if len(run) == len(old) and all(want in (part, "*") or part == "*" == want for want, part in zip(old, run)):
            return start
    return -1


def _is_right(rule: Rule, name: Run, edits: Iterable[_Edit]) -> bool:
    """Does *rule* leave *name* alone, or make one of its *edits* and no other?"""
    start = _at(rule, name)
    if start < 0:
        return True
    return any(edit.name == name and _covers(rule, edit) for edit in edits)


def _covers(rule: Rule, edit: _Edit) -> bool:
    """Does *rule* make *edit*, and nothing else, in its name?"""
    start = _at(rule, edit.name)
    if start < 0:
        return False
    old, new = tuple(getattr(rule, "old", "").split(".")), tuple(filter(None, getattr(rule, "new", "").split(".")))
    lo, hi = edit.start - start, edit.stop - start
    return lo >= 0 and hi <= len(old) and (*old[:lo], *edit.new, *old[hi:]) == new
