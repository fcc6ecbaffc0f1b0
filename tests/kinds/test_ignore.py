"""Lists of unquantized layers in other formats than ModelSlim's, with upstream's own config classes and mappers."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"
QWEN_VL = "vllm.model_executor.models.qwen2_5_vl:Qwen2_5_VLForConditionalGeneration"
M3 = "vllm.models.minimax_m3.nvidia.model:MiniMaxM3SparseForConditionalGeneration"
EXPERTS = "model.layers.1.mlp.experts"
CASES = {
    "quark-experts": (
        "0.23.0",
        "vllm PR #48226",
        {
            "method": "quark",
            "listed": [f"{EXPERTS}.{e}.{p}_proj" for e in range(4) for p in ("gate", "up", "down")],
            "asked": {EXPERTS: "experts"},
            "model_type": "glm_moe_dsa",
        },
    ),
    "awq-experts": (
        "0.11.0",
        "vllm#23025",
        {
            "method": "moe_wna16",
            "listed": [f"{EXPERTS}.{e}.{p}_proj" for e in range(4) for p in ("gate", "up", "down")],
            "asked": {EXPERTS: "experts"},
            "model_type": "glm4_moe",
        },
    ),
    "quark-wrapper-names": (
        "0.30.0rc2",
        "vllm#54547",
        {
            "method": "quark",
            "listed": [
                *(f"model.language_model.layers.0.self_attn.{p}_proj" for p in "qkv"),
                "model.visual.merger.proj",
                "lm_head",
            ],
            "asked": {
                "language_model.model.layers.0.self_attn.qkv_proj": "linear",
                "visual.merger.proj": "linear",
                "language_model.lm_head": "linear",
            },
            "model_type": "glm5_next",
            "fused": {"qkv_proj": ["q_proj", "k_proj", "v_proj"]},
        },
    ),
    "minimax-m3-vision": (
        "0.30.0rc2",
        "vllm PR #51910",
        {
            "method": "compressed-tensors",
            "listed": ["vision_tower.vision_model.encoder.layers.0.mlp.fc1"],
            "asked": {"vision_tower.vision_model.encoder.layers.0.fc1": "linear"},
            "model_type": "minimax_m3_vl",
            "mapper": M3,
        },
    ),
    "qwen2_5_vl-head": (
        "0.11.0",
        "vllm#25124",
        {
            "method": "compressed-tensors",
            "listed": ["lm_head"],
            "asked": {"language_model.lm_head": "linear"},
            "model_type": "qwen2_5_vl",
            "mapper": QWEN_VL,
        },
    ),
}

CASES |= {
    "minimax-m3-rows": (
        "0.30.0rc2",
        "vllm PR #45794",
        {
            "method": "quark",
            "listed": [f"language_model.model.layers.0.self_attn.{p}_proj" for p in "qkv"]
            + [f"language_model.model.layers.0.mlp.{p}_proj" for p in ("gate", "up")],
            "asked": {
                "language_model.model.layers.0.self_attn.qkv_proj": "linear",
                "language_model.model.layers.0.mlp.gate_up_proj": "linear",
            },
            "model_type": "minimax_m3_vl",
        },
    ),
    "deepseek-v4-draft": (
        "0.23.0",
        "vllm#43304",
        {
            "method": "compressed-tensors",
            "listed": ["lm_head"],
            "asked": {"model.layers.2.ffn.experts": "experts"},
            "model_type": "deepseek_v4",
            "stored": ["mtp.0.ffn.experts.0.w1.weight"],
        },
    ),
    "omni-router": (
        "0.11.0",
        "vllm-omni#5573",
        {
            "method": "compressed-tensors",
            "listed": ["lm_head"],
            "asked": {
                "thinker.model.layers.0.mlp.experts.gate": "linear",
                "language_model.model.layers.1.mlp.gate": "linear",
            },
            "model_type": "qwen3_omni_moe",
            "stored": [f"thinker.model.layers.{n}.mlp.gate.weight" for n in range(2)],
        },
    ),
}


@pytest.mark.parametrize(("pair", "name"), [(pair, name) for name, (pair, _, _) in CASES.items()])
def test_a_listed_layer_is_not_quantized_whatever_vllm_calls_it(upstream: Any, pair: str, name: str) -> None:
    arguments = CASES[name][2]
    stock = upstream(pair, "skipped", models=STOCK, **arguments)
    assert not [
        kind
        for kind in stock["chosen"].values()
        if kind.startswith("Unquantized") or kind == "AscendUnquantizedLinearMethod"
    ]
    fixed = upstream(pair, "skipped", **arguments)
    assert all("Unquantized" in kind for kind in fixed["chosen"].values()), fixed["chosen"]
    assert sum(fixed["hits"].values()) >= len(arguments["asked"])


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_experts_have_the_scheme_of_linear_layers(upstream: Any, pair: str) -> None:
    """vllm-ascend PR #12665, PR #13134: the class of the experts is no target of the config."""
    with pytest.raises(CaseError, match="KeyError: None"):
        upstream(pair, "split_experts", models=STOCK)
    fixed = upstream(pair, "split_experts")
    assert (fixed["chosen"], fixed["hits"]) == ("AscendFusedMoEMethod", {"compressed_tensors.routed-experts": 1})
    assert "W8A8" in fixed["scheme"]


@pytest.mark.parametrize("pair", ["0.23.0"])
def test_a_layer_that_is_not_listed_stays_quantized(upstream: Any, pair: str) -> None:
    arguments = {**CASES["quark-experts"][2], "listed": ["model.layers.2.mlp.experts.0.gate_proj"]}
    fixed = upstream(pair, "skipped", **arguments)
    assert "Unquantized" not in fixed["chosen"][EXPERTS] and fixed["hits"] == {}
