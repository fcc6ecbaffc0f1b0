"""Weights that are sent again, whole or in parts, under ASCEND_HOTFIX_STRICT: nothing real is lost, nothing untrue is said."""

from __future__ import annotations

from typing import Any

import pytest

GLM, FLOAT = "glm4_moe-w8a8", "float/glm4_moe"
CASES = "kinds.inside_buckets:"
FILL = "glm4.correction-bias"
WAYS = ["buckets", "norm", "one by one", "norm"]


def longer(*values: Any) -> Any:
    """A case of the longer run."""
    return pytest.param(*values, marks=pytest.mark.longer)


FIRST = [
    ("0.18.0", GLM, "whole", True, "set"),
    ("0.18.0", GLM, "buckets", False, "set"),
    ("0.18.0", FLOAT, "dummy", True, "None"),
    longer("0.18.0", GLM, "whole", False, "None"),
    longer("0.18.0", FLOAT, "whole", False, "set"),
    longer("0.18.0", GLM, "buckets", True, "None"),
    longer("0.18.0", GLM, "dummy", True, "set"),
    longer("0.11.0", GLM, "whole", False, "set"),
    longer("0.11.0", FLOAT, "buckets", False, "set"),
    longer("0.13.0", GLM, "whole", True, "set"),
    longer("0.23.0", GLM, "whole", True, "set"),
    longer("0.23.0", FLOAT, "buckets", False, "set"),
    longer("0.30.0rc2", GLM, "whole", True, "set"),
    longer("0.30.0rc2", GLM, "buckets", True, "None"),
    longer("0.30.0rc2", FLOAT, "dummy", True, "set"),
]


@pytest.mark.parametrize(("pair", "name", "first", "process", "report"), FIRST)
def test_a_router_bias_that_the_checkpoint_has_outlives_every_update(
    upstream: Any, pair: str, name: str, first: str, process: bool, report: str
) -> None:
    found = upstream(pair, f"{CASES}again", name=name, ways=WAYS, first=first, process=process, report=report)
    assert found["right"] and found["layers"] > 0
    assert found["first"] or first == "dummy"
    assert found["findings"] == [] and FILL not in found["hits"]


@pytest.mark.parametrize(
    ("pair", "first"),
    [("0.18.0", "dummy"), longer("0.18.0", "buckets"), longer("0.11.0", "buckets"), longer("0.30.0rc2", "dummy")],
)
def test_a_router_bias_that_no_tensor_fills_is_zero_through_every_update(upstream: Any, pair: str, first: str) -> None:
    found = upstream(pair, f"{CASES}again", name=GLM, ways=WAYS, first=first, biases=False, process=pair != "0.11.0")
    assert found["zero"] and found["layers"] > 0
    assert found["findings"] == [] and found["hits"][FILL] == found["layers"]


@pytest.mark.parametrize(
    ("pair", "first", "parts"),
    [
        ("0.18.0", "dummy", 20),
        longer("0.18.0", "whole", 1),
        longer("0.23.0", "whole", 20),
        longer("0.30.0rc2", "dummy", 20),
    ],
)
def test_a_layerwise_reload_leaves_zero_where_no_tensor_is(upstream: Any, pair: str, first: str, parts: int) -> None:
    """vLLM copies what the meta device's layers became, memory and all, over the parameters."""
    found = upstream(pair, f"{CASES}reloaded", name=GLM, biases=False, first=first, parts=parts)
    assert found["zero"] and found["layers"] > 0
    assert found["during"] == found["findings"] == []


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("pair", ["0.18.0", longer("0.11.0"), longer("0.13.0"), longer("0.23.0"), longer("0.30.0rc2")])
def test_sleep_at_level_2_loses_no_fill(upstream: Any, pair: str, biases: bool) -> None:
    engine = {"additional_config": {"weight_nz_mode": 0}} if pair == "0.30.0rc2" else {}  # else it refuses to wake
    found = upstream(pair, f"{CASES}slept", name=FLOAT, biases=biases, **engine)
    assert found["lost"] and found["early"], "the memory is gone, and nothing writes to it before the weights are awake"
    assert found["right"] if biases else found["zero"]
    assert found["findings"] == []
