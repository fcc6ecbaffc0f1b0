"""Two trees of names are aligned by structure and conventions; what neither tells stays open. Without upstream."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ascend_hotfix.doctor.suggest.assign import Assignment, assign, templates
from ascend_hotfix.doctor.suggest.lexicon import CONVENTIONS

LAYERS = 2
HIDDEN, INNER, VOCABULARY = 8, 16, 64
Form = tuple[int, ...]


def layered(
    inside: Mapping[str, Form], outside: Mapping[str, Form], stack: str, count: int = LAYERS
) -> dict[str, Form]:
    names = {f"{stack}.{n}.{name}": form for n in range(count) for name, form in inside.items()}
    return {**names, **outside}


SQUARE, NORM = (HIDDEN, HIDDEN), (HIDDEN,)
USUAL = layered(
    {
        **{f"self_attn.{one}_proj": SQUARE for one in "qkvo"},
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
        "input_layernorm": NORM,
        "post_attention_layernorm": NORM,
    },
    {"model.embed_tokens": (VOCABULARY, HIDDEN), "model.norm": NORM, "lm_head": (VOCABULARY, HIDDEN)},
    "model.layers",
)


def renamed(changes: Mapping[str, str]) -> dict[str, Form]:
    return {".".join(changes.get(part, part) for part in name.split(".")): form for name, form in USUAL.items()}


def aligned(there: Mapping[str, Form], asked: Mapping[str, Form] = USUAL) -> Assignment:
    return assign(templates(asked), templates(there), lambda one, other, exactly: one == other)


LLAMA = {
    **{f"{one}_proj": f"w{one}" for one in "qkvo"},
    "gate_proj": "w1",
    "up_proj": "w3",
    "down_proj": "w2",
    "self_attn": "attention",
    "mlp": "feed_forward",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "embed_tokens": "tok_embeddings",
    "lm_head": "output",
}
QWEN1 = {"gate_proj": "w2", "up_proj": "w1", "down_proj": "c_proj", "layers": "h", "model": "transformer"}
NEOX = {"o_proj": "dense", "embed_tokens": "embed_in", "lm_head": "embed_out", "norm": "final_layer_norm"}


@pytest.mark.parametrize("changes", [LLAMA, QWEN1, NEOX, {"model": "backbone", "self_attn": "mixer"}, {}])
def test_a_convention_is_read_as_a_whole(changes: dict[str, str]) -> None:
    found = aligned(renamed(changes))
    wanted = {".".join("*" if part.isdigit() else part for part in name.split(".")) for name in USUAL}
    there = {name: ".".join(changes.get(part, part) for part in name.split(".")) for name in wanted}
    assert found.pairs == there and found.open == []


def test_w1_is_gate_or_up_as_its_siblings_say() -> None:
    assert aligned(renamed(QWEN1)).pairs["model.layers.*.mlp.gate_proj"] == "transformer.h.*.mlp.w2"
    assert aligned(renamed(LLAMA)).pairs["model.layers.*.mlp.gate_proj"] == "model.layers.*.feed_forward.w1"


@pytest.mark.parametrize(
    "changes",
    [
        {"gate_proj": "first", "up_proj": "second"},
        {"gate_proj": "w1", "up_proj": "second"},  # half a convention is none
        {"gate_proj": "gate_projection", "up_proj": "up_projection"},  # likeness alone is no evidence
        {"k_proj": "k_part", "v_proj": "v_part"},
    ],
)
def test_roles_of_one_shape_that_no_convention_names_are_one_open_group(changes: dict[str, str]) -> None:
    found = aligned(renamed(changes))
    (group,) = found.open
    assert len(group.ways) == 2 and not group.ways[0].keys() & found.pairs.keys()
    assert {name.rpartition(".")[2] for way in group.ways for name in way.values()} == {*changes.values()}


def test_one_of_a_pair_under_its_own_name_leaves_the_other() -> None:
    found = aligned(renamed({"up_proj": "strange"}))
    assert found.pairs["model.layers.*.mlp.up_proj"] == "model.layers.*.mlp.strange" and found.open == []


@pytest.mark.parametrize("inner", ["base_layer", "_orig_mod", "linear"])
def test_what_a_trainer_puts_below_a_layer_does_not_hide_its_name(inner: str) -> None:
    there = {f"{name}.{inner}" if name.endswith("_proj") else name: form for name, form in USUAL.items()}
    found = aligned(there)
    assert found.open == [] and all(found.pairs[a] == f"{a}.{inner}" for a in found.pairs if a.endswith("_proj"))
    assert len(found.pairs) == len(templates(USUAL))


def test_groups_that_are_called_alike_are_one_question() -> None:
    asked = {
        **USUAL,
        **{f"model.layers.{n}.mlp.shared.{p}_proj": (4, HIDDEN) for n in range(2) for p in ("gate", "up")},
    }
    changes = {"gate_proj": "first", "up_proj": "second"}
    there = {".".join(changes.get(part, part) for part in name.split(".")): form for name, form in asked.items()}
    (group,) = aligned(there, asked).open
    assert len(group.ways) == 2 and all(len(way) == 4 for way in group.ways)
    assert all(
        len({t.rpartition(".")[2] for a, t in way.items() if a.endswith("gate_proj")}) == 1 for way in group.ways
    )


def test_a_name_of_another_role_is_not_taken_for_the_only_one_that_fits() -> None:
    asked = {name: form for name, form in USUAL.items() if name.endswith("gate_proj")}
    there = {name.replace("gate_proj", "up_proj"): form for name, form in asked.items()}
    assert aligned(there, asked).pairs == {}


def test_layers_that_are_counted_from_one_are_not_the_layers_of_the_same_number() -> None:
    there = {name.replace("layers.1", "layers.2").replace("layers.0", "layers.1"): f for name, f in USUAL.items()}
    found = aligned({name.replace("model", "backbone"): form for name, form in there.items()})
    assert not any("layers" in name for name in (*found.pairs, *found.open))


def test_of_two_towers_of_one_form_each_keeps_to_its_own() -> None:
    asked = {f"{tower}.{name}": form for tower in ("audio", "video") for name, form in USUAL.items()}
    there = {f"{tower}.{name}": form for tower in ("one", "other") for name, form in USUAL.items()}
    assert aligned(there, asked).pairs == {}
    there = {name.replace("audio.model", "audio.inner"): form for name, form in asked.items() if "audio" in name}
    there |= {name.replace("video.model", "video.inner"): form for name, form in asked.items() if "video" in name}
    assert all(a.partition(".")[0] == t.partition(".")[0] for a, t in aligned(there, asked).pairs.items())


def test_the_order_of_what_is_there_changes_nothing() -> None:
    there = renamed(LLAMA)
    assert aligned(there).pairs == aligned(dict(reversed(there.items()))).pairs


def test_every_convention_names_roles_that_the_usual_names_have() -> None:
    usual = {role for roles in CONVENTIONS[0].roles.values() for role in roles}
    for one in CONVENTIONS:
        assert one.roles and all(roles for roles in one.roles.values())
    assert usual >= {"q", "k", "v", "o", "gate", "up", "down", "embed", "head", "router"}


def test_what_fits_alone_is_not_taken_where_its_siblings_belong_elsewhere() -> None:
    tower = {f"visual.blocks.{n}.mlp.fc": (3, HIDDEN) for n in range(LAYERS)}
    strange = {f"backbone.layers.{n}.mlp.strange": (3, HIDDEN) for n in range(LAYERS)}
    there = {name.replace("model.", "backbone."): form for name, form in USUAL.items()}
    found = aligned({**there, **strange}, {**USUAL, **tower})
    assert found.pairs.keys() == templates(USUAL).keys()
