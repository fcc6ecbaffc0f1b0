"""Hunyuan-MoE: layers that vLLM builds without a prefix, and a router that is quantized in the checkpoint only."""

from ascend_hotfix.records import Dequantize, Fix, Inside, ModelPatch

PATCH = ModelPatch(
    model_types=("hunyuan_v1_moe", "hunyuan"),
    fixes=(
        Fix(
            id="shared-mlp-prefix",
            why="the shared expert is built without a prefix: .gate_up_proj is in no description, and the second layer stops at "
            "a duplicate name .down_proj",
            refs=("vllm hunyuan_v1.py, HunYuanSparseMoeBlock", "vllm PR #48682"),
            versions={"vllm": ">=0.11,<0.30"},
            retire="vLLM 0.30 has no class of its own for this model",
            layers=(Inside("HunYuanMLP", "HunYuanSparseMoeBlock", "shared_mlp"),),
        ),
        Fix(
            id="router",
            why="mlp.gate.wg is W8A8_DYNAMIC in the checkpoint and a float mlp.gate in vLLM",
            refs=("msmodelslim 26.1.0, default adapter", "vllm hunyuan_v1.py"),
            versions={"vllm": ">=0.11,<0.30"},
            retire="vLLM 0.30 has no class of its own for this model",
            tensors=(Dequantize("**.mlp.gate.wg"),),
        ),
    ),
)
