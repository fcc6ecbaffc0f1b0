"""Qwen2.5-Omni and Qwen3-Omni: ``thinker.`` in the description, and exports without it."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, Scheme, per_expert

BELOW_THINKER = (
    Prefix("visual", "thinker.visual"),
    Prefix("audio_tower", "thinker.audio_tower"),
    Prefix("language_model.model", "thinker.model"),
    Prefix("language_model.lm_head", "thinker.lm_head"),
    Prefix("model", "thinker.model"),
    Prefix("lm_head", "thinker.lm_head"),
)

ROWS = (
    Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
    Packed("gate_up_proj", ("gate_proj", "up_proj")),
)

PATCH = ModelPatch(
    model_types=(
        "qwen2_5_omni",
        "qwen2_5_omni_text",
        "qwen2_5_omni_thinker",
        "qwen3_omni_moe",
        "qwen3_omni_moe_text",
        "qwen3_omni_moe_thinker",
    ),
    fixes=(
        Fix(
            id="qwen2-5-thinker",
            model_types=("qwen2_5_omni", "qwen2_5_omni_text", "qwen2_5_omni_thinker"),
            why="ModelSlim writes thinker.model.* and thinker.visual.*; vLLM builds the thinker without that segment",
            refs=("vllm-ascend PR #6828", "vllm-ascend PR #7007", "vllm-ascend PR #7042", "vllm-ascend PR #8927"),
            versions={"vllm-ascend": ">=0.11"},
            retire="0.16.0rc1 has rows for a full Qwen2.5-Omni config, 0.18 maps the description; a config of the "
            "thinker alone (qwen2_5_omni_thinker) is not covered in any release",
            lookup=BELOW_THINKER,
            packed=(Packed("qkv", ("q", "k", "v")), *ROWS),
        ),
        Fix(
            id="qwen3-thinker",
            model_types=("qwen3_omni_moe", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker"),
            why="ModelSlim writes thinker.model.* and thinker.visual.*; vLLM builds the thinker without that segment",
            refs=("vllm-ascend PR #6828", "vllm-ascend PR #7007", "vllm-ascend PR #7042"),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.16.0rc1 has the rows, 0.18.0rc1 maps the description with the model's own mapper",
            lookup=BELOW_THINKER,
            packed=(
                Packed("attn_qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("experts", per_expert()),
                *ROWS,
            ),
        ),
        Fix(
            id="qwen3-no-thinker",
            model_types=("qwen3_omni_moe", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker"),
            why="an export without thinker. says model.* and lm_head, where vLLM asks language_model.*; embeddings "
            "have no entry in it",
            refs=("vllm-ascend PR #12321",),
            versions={"vllm-ascend": ">=0.13,<0.30"},
            retire="the 0.23 branch has it, 0.24 to 0.26 have lost it, 0.30 has it again",
            lookup=(
                Prefix("language_model.model", "model"),
                Prefix("language_model.lm_head", "lm_head"),
            ),
            weights=(
                Prefix("model", "thinker.model"),
                Prefix("lm_head", "thinker.lm_head"),
                Prefix("visual", "thinker.visual"),
                Prefix("audio_tower", "thinker.audio_tower"),
            ),
            types=(Scheme("**.embed_tokens"),),
        ),
    ),
)
