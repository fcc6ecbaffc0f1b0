"""openPangu Ultra MoE and its MTP draft."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("pangu_ultra_moe", "pangu_ultra_moe_mtp"),
    fixes=(
        Fix(
            id="row",
            why="no packed row: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping before 0.13.0rc1",),
            versions={"vllm-ascend": ">=0.11,<0.13"},
            retire="0.13.0rc1 has the rows",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
    ),
)
