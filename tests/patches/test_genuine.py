"""Every genuine checkpoint on every pair: what needs no patch sees none, what a patch mends is right.

The default run takes a few cells of each pair on the common torch, and all of one pair on what it pins; the longer run
takes all of them. results/genuine.json says what is expected;
``python tests/patches/genuine.py`` writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coverage_table as coverage
import genuine
import pytest
from case import PAIRS, PINS

from ascend_hotfix.sim import matrix

RESULTS = coverage.results()
DEFAULT = ("qwen3_moe-w8a8", "deepseek_v3_2-w8a8", "qwen2_5-w8a8")


def _in_default(checkpoint: str, pair: str, part: str) -> bool:
    if pair in PINS:
        return PAIRS[pair] in matrix.CI_PINNED
    return checkpoint in DEFAULT and part == "target"


def _cells() -> list[Any]:
    return [
        pytest.param(*cell, marks=[] if _in_default(*cell) else [pytest.mark.longer], id="-".join(cell))
        for cell in genuine.CELLS
    ]


@pytest.mark.parametrize(("checkpoint", "pair", "part"), _cells())
def test_a_cell_is_as_recorded(checkpoint: str, pair: str, part: str, run: Callable[..., Any]) -> None:
    """Hits and faults, with the patches and, where it was run, without: another fault is another result."""
    assert genuine.look(run, checkpoint, pair, part) == RESULTS[f"{checkpoint}|{pair}|{part}"]


def test_no_cell_that_is_right_without_a_patch_sees_one() -> None:
    worse = [
        key
        for key, held in RESULTS.items()
        if not held.get("stock", {"faults": ["not run"]})["faults"] and held["armed"]["hits"]
    ]
    assert worse == []


def test_no_cell_gets_worse() -> None:
    worse = [
        key
        for key, held in RESULTS.items()
        if "stock" in held and not held["stock"]["faults"] and held["armed"]["faults"]
    ]
    assert worse == []
