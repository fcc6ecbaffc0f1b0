"""The comparison of values that every case goes through sees the mistakes it is there for."""

from __future__ import annotations

from case import PAIRS
from servers import HERE

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.pool import Zygote


def test_a_wrong_order_place_scale_or_value_is_seen() -> None:
    with Zygote(envs.python(PAIRS["0.30"]), path=[HERE], env={"ASCEND_HOTFIX_MODELS": "none"}) as server:
        said = server.call("inside.controls:mistakes")
    assert said.pop("none") == []
    assert len(said) == 8
    assert {mistake: len(lines) for mistake, lines in said.items()} == dict.fromkeys(said, 1)
