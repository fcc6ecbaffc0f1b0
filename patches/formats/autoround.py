"""Expert tensors whose number comes after the projection."""

from ascend_hotfix.records import Fix, ModelPatch, Regex

PATCH = ModelPatch(
    model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
    fixes=(
        Fix(
            id="number-last",
            why="AutoRound wrote experts.down_proj.0; the loader takes it for the fused tensor of all experts",
            refs=("intel/auto-round#1464",),
            versions={"vllm": ">=0.16"},
            retire="AutoRound writes experts.0.down_proj since its fix; checkpoints from before keep the names",
            weights=(Regex(r"\bexperts\.(gate_proj|up_proj|down_proj)\.(\d+)\.", r"experts.\2.\1."),),
        ),
    ),
)
