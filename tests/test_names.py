"""The laws of renaming, each on its own."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ascend_hotfix import renamer as renamer_module
from ascend_hotfix.names import Exact, Layers, Prefix, Segments, Suffix, layer_number, matches
from ascend_hotfix.renamer import Renamer, Renaming

# Few segments that are parts of each other, so that rules meet, overlap and almost match.
SEGMENT = st.sampled_from(["model", "language_model", "layers", "mlp", "gate", "gate_proj", "experts", "0", "1", "12"])
NAME = st.lists(SEGMENT, max_size=6).map(".".join)
PART = st.lists(SEGMENT | st.just("*"), max_size=3).map(".".join)
NEW = PART | st.lists(SEGMENT | st.sampled_from(["*1", "*2"]), max_size=3).map(".".join)


def made(kind: type, *arguments: st.SearchStrategy) -> st.SearchStrategy:
    """Rules of *kind*, without the arguments that it refuses."""

    def make(drawn: tuple) -> object:
        try:
            return kind(*drawn)
        except ValueError:
            return None

    return st.tuples(*arguments).map(make).filter(lambda rule: rule is not None)


RUN = st.one_of(*(made(kind, PART, NEW) for kind in (Exact, Prefix, Segments, Suffix)))
LAYERS = made(Layers, NAME, st.integers(-12, 40), st.integers(0, 3), st.integers(0, 20))
RULE = RUN | LAYERS
RULES = st.lists(RULE, max_size=5).map(tuple)
KNOWN = st.sets(NAME, max_size=30)


# Idempotent: a wrapper's load_weights and its inner model's both see every name


@given(RULES, NAME)
@example((Segments("model", "model.language_model"),), "model.layers")
@example((Segments("mlp", "gate"),), "mlp.mlp")
@example((Prefix("a", "b"), Prefix("b", "a")), "a.x")
def test_renaming_twice_is_renaming_once(rules, name):
    renamer = Renamer(rules)
    once = renamer.rename(name)
    assert renamer.rename(once) == once


@given(RULES, NAME)
def test_a_name_that_a_second_pass_would_move_again_is_left_alone(rules, name):
    renamer = Renamer(rules)
    new, _ = renamer.applied(name)
    assert renamer.look(name).new == (new if renamer.applied(new)[0] == new else name)


def test_a_rule_whose_result_contains_what_it_looks_for_is_applied_once():
    renamer = Renamer((Segments("experts", "experts.routed_experts"),))
    new = renamer.rename("layers.0.experts.w13_weight")
    assert (new, renamer.rename(new)) == ("layers.0.experts.routed_experts.w13_weight",) * 2


# Dot-anchored: vllm-ascend 0.16 to 0.29 compares with a bare startswith


@given(RUN, NAME)
def test_a_rule_replaces_a_run_of_whole_segments_and_keeps_the_rest(rule, name):
    new = rule.apply(name)
    if new != name:
        assert new in replacements(rule, name)


@given(RUN, NAME)
def test_a_rule_replaces_only_where_its_kind_may(rule, name):
    old, segments = rule.old.split(".") if rule.old else [], name.split(".") if name else []
    places = {
        Exact: {0} if len(old) == len(segments) else set(),
        Prefix: {0},
        Suffix: {len(segments) - len(old)},
        Segments: set(range(len(segments) + 1)),
    }[type(rule)]
    new = rule.apply(name)
    assert new == name or new in replacements(rule, name, places)


def replacements(rule: Exact | Prefix | Segments | Suffix, name: str, places: set[int] | None = None) -> set[str]:
    """What *rule* can make of *name*, at any place, found with a regular expression over the dotted text."""
    segments, length = name.split(".") if name else [], len(rule.old.split(".")) if rule.old else 0
    found = set()
    for start in range(len(segments) - length + 1):
        run = ".".join(segments[start : start + length])
        match = re.fullmatch(re.escape(rule.old).replace(r"\*", r"([^.]+)"), run)
        if match and (places is None or start in places):
            held, supply = match.groups(), iter(match.groups())
            new = re.sub(r"\*([12])?", lambda star: held[int(star[1]) - 1] if star[1] else next(supply), rule.new)  # noqa: B023
            found.add(".".join(part for part in (*segments[:start], new, *segments[start + length :]) if part))
    return found


@pytest.mark.parametrize(
    ("rule", "untouched"),
    [
        (Prefix("mlp.gate", "x"), "mlp.gate_proj"),
        (Suffix("proj", "x"), "mlp.gate_proj"),
        (Segments("model", "x"), "language_model.models"),
        (Exact("model", "x"), "model.layers"),
        (Layers("layers", 2, stop=2), "layers_extra.1"),
        (Layers("layers", 2, stop=2), "model.layers.1"),
        (Prefix("", "model"), "model.layers"),
    ],
)
def test_part_of_a_segment_is_no_match(rule, untouched):
    assert rule.apply(untouched) == untouched


# First match only


@given(made(Segments, PART, PART), NAME)
def test_the_first_run_that_is_not_renamed_yet_is_replaced(rule, name):
    new = rule.apply(name)
    length = len(rule.old.split("."))
    segments = name.split(".") if name else []
    starts = [i for i in range(len(segments)) if matches(rule.old, ".".join(segments[i : i + length]))]
    if new == name:
        assert all(covered(rule, segments, start, length) or same(rule, name, start) for start in starts)
    else:
        assert any(new in replacements(rule, name, {start}) for start in starts)
        first = next(start for start in starts if new in replacements(rule, name, {start}))
        assert all(covered(rule, segments, start, length) for start in starts if start < first)


def covered(rule: Segments, segments: list[str], start: int, length: int) -> bool:
    """Does the run at *start* lie inside an occurrence of what the rule writes?"""
    width = len(rule.new.split(".")) if rule.new else 0
    return width >= length and any(
        matches(rule.new, ".".join(segments[first : first + width]))
        for first in range(max(0, start + length - width), min(start, len(segments) - width) + 1)
    )


def same(rule: Segments, name: str, start: int) -> bool:
    return name in replacements(rule, name, {start})


def test_of_two_runs_the_first_is_replaced():
    assert Segments("mlp", "x").apply("mlp.a.mlp") == "x.a.mlp"


def test_rules_that_do_not_hold_on_to_the_start_add_up_in_order():
    renamer = Renamer((Segments("a", "b"), Segments("b", "c"), Suffix("y", "z"), Suffix("z", "end")))
    assert (renamer.rename("x.a.y"), renamer.hits) == ("x.c.end", [1, 1, 1, 1])


def test_of_the_rules_that_hold_on_to_the_start_only_the_first_that_fits_moves_a_name():
    renamer = Renamer((Prefix("a", "c"), Prefix("a.b", "d"), Layers("c", 3, stop=3), Suffix("y", "z")))
    assert (renamer.rename("a.b.y"), renamer.hits) == ("c.b.z", [1, 0, 0, 1])


def test_rules_that_hold_on_to_the_start_are_not_chained():
    """The second pass would follow the chain, so the name stays; each step alone is a candidate."""
    renamer = Renamer((Prefix("a", "b"), Prefix("b", "c")))
    assert renamer.rename("a.y") == "a.y"
    assert [candidate.new for candidate in renamer.candidates("a.y")] == ["b.y"]


# Once for each shape of name, the same as name by name

DIGITS = st.sampled_from(["0", "7", "12", "007", "w1", "w2", "fc10.0", "²", "x", "3x", "\ue000", "\x000", "\ud800"])
LIKE = st.lists(SEGMENT | DIGITS, max_size=7).map(".".join)


class NameByName:
    """The renamer that asks every rule about every name, and knows nothing of shapes: what ours must agree with."""

    def __init__(self, rules: tuple) -> None:
        self.rules, self.hits = rules, [0] * len(rules)

    def applied(self, name: str) -> tuple[str, tuple[int, ...]]:
        fired, held = [], False
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
        new, fired = self.applied(name)
        stable = bool(fired) and self.applied(new)[0] == new and new != name
        return Renaming(name, new, fired) if stable else Renaming(name, name)

    def rename(self, name: str) -> str:
        found = self.look(name)
        for index in found.rules:
            self.hits[index] += 1
        return found.new

    def candidates(self, name: str) -> Iterator[Renaming]:
        together = self.look(name)
        if together:
            yield together
        for index, rule in enumerate(self.rules):
            moved = rule.apply(name)
            if moved not in (name, together.new) and rule.apply(moved) == moved:
                yield Renaming(name, moved, (index,))


MOVE = made(Layers, NAME, st.integers(-12, 40), st.integers(0, 3), st.integers(0, 20))
SPEAKING = st.lists(SEGMENT | DIGITS | st.just("*"), min_size=1, max_size=3).map(".".join)
MEETING = st.one_of(MOVE, *(made(kind, SPEAKING, NEW | SPEAKING) for kind in (Exact, Prefix, Segments, Suffix)))


def renumbered(name: str, drawn: list[int]) -> str:
    """A name of the same shape."""
    supply = itertools.cycle(drawn or [0])
    return re.sub(r"[0-9]", lambda _: str(next(supply)), name)


@given(
    st.lists(RULE | MEETING, max_size=6).map(tuple),
    st.lists(st.tuples(LIKE, st.lists(st.integers(0, 9), max_size=4)), max_size=6),
)
@example((Segments("*.1", "1.*"),), [("a.1", [2]), ("a.1.1", [1])])
@example((Segments("experts.w1", "experts.gate"),), [("experts.w1", [2]), ("experts.3", [1])])
@example((Layers("layers", 10, start=5, stop=9),), [("layers.4", [5]), ("layers.8", [9])])
@example((Segments("x.*.*", "*2.y.*1"),), [("x.1.2", [3]), ("x.3.44", [5]), ("x.3.44.5", [5])])
@example((Segments("x.*.*", "y.*1.*1"), Segments("y", "x")), [("x.1.2", [3, 3])])
@example((Segments("a.*", "b"), Segments("a.*.*", "b.*")), [("a.1.2", [3, 3])])
@example((Suffix("9.w", "9.v"), Segments("experts.*", "experts.*.x")), [("experts.5", [9]), ("9.experts.9.w", [8])])
def test_every_name_of_a_shape_is_renamed_as_it_would_be_alone(rules, drawn):
    renamer, alone = Renamer(rules), NameByName(rules)
    names = [one for name, digits in drawn for one in (name, renumbered(name, digits))]
    for name in [*names, *names]:  # the second time from what the first has worked out
        assert list(renamer.candidates(name)) == list(alone.candidates(name))
        assert renamer.look(name) == alone.look(name)
        assert renamer.rename(name) == alone.rename(name)
        assert renamer.hits == alone.hits


@given(RULES, NAME)
def test_what_is_known_of_shapes_does_not_grow_for_ever(rules, name):
    renamer, alone = Renamer(rules), NameByName(rules)
    with mock.patch.object(renamer_module, "_MOST_SHAPES", 3):
        for more in ("", ".a", ".b", ".c", ".d", ".e"):
            assert renamer.rename(name + more) == alone.rename(name + more)
    assert len(renamer._shapes) <= 3 and len(renamer._quick) <= 3
    assert renamer.hits == alone.hits


def test_a_shape_of_name_is_worked_out_once():
    """A checkpoint has a hundred thousand names; the rules are applied to a few of them."""
    renamer = Renamer((Prefix("model", "language_model.model"), Segments("w1", "gate_proj")))
    applied = 0

    def count(name: str, held=renamer.applied):
        nonlocal applied
        applied += 1
        return held(name)

    renamer.applied = count
    for layer in range(10, 60):
        for expert in range(10, 90):
            for word in ("w1", "w2"):
                renamer.rename(f"model.layers.{layer}.experts.{expert}.{word}.weight")
    assert applied == 4  # two shapes, each applied to its result again
    assert renamer.hits == [50 * 80 * 2, 50 * 80]


# Hits


@given(RULES, st.lists(NAME, max_size=8))
def test_every_renaming_counts_the_rules_that_moved_it(rules, names):
    renamer, expected = Renamer(rules), Counter()
    for name in names:
        expected.update(renamer.look(name).rules)
        renamer.rename(name)
    assert renamer.hits == [expected[index] for index in range(len(rules))]


@given(RULES, NAME)
def test_looking_counts_nothing(rules, name):
    renamer = Renamer(rules)
    renamer.look(name)
    list(renamer.candidates(name))
    renamer.resolve(name, lambda _: True)
    assert renamer.hits == [0] * len(rules)


@given(RULES, NAME)
def test_a_renaming_is_true_exactly_when_it_changes_the_name(rules, name):
    renaming = Renamer(rules).look(name)
    assert bool(renaming) == (renaming.new != name)


# A rule only turns a miss into a hit


@given(RULES, NAME, KNOWN)
def test_a_known_name_is_never_renamed(rules, name, known):
    assert Renamer(rules).resolve(name, {*known, name}.__contains__).new == name


@given(RULES, NAME, KNOWN)
def test_a_resolved_name_was_unknown_and_is_known(rules, name, known):
    resolved = Renamer(rules).resolve(name, known.__contains__)
    if resolved:
        assert name not in known
        assert resolved.new in known


@given(RULES, NAME, KNOWN)
def test_a_name_stays_a_miss_only_when_no_candidate_is_known(rules, name, known):
    renamer = Renamer(rules)
    resolved = renamer.resolve(name, known.__contains__)
    if not resolved and name not in known:
        assert not any(candidate.new in known for candidate in renamer.candidates(name))


@given(RULES, NAME)
def test_candidates_start_with_all_rules_together(rules, name):
    renamer = Renamer(rules)
    together = renamer.look(name)
    first = next(iter(renamer.candidates(name)), together)
    assert not together or first == together


@given(RULES, NAME)
def test_no_candidate_is_the_name_itself(rules, name):
    assert all(candidate.new != name for candidate in Renamer(rules).candidates(name))


@given(RULES, NAME)
def test_a_candidate_of_a_rule_alone_is_not_moved_by_it_again(rules, name):
    renamer = Renamer(rules)
    for candidate in renamer.candidates(name):
        if candidate != renamer.look(name):
            [index] = candidate.rules
            assert rules[index].apply(candidate.new) == candidate.new


# Each kind, by example


@pytest.mark.parametrize(
    ("rule", "name", "new"),
    [
        (Exact("", "lm_head"), "", "lm_head"),
        (Exact("head", ""), "head", ""),
        (Exact("layers.*.mlp", "blocks.*.ffn"), "layers.3.mlp", "blocks.3.ffn"),
        (Prefix("model", "language_model.model"), "model.layers.0", "language_model.model.layers.0"),
        (Prefix("", "model"), "layers.0", "model.layers.0"),
        (Prefix("", "model"), "model_x.layers", "model.model_x.layers"),
        (Prefix("model", ""), "model.layers.0", "layers.0"),
        (Segments("language_model", ""), "model.language_model.layers", "model.layers"),
        (Segments("mlp.*.gate", "mlp.gate.*"), "layers.0.mlp.7.gate", "layers.0.mlp.gate.7"),
        (Suffix("weight", "weight_packed"), "layers.0.weight", "layers.0.weight_packed"),
        (Suffix("e.*", "experts.*"), "mlp.e.5", "mlp.experts.5"),
        (Layers("model.layers", 30, stop=30), "model.layers.1.mlp", "model.layers.31.mlp"),
        (Layers("model.layers", -4, start=4, stop=8), "model.layers.5", "model.layers.1"),
        (Layers("model.layers", 30, stop=30), "model.layers.30", "model.layers.30"),
        (Layers("model.layers", 30, stop=30), "model.layers.x", "model.layers.x"),
        (Layers("model.layers", 30, stop=30), "model.layers.²", "model.layers.²"),
        (Layers("model.layers", 30, stop=30), f"model.layers.{'9' * 5000}", f"model.layers.{'9' * 5000}"),
        (Segments("h.*.e.*", "experts.*2.layer.*1"), "x.h.2.e.7.w", "x.experts.7.layer.2.w"),
        (Segments("a.*.b.*", "b.*2"), "a.1.b.2.c", "b.2.c"),
        (Exact("a.*", "b.*1.*1"), "a.x", "b.x.x"),
    ],
)
def test_what_a_rule_does(rule, name, new):
    assert rule.apply(name) == new


# What a rule refuses, when it is made


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Prefix("model.", "x"), "empty segment; write whole segments without outer dots, such as 'model'"),
        (lambda: Exact("a", "b..c"), "empty segment"),
        (lambda: Suffix("weight", "weight"), "changes nothing"),
        (lambda: Segments("", "x"), "old must not be empty"),
        (lambda: Suffix("", "x"), "old must not be empty"),
        (lambda: Segments("a.**", "b"), "'**' is for patterns"),
        (lambda: Prefix("a.b*", "c"), "'*' stands for a whole segment, not part of one ('b*')"),
        (lambda: Prefix("a ", "b"), "old has ' ' in it, which no name has"),
        (lambda: Exact("a", "b\nc"), "new has '\\n' in it, which no name has"),
        (lambda: Segments("a.*", "b.*.*"), "new has more '*' than old"),
        (lambda: Layers("layers", 0), "changes nothing"),
        (lambda: Layers("layers", 30), "would move its own results again"),
        (lambda: Layers("layers", -5, start=3, stop=8), "below zero"),
        (lambda: Layers("layers", 3, start=2, stop=2), "no number"),
        (lambda: Layers("layers.", 3, stop=3), "empty segment"),
        (lambda: Layers("layers.*", 3, stop=3), "'*'"),
        (lambda: Segments("a.*", "b.*2"), "new has '*2', but old has 1 '*'"),
        (lambda: Segments("a.*.*", "b.*1.*"), "new has numbered and plain '*'; number them all, or none"),
        (lambda: Segments("a.*1", "b.*1"), "'*' stands for a whole segment, not part of one ('*1')"),
        (lambda: Segments("a.*.*", "a.*1.*2"), "changes nothing"),
        (lambda: Segments("a.*", "b.*0"), "not part of one ('*0')"),
        (lambda: Segments("experts.*.*", "experts.*2.*1"), "would never fire: its result has the form of what it renames"),
        (lambda: Suffix("a.*.*", "a.*1.*1"), "would never fire"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_in_the_authors_terms(make, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        make()


@pytest.mark.parametrize(
    "make",
    [lambda: Prefix(1, "x"), lambda: Layers("a", "1"), lambda: Layers("a", True, stop=1), lambda: Exact("a", None)],
)
def test_a_rule_of_the_wrong_type_is_refused(make):
    with pytest.raises(TypeError, match="must be"):
        make()


# Patterns


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a.b", "a.b", True),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.**", "a", True),
        ("**.rot.weight", "model.rot.weight", True),
        ("**.rot.weight", "rot.weight", True),
        ("**.rot.weight", "model.xrot.weight", False),
        ("a.**.c", "a.b.b.c", True),
        ("**.a.*.b", "a.x.a.y.b", True),
        ("**.a.**.b.c", "a.b.x.b.c", True),
        ("**.a.**.b.c", "b.c.a.x", False),
        ("", "", True),
        ("*", "", False),
    ],
)
def test_patterns(pattern, name, expected):
    assert matches(pattern, name) is expected


def test_many_depths_are_no_search_without_end():
    assert not matches("**.*." * 15 + "end", ".".join("a" * 45))


@given(st.lists(SEGMENT | st.sampled_from(["*", "**"]), max_size=5), NAME)
def test_a_pattern_matches_as_the_regular_expression_of_its_segments(pattern, name):
    """Written over ``segment/`` units, so that ``**`` is any number of them."""
    units = {"*": "[^/]+/", "**": "(?:[^/]+/)*"}
    expression = "".join(units.get(part, re.escape(part) + "/") for part in pattern)
    text = "".join(part + "/" for part in name.split(".")) if name else ""
    assert matches(".".join(pattern), name) == bool(re.fullmatch(expression, text))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model.layers.12.mlp", 12),
        ("layers.0", 0),
        ("model.blocks.3.layers.x.1", None),
        ("layers.²", None),
        (f"layers.{'9' * 5000}", None),
    ],
)
def test_the_number_of_a_layer(name: str, number: int | None) -> None:
    assert layer_number(name) == number


def test_a_layer_number_of_thousands_of_digits_is_left_alone():
    name = f"model.layers.{'9' * 5000}.weight"
    assert Layers("model.layers", 30, stop=30).apply(name) == name


@pytest.mark.parametrize("bounds", [{"by": 10**5000}, {"by": 1, "start": 10**5000}, {"by": 1, "stop": 10**5000}])
def test_a_rule_for_numbers_that_no_layer_has_is_refused_in_words(bounds):
    with pytest.raises(ValueError, match="no layer has such a number"):
        Layers("model.layers", **bounds)
