"""Kimi-K2.5 and K2.6: the projector's names, and a language model that must keep its first segment."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("kimi_k25",),
    fixes=(
        Fix(
            id="wrapper-names",
            why="vLLM calls the projector's layers linear_1 and linear_2; until PR #6755 language_model is cut from what is asked, "
            "and from PR #7050 to PR #7347 the inverse of the model's mapper is asked",
            refs=(
                "vllm-ascend#7200",
                "vllm-ascend PR #6755",
                "vllm-ascend PR #7050",
                "vllm-ascend PR #7237",
                "vllm-ascend PR #7347",
            ),
            versions={"vllm-ascend": ">=0.14,<0.18"},
            retire="0.18.0rc1 maps the description with the model's own mapper",
            lookup=(
                Prefix("mm_projector.linear_1", "mm_projector.proj.0"),
                Prefix("mm_projector.linear_2", "mm_projector.proj.2"),
                Prefix("language_model.layers", "language_model.model.layers"),
                Prefix("model", "language_model.model"),
                Prefix("lm_head", "language_model.lm_head"),
            ),
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
    ),
)
