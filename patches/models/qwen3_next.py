"""Qwen3-Next: the experts' row, and one in_proj of a quantized and a float shard on 0.11."""

from ascend_hotfix.records import Dequantize, Fix, ModelPatch, Packed, Scheme, per_expert

PATCH = ModelPatch(
    model_types=("qwen3_next", "qwen3_next_mtp"),
    fixes=(
        Fix(
            id="experts",
            why="the qwen3_next row of 0.11 has no experts, so quantized experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping of 0.11.0 and 0.12.0rc1",),
            versions={"vllm-ascend": ">=0.11,<0.12"},
            retire="0.12.0rc1 has the entry",
            packed=(Packed("experts", per_expert()),),
        ),
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
