"""Finds the few renaming rules that turn asked names into known ones, and says where the evidence is not enough.

A rule is only proposed between names that share what a reader would call the same thing: the same last segments, or a
renamed segment that has a word in common with the old one or the same children below it. Roles that merely have equal
shapes (``gate_proj`` and ``up_proj``, ``k_proj`` and ``v_proj``) are never taken for each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ascend_hotfix.doctor.drafts import IN_LIST, is_of_draft
from ascend_hotfix.names import Exact, Prefix, Rule, Segments, Suffix

__all__ = ["Alignment", "Choice", "align", "alike", "candidate_rules", "likeness", "nearest"]

MAX_NEIGHBOURS = 12
ROLES = frozenset(
    [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "qkv",
        "qkv_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "gate",
        "w1",
        "w2",
        "w3",
        "q_a_proj",
        "q_b_proj",
        "kv_a_proj_with_mqa",
        "kv_b_proj",
        "input_layernorm",
        "post_attention_layernorm",
        "q_norm",
        "k_norm",
        "norm1",
        "norm2",
        "norm",
        "q",
        "k",
        "v",
        "linear_fc1",
        "linear_fc2",
        "fc1",
        "fc2",
        "proj",
        "out_proj",
        "in_proj_qkvz",
        "in_proj_ba",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_a",
        "in_proj_b",
        "enorm",
        "hnorm",
        "eh_proj",
        "lm_head",
        "embed_tokens",
        "wq_a",
        "wq_b",
        "wkv",
        "wo_a",
        "wo_b",
        "wk",
        "weights_proj",
    ]
)
"""Segments that name a layer's role in its block: none may stand for another without a word in common."""


def _segments(name: str) -> list[str]:
    return name.split(".") if name else []


def _stars(segments: Iterable[str]) -> list[str]:
    return ["*" if part.isdigit() else part for part in segments]


def _integers(name: str) -> tuple[str, ...]:
    return tuple(part for part in _segments(name) if part.isdigit())


def _words(segment: str) -> set[str]:
    return {word for word in re.split(r"[_\-]|(?<=[a-z])(?=[A-Z])", segment.lower()) if len(word) > 1}


def alike(old: Collection[str], new: Collection[str]) -> bool:
    """Is there evidence in the words themselves that *new* renames *old*? Both are runs of segments.

    True where one holds all segments of the other (a segment inserted, dropped or moved), or where the segments
    that differ are as many on both sides and pairwise share a word, and no two different roles are involved.
    """
    one, other = [s for s in old if not s.isdigit()], [s for s in new if not s.isdigit()]
    left, right = list(one), list(other)
    for part in one:
        if part in right:
            left.remove(part)
            right.remove(part)
    if not left or not right:
        return not any(part in ROLES for part in left + right)
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if "inv" in _words(a) ^ _words(b):
            return False  # a scale and its inverse
        common = _words(a) & _words(b)
        if not common and not (len(min(a, b, key=len)) > 3 and (a in b or b in a)):
            return False
        if a in ROLES and b in ROLES:
            return False
    return True


@dataclass(frozen=True)
class Choice:
    """Several rules explain the same names and nothing tells which is right."""

    names: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass
class Alignment:
    """Rules in the order found, the names that each explains, names that none explains, and open choices."""

    rules: list[Rule] = field(default_factory=list)
    explained: dict[Rule, list[str]] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)


class _Index:
    """Known names by last segments and by the numbers in them."""

    def __init__(self, known: Iterable[str]) -> None:
        self._by: dict[tuple[str, object], list[str]] = {}
        for name in known:
            parts = _segments(name)
            if not parts:
                continue
            tail = parts[-1]
            numbers = _integers(name)
            for key in ((tail, numbers), (tail, None), ("", numbers), (".".join(_stars(parts[-2:])), "two")):
                self._by.setdefault(key, []).append(name)

    def near(self, name: str) -> list[str]:
        parts = _segments(name)
        if not parts:
            return []
        numbers = _integers(name)
        found = self._by.get((parts[-1], numbers), [])
        if not found:
            found = (
                self._by.get((".".join(_stars(parts[-2:])), "two"), [])[:64] or self._by.get((parts[-1], None), [])[:64]
            )
        if not found or not any(_tail(parts, _segments(one)) > 1 for one in found):
            found = found + self._by.get(("", numbers), [])[:4096]
        return sorted(dict.fromkeys(found), key=lambda one: _likeness(parts, _segments(one)), reverse=True)[
            :MAX_NEIGHBOURS
        ]


