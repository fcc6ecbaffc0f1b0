"""Every other MoE model: the shards of fused experts, by the two namings that checkpoints use."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="experts",
            why="no packed row for the model: fused experts are looked up under a name that no description has",
            refs=("vllm-ascend#925", "vllm-ascend PR #16051"),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.30 finds the experts' shards in the description",
            packed=(
                Packed("experts", per_expert()),
                Packed("experts", per_expert("w1", "w3", "w2")),
            ),
        ),
    ),
)
