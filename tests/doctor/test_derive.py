"""What a dry run saw becomes rules or questions; here of parts made up by hand, without upstream."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_hotfix.doctor.checkpoint import Tensor
from ascend_hotfix.doctor.observe import Frame
from ascend_hotfix.doctor.rehearsal import Part, Refused
from ascend_hotfix.doctor.suggest.derive import derive
from ascend_hotfix.doctor.suggest.proposal import Proposal
from ascend_hotfix.doctor.suggest.writer import patch_text
from ascend_hotfix.names import Prefix, Segments, Suffix
from ascend_hotfix.records import Config, Dequantize, Drop, Fill, ModelPatch, Scheme, Unnamed

LAYER = "model.layers.0.mlp"
SHAPES: dict[str, tuple[int, ...]] = {
    f"{LAYER}.experts.{n}.{part}.weight": shape
    for n in range(2)
    for part, shape in (("gate_proj", (8, 4)), ("up_proj", (8, 4)), ("down_proj", (4, 8)))
}
FUSED: dict[str, tuple[tuple[int, ...], str]] = {
    "w13_weight": ((2, 16, 4), "bfloat16"),
    "w2_weight": ((2, 4, 8), "bfloat16"),
}


def derived(
    part: Part,
    shapes: Mapping[str, tuple[int, ...]],
    before: Proposal | None = None,
    config: Mapping[str, Any] | None = None,
) -> Proposal:
    tensors = {name: Tensor("BF16", shape, "model.safetensors") for name, shape in shapes.items()}
    rehearsal: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(tensors=tensors, config=config or {}), parts=[part], drafted=set()
    )
    return derive(rehearsal, before)


def experts(below: str, **fields: Any) -> Part:
    """A part whose fused experts, below *below*, are empty."""
    parameters = {f"{LAYER}.{below}.{leaf}": held for leaf, held in FUSED.items()}
    return Part("target", "Model", parameters=parameters, unwritten=dict(parameters), **fields)


@pytest.mark.parametrize(
    ("below", "rule"),
    [
        ("experts.routed_experts", Segments("experts.routed_experts", "experts")),
        ("experts", Segments("experts", "experts.routed_experts")),
    ],
)
def test_experts_that_a_loader_passes_over_are_tried_under_the_other_releases_name(below: str, rule: Segments) -> None:
    found = derived(experts(below, unused=list(SHAPES)), SHAPES)
    assert (found.params, found.weights, found.questions) == ([rule], [], [])


def test_a_name_that_a_loader_asks_is_given_to_the_parameter_it_means() -> None:
    # the inner model does not know of the model. in front
    asked = [("gate_proj", "layers.0.mlp.experts.w13_weight"), ("down_proj", "layers.0.mlp.experts.w2_weight")]
    shapes = {f"{LAYER}.{part}.weight": (2, 8, 4) for part, _ in asked}
    refused = [Refused(f"{LAYER}.{part}.weight", "KeyError", "", "", name) for part, name in asked]
    (rule,) = derived(experts("experts.routed_experts", refused=refused), shapes).params
    assert rule.apply("layers.0.mlp.experts.routed_experts.w2_weight") == "layers.0.mlp.experts.w2_weight"


def test_a_tensor_refused_under_its_own_name_is_no_reason_for_another_name_of_a_parameter() -> None:
    shapes = {f"{LAYER}.mixer.weight": (8, 4)}
    refused = [Refused(name, "KeyError", "", "", name) for name in shapes]
    part = Part("target", "Model", parameters={f"{LAYER}.norm.weight": ((4,), "bfloat16")}, refused=refused)
    part.unwritten = dict(part.parameters)
    assert derived(part, shapes).params == []


@pytest.mark.parametrize("taken", [{"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}, {}])
def test_the_other_convention_of_experts_is_a_rule_where_the_loader_says_which_it_takes(taken: dict[str, str]) -> None:
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    shapes = {".".join(names.get(s, s) for s in name.split(".")): shape for name, shape in SHAPES.items()}
    found = derived(experts("experts", experts=taken, unused=list(shapes)), shapes)
    rules = [Segments(f"experts.*.{new}", f"experts.*.{old}") for old, new in names.items()]
    assert found.override == (rules if taken else [])


def test_a_stacked_tensor_is_not_taken_for_the_shard_of_a_layer() -> None:
    part = Part("target", "Model", parameters={f"{LAYER}.shared.gate_up_proj.weight": ((16, 4), "bfloat16")})
    part.unwritten = dict(part.parameters)
    name = f"{LAYER}.gate_proj.weight"
    stacked, flat = ({name: shape} for shape in ((2, 8, 4), (8, 4)))
    part.unused = [name]
    assert derived(part, stacked).weights == []
    assert derived(part, flat).weights != []


def test_what_every_tensor_begins_with_is_taken_off_a_name_that_no_parameter_has() -> None:
    before = Proposal(weights=[Prefix("core", "")])
    part = Part(
        "target", "Model", parameters={"norm.weight": ((4,), "bfloat16")}, landed={"core.norm.weight": ("norm.weight",)}
    )
    part.refused = [Refused("core.rot.weight", "KeyError", "", "", "core.rot.weight")]
    shapes: dict[str, tuple[int, ...]] = {"core.norm.weight": (4,), "core.rot.weight": (4, 4)}
    assert derived(part, shapes, before).override == [Prefix("core", "")]
    assert derived(part, {**shapes, "lm_head.weight": (4, 4)}, before).override == []


@pytest.mark.parametrize(
    ("leaf", "landed", "dtype", "offered"),
    [
        ("gate.e_score_correction_bias", {}, "float32", True),
        ("gate.bias", {}, "bfloat16", True),
        ("up_proj.quant_bias", {}, "int32", False),
        ("up_proj.bias", {}, "int32", False),
        ("up_proj.weight_scale", {}, "float32", False),
        ("gate.bias", {"t": ("model.layers.1.mlp.gate.bias",)}, "bfloat16", False),  # another layer has it: it was lost
    ],
)
def test_only_a_bias_that_no_layer_has_may_be_zero(
    leaf: str, landed: dict[str, tuple[str, ...]], dtype: str, offered: bool
) -> None:
    part = Part("target", "Model", parameters={f"{LAYER}.{leaf}": ((4,), dtype)}, landed=landed)
    part.unwritten = dict(part.parameters)
    found = derived(part, {})
    assert [record for question in found.questions for answer in question.answers for record in answer.records] == (
        [Fill(f"**.mlp.{leaf}")] if offered else []
    )
    assert found.fill == []


HEADS = {"model.embed_tokens": "Embedding", "lm_head": "ParallelLMHead"}


@pytest.mark.parametrize(
    ("classes", "records"),
    [
        (HEADS, [Unnamed(cls, name) for name, cls in HEADS.items()]),
        (dict.fromkeys(HEADS, "Embedding"), []),  # nothing tells which of them asks
    ],
)
def test_layers_without_a_prefix_are_told_apart_by_their_class(classes: dict[str, str], records: list[Unnamed]) -> None:
    part = Part("target", "Model", modules=classes, description={f"{name}.weight": "FLOAT" for name in HEADS})
    part.frames = [Frame("", "embedding", missing=[".weight"], standin="FLOAT", module=name) for name in HEADS]
    found = derived(part, {})
    assert found.describe == records
    assert [len(question.answers) for question in found.questions] == ([] if records else [2])


def test_a_part_without_its_prefix_is_no_matter_of_names() -> None:
    part = Part("target", "Model", description={"model.layers.0.mlp.shared.up_proj.weight": "W8A8"})
    part.frames = [
        Frame(".up_proj", "linear", missing=[".up_proj.weight"], standin="W8A8", module=f"{LAYER}.shared.up_proj")
    ]
    found = derived(part, {})
    assert not found and [(question.answers, question.blocks) for question in found.questions] == [((), False)]


def test_a_written_patch_is_read_back_as_it_was_proposed() -> None:
    proposal = Proposal(
        lookup=[Prefix("model", "core.model")],
        weights=[Prefix("core", "")],
        params=[Segments("experts.routed_experts", "experts")],
        fill=[Fill("**.gate.bias", 0.0)],
        describe=[Unnamed("ParallelLMHead", "lm_head")],
        override=[Prefix("core", "")],
        tensors=[Dequantize("model.layers.*.mlp.gate")],
        config=[Config(put={"tie_word_embeddings": True})],
        retyped=[Scheme("model.layers.*.mlp.up_proj", "W8A8")],
    )
    scope: dict[str, Any] = {}
    exec(patch_text(proposal.fields(), ["qwen3"], {"vllm": "0.18.0"}, "made up", proposal.overriding()), scope)
    patch: ModelPatch = scope["PATCH"]
    assert [bool(fix.override) for fix in patch.fixes] == [False, True, True]
    assert Proposal.of_patch(patch).records() == proposal.records()


def test_an_answer_takes_its_question_with_it() -> None:
    part = Part("target", "Model", parameters={f"{LAYER}.gate.bias": ((4,), "bfloat16")})
    part.unwritten = dict(part.parameters)
    found = derived(part, {})
    found.answer(['fill=(Fill("**.mlp.gate.bias", 0.0),)'])
    assert (found.fill, found.questions) == ([Fill("**.mlp.gate.bias")], [])


def linear(name: str, rows: int = 8, columns: int = 4, leaf: str = "weight_scale") -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.{leaf}": (rows, 1)}


@pytest.mark.parametrize(
    ("leaf", "rules"), [("scales", [Suffix("scales", "weight_scale")]), ("weight_scale_inv", []), ("strange", [])]
)
def test_a_leaf_of_the_same_meaning_is_a_rule_and_an_inverse_is_none(leaf: str, rules: list[Suffix]) -> None:
    name = f"{LAYER}.down_proj"
    shapes = linear(name, leaf=leaf)
    parameters = {one: (shape, "int8") for one, shape in linear(name).items()}
    part = Part("target", "Model", parameters=parameters, landed={f"{name}.weight": (f"{name}.weight",)})
    part.unwritten = {f"{name}.weight_scale": parameters[f"{name}.weight_scale"]}
    part.unused = [f"{name}.{leaf}"]
    assert derived(part, shapes).weights == rules


def test_a_fused_layer_of_another_name_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"{LAYER}.gate_up_proj"
    part = Part(
        "target", "Model", parameters={f"{module}.weight": ((16, 4), "bfloat16")}, sizes={module: ((8, 4),) * 2}
    )
    part.unwritten, part.unused = dict(part.parameters), [f"{LAYER}.w12.weight"]
    assert derived(part, {f"{LAYER}.w12.weight": (16, 4)}).weights == []  # which half comes first is not in the name


def untied(size: int, **config: Any) -> Proposal:
    part = Part("target", "Model", modules={"model.embed": "VocabParallelEmbedding", "lm_head": "ParallelLMHead"})
    part.parameters = {"model.embed.weight": ((size, 4), "bfloat16"), "lm_head.weight": ((9, 4), "bfloat16")}
    part.landed = {"model.embed.weight": ("model.embed.weight",)}
    part.unwritten = {"lm_head.weight": part.parameters["lm_head.weight"]}
    return derived(part, {"model.embed.weight": (size, 4)}, config=config)


def test_a_head_that_is_not_there_may_be_the_embedding() -> None:
    (question,) = untied(9, tie_word_embeddings=False).questions
    assert not question.blocks and question.answers[0].records == (Config(put={"tie_word_embeddings": True}),)
    assert question.answers[0].text == 'config=(Config(put={"tie_word_embeddings": True}),)'
    assert untied(8, tie_word_embeddings=False).questions == []
    assert untied(9, text_config={"tie_word_embeddings": False}).questions == []


@pytest.mark.parametrize(("shape", "dropped"), [((8, 8), True), ((8, 4), False)])
def test_nothing_is_dropped_that_a_parameter_may_wait_for(shape: tuple[int, ...], dropped: bool) -> None:
    part = Part("target", "Model", parameters={"model.other.strange": ((8, 4), "bfloat16")})
    part.unwritten = dict(part.parameters)
    part.refused = [Refused("model.rot", "KeyError", "", "", "model.rot")]
    found = derived(part, {"model.rot": shape})
    records = [record for one in found.questions for answer in one.answers for record in answer.records]
    assert records == ([Drop("model.rot")] if dropped else []) and not any(one.blocks for one in found.questions)


@pytest.mark.parametrize(
    ("scale", "asked", "found"), [((8, 1), False, True), ((8, 2), False, False), ((8, 1), True, False)]
)
def test_a_quantized_layer_that_asks_nothing_is_dequantized(scale: tuple[int, ...], asked: bool, found: bool) -> None:
    gate = f"{LAYER}.gate"
    part = Part("target", "Model", parameters={f"{gate}.weight": ((8, 4), "bfloat16")})
    part.landed = {f"{gate}.weight": (f"{gate}.weight",)}
    part.cast = [(f"{gate}.weight", "int8", f"{gate}.weight", "bfloat16")]
    part.frames = [Frame(gate, "linear", module=gate, float_method=True)] if asked else []
    records = derived(part, {f"{gate}.weight": (8, 4), f"{gate}.weight_scale": scale}).tensors
    assert records == ([Dequantize("model.layers.*.mlp.gate")] if found else [])
