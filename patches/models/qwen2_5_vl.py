"""Checkpoints of plain vLLM models whose tensor names start otherwise than the release expects."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Prefix

PATCHES = (
    ModelPatch(
        name="mamba_codestral",
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
    ),
    ModelPatch(
        name="qwen3_embedding",
        model_types=("qwen3", "qwen2"),
        fixes=(
            Fix(
                id="no-model-prefix",
                why="embedding checkpoints are saved from the inner model and lack model.*",
                refs=("vllm#21614", "vllm#21823"),
                versions={"vllm": ">=0.11"},
                retire="every class that is served for pooling maps the names",
                weights=(
                    Prefix("layers", "model.layers"),
                    Prefix("embed_tokens", "model.embed_tokens"),
                    Exact("norm.weight", "model.norm.weight"),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="qwen2_5_vl_saved_by_4_52",
        model_types=("qwen2_5_vl", "qwen2_vl"),
        fixes=(
            Fix(
                id="wrapper-prefix",
                why="transformers 4.52 saves model.visual.* and model.language_model.*; older mappers know visual.* and model.*",
                refs=("verl#1710", "LlamaFactory#8254", "GPTQModel#1788", "vllm PR #19054"),
                versions={"vllm": ">=0.11"},
                retire="vLLM 0.9.1 maps both layouts",
                weights=(Prefix("model.visual", "visual"), Prefix("model.language_model", "language_model.model")),
            ),
        ),
    ),
)
