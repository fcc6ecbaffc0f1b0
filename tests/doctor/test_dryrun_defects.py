"""Every defect that upstream takes in silence or stops at, in a made-up Qwen3-MoE: each is found, on every pair."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pairs import EACH_PAIR
from writer import Spec, genuine, tiny

ATTENTION = "model.layers.0.self_attn"
EXPERT = "model.layers.0.mlp.experts.1"
NORM = "model.layers.0.input_layernorm.weight"


def qwen3_moe() -> Spec:
    """The tiny checkpoint with a config that vLLM takes."""
    spec = tiny(layers=2)
    spec.config.update(
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        intermediate_size=64,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        hidden_act="silu",
        attention_bias=False,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        initializer_range=0.02,
        torch_dtype="bfloat16",
    )
    return spec


def grown(name: str, rows: int = 0, columns: int = 0) -> Any:
    def change(spec: Spec) -> None:
        dtype, shape = spec.main[name]
        spec.main[name] = dtype, [shape[0] + rows, *([shape[1] + columns] if len(shape) > 1 else [])]

    return change


def shaped(name: str, *shape: int) -> Any:
    return lambda spec: spec.change(name, shape=list(shape))


def retyped(name: str, dtype: str) -> Any:
    return lambda spec: spec.change(name, dtype=dtype)


def without(*names: str) -> Any:
    return lambda spec: [spec.drop(name, described=False) for name in names]


def foreign(name: str) -> Any:
    return lambda spec: spec.add(name, "BF16", [8])


REFUSED = {"tensor-shape-refused", "tensor-refused", "tensor-failed"}
# What was done, and the codes of which at least one must be reported.
DEFECTS: dict[str, tuple[Any, set[str]]] = {
    "q_proj has 8 rows more": (grown(f"{ATTENTION}.q_proj.weight", rows=8), {"tensor-cut"}),
    "o_proj has 8 columns more": (grown(f"{ATTENTION}.o_proj.weight", columns=8), {"tensor-cut"}),
    "an expert's gate has 8 columns more": (grown(f"{EXPERT}.gate_proj.weight", columns=8), {"tensor-cut", *REFUSED}),
    "an expert's gate has 8 rows more": (grown(f"{EXPERT}.gate_proj.weight", rows=8), {"tensor-cut", *REFUSED}),
    "an expert's scale has one dimension": (shaped(f"{EXPERT}.up_proj.weight_scale", 32), {"tensor-spread", *REFUSED}),
    "an expert's scale is a single value": (
        shaped(f"{EXPERT}.up_proj.weight_scale", 1, 1),
        {"tensor-spread", "parameter-partial", *REFUSED},
    ),
    "a norm has 8 values more": (grown(NORM, rows=8), REFUSED),
    "a norm is a single value": (shaped(NORM, 1), REFUSED),
    "an int8 weight is bf16": (retyped(f"{ATTENTION}.o_proj.weight", "BF16"), {"float-into-quantized"}),
    "a bf16 weight is int8": (retyped("lm_head.weight", "I8"), {"quantized-into-float"}),
    "q_proj has 8 rows less": (grown(f"{ATTENTION}.q_proj.weight", rows=-8), REFUSED),
    "q_proj has 8 columns more": (grown(f"{ATTENTION}.q_proj.weight", columns=8), REFUSED),
    "o_proj has 8 columns less": (grown(f"{ATTENTION}.o_proj.weight", columns=-8), REFUSED),
    "o_proj has 8 rows more": (grown(f"{ATTENTION}.o_proj.weight", rows=8), REFUSED),
    "an expert's gate is missing": (without(f"{EXPERT}.gate_proj.weight"), {"parameter-partial"}),
    "deq_scale of o_proj is missing": (without(f"{ATTENTION}.o_proj.deq_scale"), {"parameter-unwritten"}),
    "all of o_proj is missing": (
        without(
            *(
                f"{ATTENTION}.o_proj.{leaf}"
                for leaf in ("weight", "input_scale", "input_offset", "deq_scale", "quant_bias")
            )
        ),
        {"parameter-unwritten"},
    ),
    "a linear layer has a foreign tensor": (foreign(f"{ATTENTION}.o_proj.bogus"), {"tensor-unused", *REFUSED}),
    "an expert has a foreign tensor": (foreign(f"{EXPERT}.gate_proj.bogus"), {"tensor-unused", *REFUSED}),
    "a tensor belongs to nothing": (foreign("foo.bar.weight"), {"tensor-unused", *REFUSED}),
    "the description lacks a name": (
        lambda spec: spec.description.pop(f"{ATTENTION}.o_proj.weight"),
        {"lookup-missing", "lookup-silent"},
    ),
}


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_a_right_checkpoint_gives_no_finding(upstreams: Any, pair: str, tmp_path: Path) -> None:
    assert upstreams.check(pair, qwen3_moe().write(tmp_path)) == []


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_every_defect_is_found_and_named_once(upstreams: Any, pair: str, tmp_path: Path) -> None:
    wrong = []
    for number, (defect, (change, codes)) in enumerate(DEFECTS.items()):
        spec = qwen3_moe()
        change(spec)
        findings = upstreams.check(pair, spec.write(tmp_path / str(number)))
        if not codes & {finding.code for finding in findings}:
            wrong.append((defect, [finding.message for finding in findings]))
    assert wrong == []


RENAMED = {
    "a module": ("layers.1.self_attn.o_proj", "layers.1.self_attn.out_proj"),
    "a shard": ("layers.1.self_attn.q_proj", "layers.1.self_attn.query_proj"),
    "a shard by a name that says nothing": ("layers.1.self_attn.k_proj", "layers.1.self_attn.first_"),
    "a norm": ("layers.1.input_layernorm", "layers.1.attention_layernorm"),
    "an expert": ("layers.1.mlp.experts.3.gate_proj", "layers.1.mlp.experts.3.gate_projection"),
    "all experts": (".experts.", ".expert_list."),
    "a leaf": ("layers.1.self_attn.o_proj.deq_scale", "layers.1.self_attn.o_proj.dequant_scale"),
    "all tensors": ("model.", "core.model."),
}


def renamed(spec: Spec, old: str, new: str) -> Spec:
    """The tensors of *spec* under other names."""
    spec.files = {
        file: {name.replace(old, new): entry for name, entry in held.items()} for file, held in spec.files.items()
    }
    return spec


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_what_stays_unwritten_for_a_renamed_tensor_belongs_to_its_finding(
    upstreams: Any, pair: str, tmp_path: Path
) -> None:
    wrong = {}
    for what, (old, new) in RENAMED.items():
        findings = upstreams.check(pair, renamed(qwen3_moe(), old, new).write(tmp_path / what))
        if not findings or {finding.code for finding in findings} - {
            "tensor-refused",
            "tensor-failed",
            "tensor-unused",
        }:
            wrong[what] = [finding.message for finding in findings]
    assert wrong == {}


def test_what_no_tensor_would_fill_is_told_beside_a_renamed_one(upstreams: Any, tmp_path: Path) -> None:
    spec = renamed(qwen3_moe(), *RENAMED["a module"])
    without(f"{ATTENTION}.o_proj.quant_bias", "model.layers.1.self_attn.q_norm.weight", f"{EXPERT}.up_proj.weight")(
        spec
    )
    findings = upstreams.check("0.30", spec.write(tmp_path))
    told = {example for finding in findings if finding.code.startswith("parameter-") for example in finding.examples}
    assert {name.partition("layers.")[2] for name in told} == {
        "0.self_attn.o_proj.quant_bias",
        "1.self_attn.q_norm.weight",
        "0.mlp.experts.routed_experts.w13_weight",
    }


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_all_faults_are_found_in_one_run(upstreams: Any, pair: str, tmp_path: Path) -> None:
    spec = qwen3_moe()
    foreign("foo.bar.weight")(spec)
    without(f"{EXPERT}.gate_proj.weight")(spec)
    grown("model.layers.1.self_attn.q_proj.weight", rows=-8)(spec)
    assert spec.description is not None
    spec.description.pop(f"{ATTENTION}.o_proj.weight")
    retyped("model.layers.1.self_attn.o_proj.weight", "BF16")(spec)
    codes = {finding.code for finding in upstreams.check(pair, spec.write(tmp_path))}
    assert codes & {"lookup-missing", "lookup-silent"}
    assert {"parameter-partial", "float-into-quantized", "tensor-shape-refused"} <= codes
    assert codes & {"tensor-refused", "tensor-unused"}


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_a_vocabulary_that_is_padded_and_a_tied_head_are_no_faults(upstreams: Any, pair: str, tmp_path: Path) -> None:
    """vLLM pads a vocabulary to 64 rows, with zeros of its own, and takes no head where it is the embedding."""
    spec = genuine("qwen2_5-w8a8")
    words = spec.config["vocab_size"] - 19
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        spec.change(name, shape=[words, spec.config["hidden_size"]])
    spec.config.update(vocab_size=words, tie_word_embeddings=True)
    assert upstreams.check(pair, spec.write(tmp_path)) == []


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_of_sizes_that_do_not_fit_no_consequence_is_told(upstreams: Any, pair: str, tmp_path: Path) -> None:
    spec = genuine("qwen2_5-w8a8")
    spec.config["intermediate_size"] *= 2
    spec.config["vocab_size"] *= 2
    found = upstreams.check(pair, spec.write(tmp_path))
    assert {finding.code for finding in found} - {"tensor-unused"} == {"tensor-shape-refused"}
    assert any(re.search(r"of shape \d+x\d+ such as model.layers.0.mlp", finding.message) for finding in found)


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_a_wrong_prefix_is_one_finding(upstreams: Any, pair: str, tmp_path: Path) -> None:
    spec = qwen3_moe()
    assert spec.description is not None
    renamed = {name.replace("model.layers", "model.blocks.layers"): scheme for name, scheme in spec.description.items()}
    spec.description = renamed
    found = [f for f in upstreams.check(pair, spec.write(tmp_path)) if f.code in ("lookup-missing", "lookup-silent")]
    assert len(found) == 1
    assert found[0].count >= 8 and len(found[0].examples) == 2
