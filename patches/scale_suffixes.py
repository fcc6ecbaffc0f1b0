"""Scales under the names of Mistral's exporter."""

from ascend_hotfix.records import Fix, ModelPatch, Suffix

PATCH = ModelPatch(
    model_types=("llama", "mistral", "mistral3", "ministral3"),
    fixes=(
        Fix(
            id="mistral-scales",
            why="the exporter writes activation_scale and weight_scale_inv; vLLM's layers have input_scale and weight_scale",
            refs=("vllm PR #41982 (Devstral-2)", "vllm#32673, vllm PR #32859 (Mistral-3)"),
            versions={"vllm": ">=0.11"},
            retire="the loader maps the suffixes itself",
            weights=(Suffix("activation_scale", "input_scale"), Suffix("weight_scale_inv", "weight_scale")),
        ),
    ),
)
