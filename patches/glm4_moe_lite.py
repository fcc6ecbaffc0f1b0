"""GLM-4.7-Flash: a row that older releases lack."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("glm4_moe_lite", "glm4_moe_lite_mtp"),
    fixes=(
        Fix(
            id="row",
            why="no packed row for glm4_moe_lite: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping before 0.15.0rc1",),
            versions={"vllm-ascend": ">=0.11,<0.15"},
            retire="0.15.0rc1 has the row",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
    ),
)
