"""Qwen2.5-Omni: everything lies below ``thinker.`` in the description."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix

PATCH = ModelPatch(
    model_types=("qwen2_5_omni", "qwen2_5_omni_text", "qwen2_5_omni_thinker"),
    fixes=(
        Fix(
            id="thinker",
            why="ModelSlim writes thinker.model.* and thinker.visual.*; vLLM builds the thinker without that segment",
            refs=("vllm-ascend PR #6828", "vllm-ascend PR #7007", "vllm-ascend PR #7042", "vllm-ascend PR #8927"),
            versions={"vllm-ascend": ">=0.11"},
            retire="0.16.0rc1 has rows for a full Qwen2.5-Omni config, 0.18 maps the description; a config of the "
            "thinker alone (qwen2_5_omni_thinker) is not covered in any release",
            lookup=(
                Prefix("visual", "thinker.visual"),
                Prefix("audio_tower", "thinker.audio_tower"),
                Prefix("language_model.model", "thinker.model"),
                Prefix("language_model.lm_head", "thinker.lm_head"),
                Prefix("model", "thinker.model"),
                Prefix("lm_head", "thinker.lm_head"),
            ),
            packed=(
                Packed("qkv", ("q", "k", "v")),
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
            ),
        ),
    ),
)
