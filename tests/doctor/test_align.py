"""Rules are found where words show what is meant, and nowhere else."""

from __future__ import annotations

import pytest

from ascend_hotfix.doctor.suggest.words import align, candidate_rules
from ascend_hotfix.names import Prefix

LAYERS = [f"layers.{n}.{leaf}" for n in range(3) for leaf in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")]


def test_a_swapped_wrapper_is_one_rule() -> None:
    asked = [f"language_model.model.{name}" for name in LAYERS]
    found = align(asked, [f"model.language_model.{name}" for name in LAYERS])
    assert found.rules == [Prefix("language_model.model", "model.language_model")]
    assert found.unexplained == [] and found.choices == []


def test_one_rule_holds_for_every_layer() -> None:
    asked = [f"model.{name}" for name in LAYERS]
    found = align(asked, [name.replace("self_attn", "attention") for name in asked])
    assert found.unexplained == [name for name in asked if ".mlp." in name]
    assert len(found.rules) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("gate_proj", "up_proj"), ("k_proj", "v_proj"), ("q_proj", "o_proj"), ("w1", "w3"), ("norm1", "norm2")],
)
def test_sibling_roles_are_never_taken_for_each_other(one: str, other: str) -> None:
    assert candidate_rules(f"model.layers.0.mlp.{one}", f"model.layers.0.mlp.{other}") == []
    assert align([f"model.layers.0.mlp.{one}"], [f"model.layers.0.mlp.{other}"]).rules == []


def test_two_targets_with_equal_evidence_are_a_choice() -> None:
    known = [f"{tower}.{name}" for tower in ("audio", "video") for name in LAYERS]
    found = align([f"tower.{name}" for name in LAYERS], known)
    assert found.rules == []
    assert found.choices or found.unexplained


def test_names_that_others_hold_are_no_targets() -> None:
    asked, known = ["x.layers.0.mlp.up_proj"], ["model.layers.0.mlp.up_proj"]
    assert align(asked, known).rules
    assert align(asked, known, taken=known).rules == []
