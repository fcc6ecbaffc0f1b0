"""Tensors of a quantized router in a checkpoint whose router vLLM builds in float."""

from ascend_hotfix.records import Drop, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"),
    fixes=(
        Fix(
            id="gate-g-idx",
            why="GPTQ exports keep g_idx beside a router that is not quantized; the loader finds no such parameter",
            refs=("vllm#25029", "vllm PR #28663"),
            versions={"vllm": ">=0.11"},
            retire="the loader skips g_idx of float layers",
            drop=(Drop("model.layers.*.mlp.gate.g_idx"), Drop("model.language_model.layers.*.mlp.gate.g_idx")),
        ),
    ),
)
