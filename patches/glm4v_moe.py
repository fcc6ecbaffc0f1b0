"""GLM-4.5V and GLM-4.6V: the wrapper's names, and a vision projection that is one tensor."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("glm4v_moe", "glm4v_moe_text", "glm4v", "glm4v_text"),
    fixes=(
        Fix(
            id="wrapper-order",
            why="ModelSlim writes model.language_model.* and model.visual.*; vLLM asks language_model.* and visual.*. "
            "The vision layers ask q_proj, k_proj and v_proj of what is one tensor, qkv",
            refs=("vllm-ascend PR #7062",),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.16.0rc1 has the rows, 0.18.0rc1 maps the description with the model's own mapper",
            lookup=(
                Prefix("visual.blocks.*.attn.q_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.k_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.v_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.qkv_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual", "model.visual"),
                Prefix("language_model.model", "model.language_model"),
                Prefix("language_model.lm_head", "lm_head"),
                Prefix("model", "model.language_model"),
                Prefix("layers", "model.language_model.layers"),
            ),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