def _tail(one: list[str], other: list[str]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _head(one: list[str], other: list[str]) -> int:
    return _tail(one[::-1], other[::-1])


def _likeness(one: list[str], other: list[str]) -> tuple[int, int, int]:
    return len(set(one) & set(other)), _tail(one, other), -abs(len(one) - len(other))


def likeness(one: str, other: str) -> tuple[int, int, int]:
    """How much two names have in common, to be compared: segments, the length of the common end, the difference in length."""
    return _likeness(_segments(one), _segments(other))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names of *known* most like *name*, best first, at most three."""
    return _Index(known).near(name)[:3]


def candidate_rules(asked: str, known: str) -> list[Rule]:
    """Rules that turn *asked* into *known*, the most general first; none without evidence in the words."""
    a, k = _segments(asked), _segments(known)
    rules: list[Rule] = []

    def add(kind: type, old: list[str], new: list[str]) -> None:
        if old == new or (kind is not Exact and kind is not Prefix and not old):
            return
        if _stars(old).count("*") != _stars(new).count("*"):
            return
        try:
            rule = kind(".".join(_stars(old)), ".".join(_stars(new)))
        except (ValueError, TypeError):
            return
        if rule.apply(asked) == known and rule not in rules:
            rules.append(rule)

    tail = _tail(a, k)
    head = _head(a, k)
    head = min(head, len(a) - tail, len(k) - tail) if head + tail > min(len(a), len(k)) else head
    middle_a, middle_k = a[head : len(a) - tail], k[head : len(k) - tail]
    if not a:
        return [Exact("", known)] if known else []
    if not alike(middle_a, middle_k) and not (tail and _same_family(middle_a, middle_k)):
        return []
    if tail:
        if head == 0:
            ha, hk = a[: len(a) - tail], k[: len(k) - tail]
            if ha and not hk:
                add(Prefix, ha, hk)
            if not ha or not hk:
                # Anchored by one more segment, so that the rule does not move every name.
                ha, hk = a[: len(a) - tail + 1], k[: len(k) - tail + 1]
            add(Prefix, ha, hk)
        for context in (0, 1, 2):
            lo = max(0, head - context)
            add(Segments, a[lo : len(a) - tail], k[lo : len(k) - tail])
            if middle_a and middle_k and context == 0:
                continue
            hi = min(tail, context)
            if hi:
                add(Segments, a[head : len(a) - tail + hi], k[head : len(k) - tail + hi])
        if head:
            add(Prefix, a[: len(a) - tail], k[: len(k) - tail])
    else:
        for context in (0, 1):
            lo = max(0, head - context)
            add(Suffix, a[lo:], k[lo:])
    add(Exact, a, k)
    return rules


def _same_family(old: list[str], new: list[str]) -> bool:
    """One segment replaced by another, neither a role: its children are the evidence (``attn`` below ``mixer``)."""
    plain_old = [p for p in old if not p.isdigit()]
    plain_new = [p for p in new if not p.isdigit()]
    return len(plain_old) <= 2 and len(plain_new) <= 2 and not any(p in ROLES for p in (*plain_old, *plain_new))


def _cost(rule: Rule) -> tuple[int, int]:
    kind = {"Prefix": 0, "Segments": 1, "Suffix": 1, "Exact": 3}[type(rule).__name__]
    return kind, len(_segments(getattr(rule, "old", ""))) + len(_segments(getattr(rule, "new", "")))


def align(
    asked: Collection[str],
    known: Collection[str],
    *,
    taken: Collection[str] = (),
    fits: Callable[[str, str], bool] = lambda asked, known: True,
    same: Callable[[str, str], bool] = lambda one, other: one == other,
) -> Alignment:
    """The fewest rules that turn every name of *asked* into one of *known*.

    *fits* says whether an asked name can be that known one (shape, dtype, scheme). Names in *taken* are no targets.
    Two rules that lead one name to targets that are not the *same* are a choice, unless one target is more alike.
    """
    result = Alignment()
    if not asked:
        return result
    known_set = set(known)
    index = _Index(known_set)
    open_names = list(dict.fromkeys(asked))
    pool: dict[Rule, None] = {}
    for name in open_names:
        for near in index.near(name):
            if near in taken or not fits(name, near):
                continue
            for rule in candidate_rules(name, near):
                pool.setdefault(rule)

    def hits_of(rule: Rule) -> dict[str, str]:
        moved = {name: new for name in open_names if (new := rule.apply(name)) != name and new in known_set}
        return {name: new for name, new in moved.items() if new not in taken and fits(name, new)}

    rest = dict.fromkeys(open_names)
    for rule in _draft_lists(open_names, known_set):
        if hits := hits_of(rule):
            result.rules.append(rule)
            result.explained[rule] = list(hits)
            result.targets.update(hits)
            rest = {name: None for name in rest if name not in hits}
    reach: dict[Rule, dict[str, str]] = {}
    for rule in pool:
        hits = hits_of(rule)
        if hits and len(set(hits.values())) == len(hits):
            reach[rule] = hits
    while rest and reach:
        best = max(reach, key=lambda r: (_worth(reach[r], rest), *(-c for c in _cost(r))))
        gain = {name: new for name, new in reach[best].items() if name in rest}
        if not gain:
            break
        rivals = _rivals(best, gain, reach, same)
        if rivals:
            result.choices.append(Choice(tuple(gain), (best, *rivals)))
        else:
            result.rules.append(best)
            result.explained[best] = list(gain)
            result.targets.update(gain)
        for name in gain:
            rest.pop(name)
        reach.pop(best)
    result.unexplained = list(rest)
    return result


def _draft_lists(asked: Iterable[str], known: Iterable[str]) -> list[Prefix]:
    """Rules for draft layers that one side keeps in a list of their own and the other numbers on: one for each layer.

    A rule with a star cannot say that layer 0 is layer 61. The layers keep their order, so where the lists are of one
    length nothing is left open; of several such lists none is taken.
    """
    lists, others = _lists(asked), _lists(known)
    rules: list[Prefix] = []
    for old, numbers in lists.items():
        fitting = [
            (new, moved)
            for new, moved in others.items()
            if new != old
            and len(moved) == len(numbers)
            and moved != numbers  # the same numbers: a rule with a star is more general
            and is_of_draft(f"{old}.0.") != is_of_draft(f"{new}.0.")
        ]
        if len(fitting) == 1:
            new, moved = fitting[0]
            rules += [Prefix(f"{old}.{a}", f"{new}.{b}") for a, b in zip(numbers, moved, strict=True)]
    return rules


def _lists(names: Iterable[str]) -> dict[str, list[int]]:
    """The numbered lists that *names* are in, each with its numbers in order."""
    found: dict[str, set[int]] = {}
    for name in names:
        if in_list := IN_LIST.match(name):
            found.setdefault(in_list[1], set()).add(int(in_list[2]))
    return {head: sorted(numbers) for head, numbers in found.items()}


def _worth(hits: Mapping[str, str], rest: Mapping[str, None]) -> tuple[int, int]:
    names = [name for name in hits if name in rest]
    return len(names), sum(_likeness(_segments(n), _segments(hits[n]))[0] for n in names)


def _rivals(
    best: Rule, gain: Mapping[str, str], reach: Mapping[Rule, Mapping[str, str]], same: Callable[[str, str], bool]
) -> list[Rule]:
    """Rules that lead the names of *best* elsewhere with as much evidence."""

    def likeness(name: str, new: str) -> int:
        return _likeness(_segments(name), _segments(new))[0]

    found = []
    for rule, hits in reach.items():
        if rule == best or any(name not in hits for name in gain):
            continue
        differ = [name for name in gain if hits[name] != gain[name] and not same(hits[name], gain[name])]
        if differ and sum(likeness(n, hits[n]) for n in gain) >= sum(likeness(n, gain[n]) for n in gain):
            found.append(rule)
    return found
