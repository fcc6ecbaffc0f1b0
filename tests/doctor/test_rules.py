"""Pairs of names become few anchored rules, which say all of them together as the seams apply them."""

from __future__ import annotations

import pytest

from ascend_hotfix.doctor.suggest.rules import renames
from ascend_hotfix.names import Exact, Prefix, Rule, Segments
from ascend_hotfix.renamer import Renamer


def numbered(name: str) -> str:
    return name.replace("*", "3")


PAIRS: list[tuple[dict[str, str], list[Rule]]] = [
    (
        {"backbone.layers.*.attn.q": "model.layers.*.self_attn.q", "backbone.norm": "model.norm"},
        [Segments("attn", "self_attn"), Prefix("backbone", "model")],
    ),
    ({"output": "lm_head"}, [Prefix("output", "lm_head")]),
    (
        {"h.*.attn.c_proj": "h.*.attn.o_proj", "h.*.mlp.c_proj": "h.*.mlp.down_proj"},
        [Segments("attn.c_proj", "attn.o_proj"), Segments("mlp.c_proj", "mlp.down_proj")],
    ),
    ({"layers.*.norm": "model.layers.*.norm"}, [Prefix("layers", "model.layers")]),
    ({"core.layers.*.norm": "layers.*.norm"}, [Prefix("core", "")]),
]


@pytest.mark.parametrize(("pairs", "rules"), PAIRS)
def test_what_differs_becomes_a_rule(pairs: dict[str, str], rules: list[Rule]) -> None:
    assert renames(pairs) == rules


def test_wrappers_that_trade_places_are_told_by_what_names_begin_with() -> None:
    pairs = {
        "language_model.model.layers.*.up": "module.model.language_model.layers.*.up",
        "language_model.model.layers.*.down": "module.model.language_model.layers.*.down",
        "visual.blocks.*.up": "module.model.visual.blocks.*.up",
        "mtp.layers.*.up": "module.mtp.layers.*.up",
    }
    assert len(renames(pairs)) == 3 and all(isinstance(rule, Prefix) for rule in renames(pairs))


NESTED = {
    "transformer.h.*.attn.c_proj": "model.layers.*.self_attn.o_proj",
    "transformer.h.*.attn.q_proj": "model.layers.*.self_attn.q_proj",
    "transformer.h.*.mlp.c_proj": "model.layers.*.mlp.down_proj",
    "transformer.h.*.mlp.experts.*.c_fc": "model.layers.*.mlp.experts.*.up_proj",
    "transformer.ln_f": "model.norm",
    "language_model.model.norm": "backbone.language_model.norm",
    "visual.merger.norm": "backbone.visual.merger.norm",
}


@pytest.mark.parametrize("pairs", [NESTED, *(pairs for pairs, _ in PAIRS)])
def test_all_rules_together_give_every_pair_and_let_it_stay_so(pairs: dict[str, str]) -> None:
    renamer = Renamer(tuple(renames(pairs)))
    for old, new in pairs.items():
        assert renamer.look(numbered(old)).new == numbered(new)
        assert renamer.look(numbered(new)).new == numbered(new)


def test_names_that_cannot_be_told_apart_by_what_differs_have_a_rule_each() -> None:
    pairs = {"a.x": "b.a.x", "b.y": "b.y.z", "head": "a.head"}  # a prefix in front of what another rule gives
    rules = renames(pairs, whole=True)
    renamer = Renamer(tuple(rules))
    assert {old: renamer.look(old).new for old in pairs} == pairs
    assert all(isinstance(rule, Exact) for rule in rules) or len(rules) <= len(pairs)


def test_pairs_that_change_nothing_need_no_rule() -> None:
    assert renames({"model.norm": "model.norm"}) == []


def test_no_rule_gives_another_name_what_is_meant_for_one() -> None:
    pairs = {"h.*.attn.w1": "h.*.attn.gate_proj"}
    assert renames(pairs) == [Segments("w1", "gate_proj")]
    others = ["h.*.attn.inner.w1", "h.*.attn.gate_proj.inner"]
    assert renames(pairs, others) == [Segments("w1", "gate_proj")]
    swapped = {"a.norm": "b.norm", "a.proj": "b.proj"}
    assert renames(swapped, ["a.x"]) == [Prefix("a", "b")]
    (rule, _) = renames({"a.norm": "b.norm", "c.norm": "b.last"}, ["a.last"])
    assert rule == Prefix("a.norm", "b.norm")
