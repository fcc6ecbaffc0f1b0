"""Hunyuan-MoE: the experts' row, layers without a prefix, a router that is quantized in the checkpoint only."""

from ascend_hotfix.records import Dequantize, Fix, Inside, ModelPatch, Packed, per_expert

PATCH = ModelPatch(
    model_types=("hunyuan_v1_moe", "hunyuan"),
    fixes=(
        Fix(
            id="row",
            why="no packed row for hunyuan_v1_moe: fused experts are looked up under a name that no description has",
            refs=("vllm-ascend packed_modules_model_mapping, every release",),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.30 finds the experts' shards in the description",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
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
