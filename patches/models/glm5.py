"""GLM-5 family: the row, and the rotation that belongs to the MTP draft."""

from ascend_hotfix.records import Drop, Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("glm_moe_dsa", "glm_moe_dsa_mtp"),
    fixes=(
        Fix(
            id="row",
            why="no packed row for glm_moe_dsa: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend PR #6642",),
            versions={"vllm-ascend": ">=0.11,<0.15"},
            retire="0.15.0rc1 has the row",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
        Fix(
            id="rot-weight",
            why="QuaRot exports carry a top-level rot.weight for the draft, which the target's loader refuses",
            refs=("vllm-ascend PR #10317", "vllm-ascend#9054", "vllm PR #41706"),
            versions={"vllm-ascend": ">=0.20,<0.21", "vllm": ">=0.21"},
            retire="0.21.0rc1 skips it in the target; builds of the plugin before that refuse it on vLLM 0.21",
            drop=(Drop("rot.weight"),),
        ),
    ),
)
