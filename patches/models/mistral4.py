"""Mistral 4: rows under the wrapper's and the text model's names."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("mistral4", "mistral3", "mistral_large_3"),
    fixes=(
        Fix(
            id="row",
            why="no packed row for mistral4 and mistral3: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend 4506825cf2",),
            versions={"vllm-ascend": ">=0.13"},
            retire="open upstream; 0.30 finds the experts' shards in the description",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
