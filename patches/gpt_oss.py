"""gpt-oss exported by ModelSlim: a row that no release has."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("gpt_oss",),
    fixes=(
        Fix(
            id="row",
            why="no packed row for gpt_oss: qkv_proj and experts are looked up under the fused names",
            refs=("vllm-ascend#2228",),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.30 finds the experts' shards in the description",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("qkv", ("q_proj", "k_proj", "v_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
