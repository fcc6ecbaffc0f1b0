"""Which tensors of a checkpoint are the draft's, told by their names and the config; and lists of draft layers renamed."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.doctor.drafts import draft_tensors
from ascend_hotfix.doctor.suggest.words import align
from ascend_hotfix.names import Prefix


def layers(*numbers: int, front: str = "model.layers") -> list[str]:
    return [f"{front}.{number}.mlp.{leaf}" for number in numbers for leaf in ("up_proj.weight", "down_proj.weight")]


@pytest.mark.parametrize(
    ("names", "config", "drafts"),
    [
        (layers(0, 1, 2), {"num_hidden_layers": 2}, layers(2)),
        ([*layers(2), *layers(0, 1)], {"text_config": {"num_hidden_layers": 2}}, layers(2)),
        ([*layers(0), *layers(0, front="mtp.layers")], {"num_hidden_layers": 1}, layers(0, front="mtp.layers")),
        ([*layers(0, 1), "model.mtp.fc.weight"], {"num_hidden_layers": 2}, ["model.mtp.fc.weight"]),
        *(
            (
                [*layers(0, 1), *layers(0, front=f"model.{own}")],
                {"num_hidden_layers": 2},
                layers(0, front=f"model.{own}"),
            )
            for own in ("mtp_layers", "nextn_layers", "nextn_predict_layers", "draft_layers", "mtp_block", "mtp.layers")
        ),
        ([*layers(0, 1), "model.mtp_norm.weight", "model.draft_id_to_target_id"], {"num_hidden_layers": 2}, []),
        ([*layers(0, 1), *layers(0, 1, 2, front="visual.blocks")], {"num_hidden_layers": 2}, []),
        ([*layers(0, 1), *layers(5, front="other.blocks")], {"num_hidden_layers": 2}, []),  # not numbered on
        ([*layers(0, 1), f"model.layers.{'9' * 5000}.up_proj.weight"], {"num_hidden_layers": 2}, []),
        (layers(0, 1), {"num_hidden_layers": True}, []),
        (layers(0, 1), {}, []),
    ],
)
def test_the_draft_is_what_is_numbered_on_or_called_so(
    names: list[str], config: dict[str, Any], drafts: list[str]
) -> None:
    assert draft_tensors(names, config) == set(drafts)


OWN, TARGET = layers(0, 1, front="model.mtp_layers"), layers(4, 5)


@pytest.mark.parametrize(
    ("asked", "known", "rules"),
    [
        (OWN, TARGET, [Prefix("model.mtp_layers.0", "model.layers.4"), Prefix("model.mtp_layers.1", "model.layers.5")]),
        (TARGET, OWN, [Prefix("model.layers.4", "model.mtp_layers.0"), Prefix("model.layers.5", "model.mtp_layers.1")]),
        (OWN, layers(4), []),  # nothing tells which of the two is missing
        (OWN, [*TARGET, *layers(6, 7, front="model.blocks")], []),  # nor to which list they belong
        (layers(2), layers(4, front="model.blocks"), []),  # neither is called a draft's: another layer
    ],
)
def test_draft_layers_in_a_list_of_their_own_keep_their_order(
    asked: list[str], known: list[str], rules: list[Prefix]
) -> None:
    assert align(asked, known).rules == rules
