"""Output heads that vLLM builds without a prefix."""

from ascend_hotfix.records import Fix, ModelPatch, Unnamed

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="lm-head",
            why="the model file builds ParallelLMHead without a prefix, so the description is asked for '.weight'",
            refs=("vllm PR #24862", "vllm 0.11 qwen3_vl_moe.py"),
            versions={"vllm-ascend": ">=0.11,<0.16"},
            retire="from 0.16 on a name that begins nothing is taken for float",
            describe=(Unnamed("ParallelLMHead", "lm_head"),),
        ),
    ),
)
