"""Every report that a patch mends: stock fails as the report says, with the patch the model is right.

Both run on the real packages, in processes of their own. See :mod:`case` for what a case says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import checks
import genuine_cases
import made_cases
import pytest
from case import CI, Case, Fails

CASES = (*genuine_cases.CASES, *made_cases.CASES)


def marked(cases: tuple[Case, ...]) -> Iterator[Any]:
    """The cases; those on a pair that CI does not build are in the longer run."""
    for case in cases:
        yield pytest.param(case, id=case.id, marks=[] if case.pair in CI else [pytest.mark.longer])


@pytest.mark.parametrize("case", list(marked(CASES)))
def test_stock_fails_as_reported_and_the_patch_mends_it(case: Case, outcomes: Callable[[Case], Any]) -> None:
    stock, patched = outcomes(case)

    if isinstance(case.stock, Fails):
        assert stock.get("error") == case.stock.error, checks.faults(stock, case.unused)[:5]
        assert case.stock.key in stock["message"]
    else:
        found = checks.faults(stock, case.unused, case.unwritten)
        for pattern in case.stock.faults:
            assert any(re.search(pattern, line) for line in found), found[:5]
    assert checks.hits(stock) == set()

    assert checks.faults(patched, case.unused, case.unwritten) == []
    assert checks.hits(patched) == set(case.patch)


def test_no_two_cases_have_one_name() -> None:
    names = [case.id for case in CASES]
    assert sorted(names) == sorted(set(names))
