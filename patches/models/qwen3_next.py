"""Qwen3-Next: the experts' row."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("qwen3_next", "qwen3_next_mtp"),
    fixes=(
        Fix(
            id="experts",
            why="the qwen3_next row of 0.11 has no experts, so quantized experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping of 0.11.0 and 0.12.0rc1",),
            versions={"vllm-ascend": ">=0.11,<0.12"},
            retire="0.12.0rc1 has the entry",
            packed=(Packed("experts", per_expert()),),
        ),
    ),
)
