"""Which tensors of a checkpoint are the draft's, told by their names and the config."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.doctor.judge import draft_tensors


def layers(*numbers: int, front: str = "model.layers") -> list[str]:
    return [f"{front}.{number}.mlp.{leaf}" for number in numbers for leaf in ("up_proj.weight", "down_proj.weight")]


@pytest.mark.parametrize(
    ("names", "config", "drafts"),
    [
        (layers(0, 1, 2), {"num_hidden_layers": 2}, layers(2)),
        ([*layers(2), *layers(0, 1)], {"text_config": {"num_hidden_layers": 2}}, layers(2)),
        ([*layers(0), *layers(0, front="mtp.layers")], {"num_hidden_layers": 1}, layers(0, front="mtp.layers")),
        ([*layers(0, 1), "model.mtp.fc.weight"], {"num_hidden_layers": 2}, ["model.mtp.fc.weight"]),
        ([*layers(0, 1), *layers(0, 1, 2, front="visual.blocks")], {"num_hidden_layers": 2}, []),
        ([*layers(0, 1), *layers(5, front="other.blocks")], {"num_hidden_layers": 2}, []),  # not numbered on
        ([*layers(0, 1), f"model.layers.{'9' * 5000}.up_proj.weight"], {"num_hidden_layers": 2}, []),
        (layers(0, 1), {"num_hidden_layers": True}, []),
        (layers(0, 1), {}, []),
    ],
)
def test_the_draft_is_what_is_numbered_on_or_below_mtp(
    names: list[str], config: dict[str, Any], drafts: list[str]
) -> None:
    assert draft_tensors(names, config) == set(drafts)
