"""Qwen3-VL, dense and MoE: the wrapper's names in the description."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
    fixes=(
        Fix(
            id="wrapper-order",
            why="ModelSlim writes model.language_model.* and model.visual.*; vLLM asks language_model.* and visual.*",
            refs=("vllm-ascend#4293", "vllm-ascend PR #4292", "vllm-ascend PR #7383"),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18.0rc1 maps the description with the model's own mapper; 0.13 has the row under the text "
            "model_type, 0.14 to 0.17 have a row for the dense model that nothing asks",
            lookup=(
                Prefix("visual", "model.visual"),
                Prefix("language_model.model", "model.language_model"),
                Prefix("language_model.lm_head", "lm_head"),
                Prefix("model", "model.language_model"),
                Prefix("layers", "model.language_model.layers"),
                Exact("embed_tokens", "model.language_model.embed_tokens"),
            ),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="lm-head",
            why="vLLM builds lm_head with that prefix, while the mapped description says language_model.lm_head",
            refs=("vllm-ascend#8367", "vllm-ascend PR #7868", "vllm-ascend PR #9972"),
            versions={"vllm-ascend": ">=0.18.0rc1,<0.21"},
            retire="0.18.0 has the alias for qwen3_vl in the general config class, 0.21.0rc1 for every model and class",
            lookup=(Exact("lm_head", "language_model.lm_head"),),
        ),
    ),
)
