"""MiniMax-M3: rows, and names in lists of layers that are not quantized."""

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
        Fix(
            id="listed-vision-mlp",
            model_types=("minimax_m3", "minimax_m3_vl"),
            why="the mapper turns '.mlp.fc1.' into '.fc1.', but names in the list end without a dot: layers.0.mlp.fc1 stays",
            refs=("vllm PR #51910",),
            versions={"vllm": ">=0.26"},
            retire="the AMD model file of 0.30 has the rule without the dot",
            lookup=(Segments("fc1", "mlp.fc1"), Segments("fc2", "mlp.fc2")),
        ),
        Fix(
            id="listed-rows",
            model_types=("minimax_m3", "minimax_m3_vl"),
            why="the list names q_proj, k_proj, v_proj, gate_proj and up_proj; the class had no row for the fused layers",
            refs=("vllm PR #45794",),
            versions={"vllm": ">=0.23"},
            retire="0.24 has both rows in its classes",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
            ),
        ),
    ),
)
