"""Experts whose class a quantization config does not know by name."""

from ascend_hotfix.records import ClassAlias, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="routed-experts",
            why="vLLM 0.24 split the experts' class; a config of compressed-tensors that targets Linear finds no target for RoutedExperts",
            refs=("vllm-ascend PR #12665", "vllm-ascend PR #13134", "vllm PR #41184"),
            versions={"vllm": ">=0.24", "vllm-ascend": ">=0.24,<0.26"},
            retire="PR #12665 gives RoutedExperts the scheme of Linear",
            describe=(ClassAlias("RoutedExperts", "Linear"),),
        ),
    ),
)
