"""The parameters of fused experts, which vLLM 0.24 moved below ``routed_experts``."""

from ascend_hotfix.records import Fix, ModelPatch, Segments, Suffix

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="asked-by-old-name",
            why="vLLM 0.24 keeps experts.w13_weight as experts.routed_experts.w13_weight; loaders that were missed ask the old name",
            refs=(
                "vllm#41184",
                "vllm#49004 (DBRX in 0.24 and 0.25)",
                "vllm#45054 (Aria, Qwen3-VL-MoE, Step3-text, Step3.5)",
                "vllm#45045, vllm#45047, vllm#45067, vllm#45830, vllm#44953",
                "vllm 0.24 to 0.32: model_executor/models/step3p5_mtp.py",
            ),
            versions={"vllm": ">=0.24"},
            retire="no loader of the supported releases writes the old name any more",
            params=(Segments("experts.routed_experts", "experts"),),
        ),
        Fix(
            id="asked-by-new-name",
            why="up to vLLM 0.23 the parameter is experts.w13_weight; a loader written for 0.24 asks experts.routed_experts.w13_weight",
            refs=("vllm#41184", "vllm#45054"),
            versions={"vllm": "<0.24"},
            retire="vLLM 0.23 is no longer supported",
            params=(Suffix("experts.*", "experts.routed_experts.*"),),
        ),
    ),
)
