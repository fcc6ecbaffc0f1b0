"""MiniMax-M2 and M2.5: experts that the description keeps under block_sparse_moe."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Segments, per_expert

PATCH = ModelPatch(
    model_types=("minimax_m2", "minimax"),
    fixes=(
        Fix(
            id="row",
            why="vLLM asks mlp.experts, the description says block_sparse_moe.experts.N.w1, w2, w3",
            refs=("vllm-ascend packed_modules_model_mapping before 0.13.0rc2",),
            versions={"vllm-ascend": ">=0.11,<0.13.0rc2"},
            retire="0.13.0rc2 has the row and the rename",
            lookup=(Segments("mlp", "block_sparse_moe"),),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("experts", per_expert("w1", "w3", "w2")),
            ),
        ),
    ),
)
