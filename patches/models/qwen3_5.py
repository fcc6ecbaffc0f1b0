"""Qwen3.5 and 3.6: dense and MoE, text-only checkpoints, the MTP draft."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5_mtp"),
    fixes=(
        Fix(
            id="text-rows",
            why="the packed rows are keyed by the multimodal model_type, a text-only checkpoint has qwen3_5(_moe)_text",
            refs=("vllm-ascend PR #14885", "vllm-ascend PR #14238"),
            versions={"vllm-ascend": ">=0.16.0rc1,<0.30"},
            retire="0.30 takes the rows of the model class and finds the experts' shards itself",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("in_proj_qkvz", ("in_proj_qkv", "in_proj_z")),
                Packed("in_proj_ba", ("in_proj_b", "in_proj_a")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="lm-head",
            why="the draft builds lm_head with that prefix, while the mapped description says language_model.lm_head",
            refs=("vllm-ascend PR #9972",),
            versions={"vllm-ascend": ">=0.18.0rc1,<0.21"},
            retire="0.21.0rc1 looks under language_model.lm_head itself",
            lookup=(Exact("lm_head", "language_model.lm_head"),),
        ),
        Fix(
            id="wrapper-order",
            why="0.16 and 0.17 have the row under the wrapper's model_type alone; the description is not mapped there",
            refs=("vllm-ascend PR #7383",),
            versions={"vllm-ascend": ">=0.16.0rc1,<0.18"},
            retire="0.18.0rc1 maps the description with the model's own mapper",
            lookup=(
                Prefix("visual", "model.visual"),
                Prefix("language_model.model", "model.language_model"),
                Prefix("language_model.lm_head", "lm_head"),
                Prefix("model", "model.language_model"),
            ),
        ),
    ),
)
