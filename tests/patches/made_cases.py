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


OMNI = (r"thinker\.model\.layers\.\d+\.(self_attn|mlp\.experts).*proj\.weight$", "W8A8_DYNAMIC")

CASES = (
    Case(
        "Qwen3-Omni is described below thinker",
        "vllm-project/vllm-ascend PR #6828/#7007/#7042",
        "0.13",
        made("qwen3_omni_moe", OMNI),
        Fails("KeyError", "visual."),
        ("qwen3_omni_moe.thinker", "unnamed_head.lm-head"),
    ),
    Case(
        "Qwen3-Omni is exported without thinker",
        "vllm-project/vllm-ascend PR #12321",
        "0.18",
        made("qwen3_omni_moe", OMNI, forget=[r"embed_tokens"], rename=[(r"^thinker\.", "")]),
        Fails("KeyError", "language_model."),
        ("qwen3_omni_moe.no-thinker",),
    ),
    *(
        Case(
            "Qwen2-MoE has no row",
            "vllm-project/vllm-ascend#925",
            pair,
            made("qwen2_moe", LINEAR),
            Fails("KeyError", "model.layers.0.mlp.experts.weight"),
            ("qwen2_moe.row",),
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
        ("glm4_moe_lite.row",),
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
)
