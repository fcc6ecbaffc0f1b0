"""Layers that a checkpoint has quantized while its quantization config leaves them in float."""

from ascend_hotfix.records import Dequantize, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("llama", "mistral", "qwen2", "qwen3"),
    fixes=(
        Fix(
            id="scale-without-parameter",
            why="the layer is built unquantized and the checkpoint has a scale for it; the loader takes the layer itself for the "
            "missing parameter",
            refs=("vllm#53107", "vllm PR #53118"),
            versions={"vllm": ">=0.27"},
            retire="never: it depends on the export; PR #53118 makes it a clear error",
            tensors=(
                Dequantize("model.layers.*.self_attn.q_proj"),
                Dequantize("model.layers.*.self_attn.k_proj"),
                Dequantize("model.layers.*.self_attn.v_proj"),
                Dequantize("model.layers.*.self_attn.o_proj"),
                Dequantize("model.layers.*.mlp.gate_proj"),
                Dequantize("model.layers.*.mlp.up_proj"),
                Dequantize("model.layers.*.mlp.down_proj"),
            ),
        ),
    ),
)
