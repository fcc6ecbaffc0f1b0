"""Qwen3-Next on 0.11: one in_proj of a quantized and a float shard."""

from ascend_hotfix.records import Dequantize, Fix, ModelPatch, Scheme

PATCH = ModelPatch(
    model_types=("qwen3_next", "qwen3_next_mtp"),
    fixes=(
        Fix(
            id="mixed-in-proj",
            why="vllm-ascend 0.11 builds in_proj from in_proj_qkvz, quantized in the checkpoint, and in_proj_ba, which is float",
            refs=("vllm-ascend 0.11 models/qwen3_next.py", "vllm-ascend packed_modules_model_mapping of 0.11.0"),
            versions={"vllm-ascend": ">=0.11,<0.12"},
            retire="0.12 builds the two apart",
            override="one layer has one scheme: the quantized shard is loaded as float, 2 bytes an element instead of 1",
            types=(Scheme("**.linear_attn.in_proj_qkvz"),),
            tensors=(Dequantize("**.linear_attn.in_proj_qkvz"),),
        ),
    ),
)
