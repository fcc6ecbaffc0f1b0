"""Qwen2-MoE: a row that no release has."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("qwen2_moe",),
    fixes=(
        Fix(
            id="row",
            why="no packed row for qwen2_moe: fused experts are looked up under a name that no description has",
            refs=("vllm-ascend#925",),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.30 finds the experts' shards in the description",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
