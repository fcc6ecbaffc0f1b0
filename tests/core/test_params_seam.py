"""Names by which a loader asks for parameters: both work, one hit for each that was asked, one name left at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.records import Fix, Prefix, Segments
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams.params import Aliases

REAL, OLD = "mlp.experts.routed_experts.w13_weight", "mlp.experts.w13_weight"
FIX = Fix(id="fix", why="w", refs=("r",), params=(Segments("experts.routed_experts", "experts"),))


class Model:
    """A model with two parameters and a loader that asks for *wanted*."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.left: set[str] = set()

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        yield REAL, "experts"
        yield "norm.weight", "norm"

    def load_weights(self, weights: Any) -> set[str]:
        params = dict(self.named_parameters())
        loaded = set()
        for name, _ in weights:
            asked = self.wanted if name == "experts" else name
            assert params[asked] in ("experts", "norm")
            loaded.add(asked)
        self.left = set(params)
        return loaded


@pytest.fixture(autouse=True)
def fresh() -> None:
    LEDGER.entries.clear()


def load(model: Model, fix: Fix = FIX) -> set[str]:
    aliases = Aliases(model, Scope(("tiny",), [Selection("patch", fix)]))
    with aliases:
        loaded = aliases.guard(model.load_weights, ([("experts", 1), ("norm.weight", 2)],), {})
    found: set[str] = aliases.map_back(loaded)
    return found


def hits() -> int:
    return sum(entry.hits for entry in LEDGER)


@pytest.mark.parametrize(("wanted", "count"), [(OLD, 1), (REAL, 0)])
def test_both_names_work_and_only_the_asked_one_is_left_for_a_loader_that_compares(wanted: str, count: int) -> None:
    model = Model(wanted)
    assert load(model) == {REAL, "norm.weight"}
    assert model.left == {wanted, "norm.weight"}
    assert hits() == count


@pytest.mark.parametrize("wanted", ["mtp.experts.w13_weight", "experts.w13_weight", REAL])
def test_a_parameter_may_have_several_other_names(wanted: str) -> None:
    """LongCat's draft: its rules are alternatives, and each gives a name that some loader may ask for."""
    model = Model(wanted)
    rules = (Prefix("mlp.experts.routed_experts", "mtp.experts"), Prefix("mlp.experts.routed_experts", "experts"))
    assert load(model, Fix(id="fix", why="w", refs=("r",), params=rules)) == {REAL, "norm.weight"}
    assert model.left == {wanted, "norm.weight"}
    assert hits() == (wanted != REAL)


def test_the_model_is_as_before_afterwards() -> None:
    model = Model(OLD)
    load(model)
    assert [name for name, _ in model.named_parameters()] == [REAL, "norm.weight"]
    assert "named_parameters" not in vars(model)


def test_a_name_that_neither_side_has_is_the_loaders_own_key_error() -> None:
    with pytest.raises(KeyError, match="elsewhere"):
        load(Model("elsewhere"))
    assert hits() == 0
