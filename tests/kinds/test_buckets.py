"""Weights that are sent again, whole or in parts, under ASCEND_HOTFIX_STRICT: nothing real is lost, nothing untrue is said."""

from __future__ import annotations

from typing import Any

import pytest

GLM = "glm4_moe-w8a8"


def longer(*values: Any) -> Any:
    """A case of the longer run."""
    return pytest.param(*values, marks=pytest.mark.longer)


@pytest.mark.parametrize(
    ("pair", "first", "process"),
    [
        ("0.18.0", "whole", True),
        ("0.18.0", "whole", False),
        ("0.18.0", "buckets", True),
        ("0.18.0", "dummy", True),
        longer("0.11.0", "whole", False),
        longer("0.13.0", "whole", True),
        longer("0.23.0", "whole", True),
        longer("0.23.0", "buckets", False),
        longer("0.30.0rc2", "whole", True),
        longer("0.30.0rc2", "buckets", True),
        longer("0.30.0rc2", "dummy", True),
    ],
)
def test_a_router_bias_that_the_checkpoint_has_outlives_every_update(
    upstream: Any, pair: str, first: str, process: bool
) -> None:
    ways = ["buckets", "norm", "one by one", "norm"]
    found = upstream(pair, "kinds.inside_buckets:again", name=GLM, ways=ways, first=first, process=process)
    assert found["right"] and found["layers"] > 0
    assert found["findings"] == []
    assert "unwritten_glm4_moe.correction-bias" not in found["hits"]
