"""TeleChat4: a row that no release has."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("telechat4",),
    fixes=(
        Fix(
            id="row",
            why="no packed row for telechat4: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend b16389cb5b",),
            versions={"vllm-ascend": ">=0.23"},
            retire="open upstream; 0.30 finds the experts' shards in the description",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
