"""Expert tensors whose number comes after the projection."""

from ascend_hotfix.records import Fix, ModelPatch, Segments

PATCH = ModelPatch(
    model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
    fixes=(
        Fix(
            id="number-last",
            why="AutoRound wrote experts.down_proj.0; the loader takes it for the fused tensor of all experts",
            refs=("intel/auto-round#1464",),
            versions={"vllm": ">=0.16"},
            retire="AutoRound writes experts.0.down_proj since its fix; checkpoints from before keep the names",
            weights=(
                Segments("experts.gate_proj.*", "experts.*.gate_proj"),
                Segments("experts.up_proj.*", "experts.*.up_proj"),
                Segments("experts.down_proj.*", "experts.*.down_proj"),
            ),
        ),
    ),
)
