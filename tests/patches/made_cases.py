"""Cases on made-up checkpoints: the names of a public model, in its smallest form."""

from __future__ import annotations

from typing import Any

from case import Case, Fails

__all__ = ["CASES"]

LINEAR = (
    r"layers\.\d+\.(self_attn|attention|mlp)\.(?!gate\.|router|shared_expert_gate).*proj(_with_mqa)?\.weight$",
    "W8A8_DYNAMIC",
)
KV_B = (r"kv_b_proj\.weight$", "FLOAT")
BAILING = (r"layers\.\d+\.(attention|mlp)\..*(proj|proj_with_mqa|query_key_value|dense)\.weight$", "W8A8_DYNAMIC")


def made(shapes: str, *quantized: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A made-up checkpoint."""
    return {"made": "shaped", "args": {"name": shapes, "quantized": [list(one) for one in quantized]}, **more}


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
OMNI = (r"thinker\.model\.layers\.\d+\.(self_attn|mlp\.experts).*proj\.weight$", "W8A8_DYNAMIC")

CASES = (
    *(
        Case(
            "A wrapper without a patch of its own (Gemma 3) is described below model, its tied head not at all",
            "vllm 0.13 gemma3_mm.py",
            pair,
            made("gemma3", (r"language_model\.layers\.\d+\.(self_attn|mlp)\..*proj\.weight$", "W8A8_DYNAMIC")),
            Fails("KeyError", "vision_tower."),
            ("wrappers.order",),
        )
        for pair in ("0.11", "0.13")
    ),
    Case(
        "Qwen3-Omni is described below thinker",
        "vllm-project/vllm-ascend PR #6828/#7007/#7042",
        "0.13",
        made("qwen3_omni_moe", OMNI),
        Fails("KeyError", "visual."),
        ("qwen_omni.qwen3-thinker", "unprefixed.lm-head"),
    ),
    Case(
        "Qwen3-Omni is exported without thinker",
        "vllm-project/vllm-ascend PR #12321",
        "0.18",
        made("qwen3_omni_moe", OMNI, forget=[r"embed_tokens"], rename=[(r"^thinker\.", "")]),
        Fails("KeyError", "language_model."),
        ("qwen_omni.qwen3-no-thinker",),
    ),
    *(
        Case(
            "Qwen2-MoE has no row",
            "vllm-project/vllm-ascend#925",
            pair,
            made("qwen2_moe", LINEAR),
            Fails("KeyError", "model.layers.0.mlp.experts.weight"),
            ("qwen.qwen2-moe-row",),
        )
        for pair in ("0.13", "0.18", "0.23")
    ),
    Case(
        "ERNIE-4.5-MoE has no row",
        "baseline ernie4_5_moe",
        "0.18",
        made("ernie4_5_moe", LINEAR),
        Fails("KeyError", "model.layers.1.mlp.experts.weight"),
        ("ernie4_5_moe.row",),
    ),
    Case(
        "Ling-MoE has no row",
        "vllm-project/vllm-ascend PR (36dd62e75f) bailing_moe",
        "0.18",
        made("bailing_moe", BAILING),
        Fails("KeyError", "model.layers.1.mlp.experts.weight"),
        ("bailing.rows",),
        undo=("with_remote_config_classes",),
    ),
    Case(
        "Ling-hybrid is described below attention",
        "vllm-project/vllm-ascend PR #8709",
        "0.18",
        made("bailing_hybrid", KV_B, BAILING),
        Fails("KeyError", "model.layers.0.self_attn."),
        ("bailing.hybrid-names", "bailing.rows"),
        undo=("with_remote_config_classes",),
    ),
    Case(
        "GLM-4.7-Flash has no row",
        "matrix glm4_moe_lite",
        "0.23",
        made("glm4_moe_lite", KV_B, LINEAR),
        Fails("KeyError", "mlp.experts.weight"),
        ("glm4.flash-row",),
        release={"vllm-ascend": "0.14.0rc1"},
        undo=("without_glm_4_7_flash_row",),
    ),
    Case(
        "Gemma4 has no row",
        "matrix gemma4",
        "0.23",
        made("gemma4", (r"layers\.\d+\.(self_attn|mlp|experts).*proj\.weight$", "W8A8_DYNAMIC")),
        Fails("KeyError", "moe.experts"),
        ("gemma4.rows",),
    ),
    Case(
        "Mistral-4 has no row",
        "vllm-project/vllm-ascend PR (4506825cf2)",
        "0.23",
        made("mistral4", KV_B, LINEAR, config={"architectures": ["DeepseekV3ForCausalLM"], "rope_parameters": ROPE}),
        Fails("KeyError", "model.layers.1.mlp.experts.weight"),
        ("mistral4.row",),
    ),
    Case(
        "TeleChat4 has no row",
        "vllm-project/vllm-ascend PR (b16389cb5b)",
        "0.23",
        {"base": "kimi_k2-w8a8", "config": {"model_type": "telechat4"}},
        Fails("KeyError", "model.layers.1.mlp.experts.weight"),
        ("telechat4.row",),
        undo=("with_remote_config_classes",),
    ),
    Case(
        "MiniMax-M3 has no row",
        "vllm-project/vllm-ascend PR d0127410ca/c505b440e2",
        "0.23",
        {"base": "minimax_m2-w8a8", "config": {"model_type": "minimax_m3"}},
        Fails("KeyError", "model.layers.0.mlp.experts.weight"),
        ("minimax_m3.row",),
        undo=("with_remote_config_classes",),
    ),
    Case(
        "Ling-hybrid's draft is looked up under its own model type",
        "vllm-project/vllm-ascend PR (60f5ea0c7e) bailing MTP",
        "0.30",
        made("bailing_hybrid_mtp", KV_B, BAILING),
        Fails("KeyError", "model.layers.2.self_attn.q_a_proj.weight"),
        ("bailing.mtp-hybrid-names",),
        draft=True,
        undo=("with_draft_model_config",),
    ),
)
