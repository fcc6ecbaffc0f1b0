"""Kimi-K2: the fused query and key-value projection."""

from ascend_hotfix.records import Fix, ModelPatch, Packed

PATCH = ModelPatch(
    model_types=("kimi_k2", "deepseek_v32"),
    fixes=(
        Fix(
            id="fused-qkv-a",
            why="vLLM builds self_attn.fused_qkv_a_proj; the packed row of 0.11 lacks it",
            refs=("vllm-ascend#3785",),
            versions={"vllm-ascend": ">=0.11,<0.12"},
            retire="0.12.0rc1 has the entry",
            packed=(Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),),
        ),
    ),
)
