"""Checkpoints whose tensors are fused otherwise than the loader expects."""

from ascend_hotfix.records import Fix, ModelPatch, Stack, Unfuse

PATCH = ModelPatch(
    model_types=(),
    fixes=(
        Fix(
            id="projections",
            model_types=("qwen2", "qwen3", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl", "qwen3_vl_text", "qwen3_moe"),
            why="the checkpoint has qkv_proj and gate_up_proj, cut for each rank or whole; the loader replaces v_proj and "
            "up_proj inside of these names (gate_gate_up_proj, qkqkv_proj)",
            refs=("vllm-ascend#11368", "vllm#48449"),
            versions={"vllm": ">=0.11,<0.30"},
            retire="the mapper of 0.30 replaces whole segments; --load-format sharded_state reads the per-rank export as well",
            tensors=(Stack("qkv_proj"), Stack("gate_up_proj")),
        ),
        Fix(
            id="experts",
            model_types=("qwen3_moe", "qwen2_moe"),
            why="reinforcement learning hands over Hugging Face's fused experts, the loader knows one tensor for each",
            refs=("ms-swift PR #9468",),
            versions={"vllm": ">=0.11"},
            retire="never fixed upstream",
            tensors=(
                Unfuse("experts.gate_up_proj", ("gate_proj", "up_proj")),
                Unfuse("experts.down_proj", ("down_proj",)),
            ),
        ),
    ),
)
