"""Each public report of plain vLLM: stock fails as it says, the patch mends it, and what was right stays untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cases import CASES, Case

if TYPE_CHECKING:
    from conftest import Results

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
with_right = pytest.mark.parametrize("case", [c for c in CASES if c.right is not None], ids=lambda case: case.name)


def value(result: dict[str, Any]) -> Any:
    assert "error" not in result, result["traceback"]
    return result["value"]


def same_names(found: Any) -> Any:
    """Digests by the names of vLLM up to 0.23, so that releases can be compared."""
    digests = {name.replace(".routed_experts.", "."): digest for name, digest in found["digests"].items()}
    return {**found, "digests": digests}


@every
def test_stock_fails_as_reported(case: Case, results: Results) -> None:
    stock = results(case, "stock")
    if case.error:
        assert stock.get("error") == case.error, stock
        assert case.message in stock["message"]
    else:
        assert value(stock) != value(results(case, "right"))


@every
def test_the_patch_mends_it(case: Case, results: Results) -> None:
    fixed = results(case, "fixed")
    found = value(fixed)
    assert fixed["hits"].get(case.hit, 0) > 0, fixed["hits"]
    if case.right is not None:
        assert found == value(results(case, "right"))
    if case.right_release:
        assert same_names(found) == same_names(value(results.on(case.right_release, case)))
    assert not [line for line in fixed["findings"] if "internal error" in line]


@with_right
def test_what_is_right_is_not_touched(case: Case, results: Results) -> None:
    quiet = results(case, "quiet")
    assert value(quiet) == value(results(case, "right"))
    assert quiet["hits"] == {}
