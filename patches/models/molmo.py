"""Molmo: vision layers that are built without a prefix."""

from ascend_hotfix.records import ByPath, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("molmo", "molmo2"),
    fixes=(
        Fix(
            id="vision-prefix",
            why="the vision layers are built without a prefix, so a list of unquantized layers that names them does not fit",
            refs=("vllm PR #32385", "vllm PR #22716"),
            versions={"vllm": ">=0.11,<0.18"},
            retire="vLLM 0.18 hands the prefix on",
            layers=(ByPath("vision_backbone.**"),),
        ),
    ),
)
