"""W8A8_MIX: biases that outlier smoothing leaves, which the dynamic path needs."""

from ascend_hotfix.records import Bias, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="smoothing-bias",
            why="the q, k, v, gate and up projections have a bias in the checkpoint and none in vLLM; the static path has it in "
            "quant_bias, the dynamic path answers wrongly without it",
            refs=("vllm-ascend w8a8_pdmix.py", "msmodelslim anti-outlier m4"),
            versions={"vllm-ascend": ">=0.13"},
            retire="never fixed upstream; nothing happens for a checkpoint without such tensors",
            layers=(Bias("**.qkv_proj"), Bias("**.gate_up_proj")),
        ),
    ),
)
