"""Qwen3-VL: the wrapper's names in the description."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl", "qwen3_vl_text"),
    fixes=(
        Fix(
            id="wrapper-order",
            why="ModelSlim writes model.language_model.* and model.visual.*; vLLM asks language_model.* and visual.*",
            refs=("vllm-ascend#4293",),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18 maps the description with the model's own mapper",
            lookup=(
                Prefix("visual", "model.visual"),
                Prefix("language_model.model", "model.language_model"),
                Prefix("language_model.lm_head", "lm_head"),
                Prefix("model", "model.language_model"),
                Prefix("layers", "model.language_model.layers"),
                Exact("embed_tokens", "model.language_model.embed_tokens"),
                Exact("", "lm_head"),
            ),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
