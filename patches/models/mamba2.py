"""Mamba-Codestral: the first segment of its tensors."""

from ascend_hotfix.records import Fix, ModelPatch, Prefix

PATCH = ModelPatch(
    model_types=("mamba2",),
    fixes=(
        Fix(
            id="backbone",
            why="Mamba-Codestral's checkpoint says model.*, vLLM's class backbone.*",
            refs=("vllm#31108", "vllm PR #31281, PR #31309"),
            versions={"vllm": ">=0.11"},
            retire="vLLM's class maps model. to backbone.",
            weights=(Prefix("model", "backbone"),),
        ),
    ),
)
