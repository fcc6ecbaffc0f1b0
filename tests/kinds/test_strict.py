"""Every genuine checkpoint that loads right loads under ASCEND_HOTFIX_STRICT, target and draft: nothing untrue is said of it.

What loads right is what tests/patches/results/genuine.json says. The longer run takes all cells.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULTS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "patches" / "results" / "genuine.json").read_text(encoding="utf-8")
)
PAIRS = {"0.11": "0.11.0", "0.13": "0.13.0", "0.18": "0.18.0", "0.23": "0.23.0", "0.30": "0.30.0rc2"}
DEFAULT = (  # a draft beside FP8's record, a bias that no tensor fills, a norm that is not called so, a hidden Hadamard matrix
    "deepseek_v3-w4a8|0.18|draft",
    "glm4_moe-w8a8|0.18|draft",
    "qwen2_5_omni-w8a8|0.18|target",
    "glm_5_1-w8a8c8|0.18|target",
    "qwen2_5_omni-w8a8|0.30|target",
    "qwen3_5-w8a8|0.30|draft",
    "deepseek_v3_2-w8a8|0.11|target",
)
RIGHT = [key for key, held in RESULTS.items() if not held["armed"]["faults"]]


def _cells() -> list[Any]:
    return [
        pytest.param(
            PAIRS[pair],
            name,
            part,
            marks=[] if key in DEFAULT else [pytest.mark.longer],
            id="-".join((PAIRS[pair], name, part)),
        )
        for key in RIGHT
        for name, pair, part in [key.split("|")]
        if pair in PAIRS  # the cells of the pins are loaded in tests/patches
    ]


@pytest.mark.parametrize(("pair", "name", "part"), _cells())
def test_a_checkpoint_that_loads_right_loads_under_strict(upstream: Any, pair: str, name: str, part: str) -> None:
    found = upstream(pair, "kinds.inside_strict:load", name=name, draft=part == "draft")
    assert found["ours"] == found["theirs"] == ""
    assert found["findings"] == []


def test_the_default_lane_has_its_cells() -> None:
    assert set(DEFAULT) <= set(RIGHT)
