"""Quant descriptions that vllm-ascend does not find, or does not read."""

from ascend_hotfix.records import DescriptionFile, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="file-name",
            why="the description has another file name, or config.json's quantization_config keeps it from being read: every "
            "layer is then looked up in a description that says nothing of it",
            refs=(
                "vllm-ascend#569",
                "vllm-ascend#876",
                "vllm-ascend#2290",
                "vllm-ascend#2296",
                "vllm-ascend PR #9734",
            ),
            versions={"vllm-ascend": ">=0.11"},
            retire="never fixed upstream",
            describe=(
                DescriptionFile("quant_model_description*.json"),
                DescriptionFile("*quant_model_description.json"),
            ),
        ),
    ),
)
