"""MiniMax-M3: rows and the wrapper's names."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Segments, per_expert

PATCH = ModelPatch(
    model_types=("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"),
    fixes=(
        Fix(
            id="row",
            why="no packed rows for MiniMax-M3; the description says block_sparse_moe where the model says mlp",
            refs=("vllm-ascend d0127410ca", "vllm-ascend c505b440e2"),
            versions={"vllm-ascend": ">=0.18,<0.24"},
            retire="0.24.0rc1 has the rows",
            lookup=(Segments("mlp", "block_sparse_moe"),),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert("w1", "w3", "w2")),
            ),
        ),
    ),
)
