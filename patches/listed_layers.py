"""Layers that a quantization config of plain vLLM lists under another name than they are built with."""

from ascend_hotfix.records import Fix, ModelPatch, Prefix, Regex

PATCHES = (
    ModelPatch(
        name="vision_language_listed",
        model_types=("qwen2_vl", "qwen2_5_vl"),
        fixes=(
            Fix(
                id="inner-without-prefix",
                why="the language model was built without the wrapper's prefix, so layers listed as language_model.model.* were quantized",
                refs=("vllm PR #9772",),
                retire="every wrapper hands its prefix on",
                build=(Prefix("model", "language_model.model"),),
            ),
            Fix(
                id="unmapped-list",
                why="the config keeps the checkpoint's model.*, the layer asks as language_model.model.*",
                refs=("vllm PR #20046", "vllm#24244"),
                retire="every quantization config maps its list (apply_vllm_mapper)",
                lookup=(Prefix("language_model.model", "model"),),
            ),
        ),
    ),
    ModelPatch(
        name="qwen2_doubled_prefix",
        model_types=("qwen2",),
        fixes=(
            Fix(
                id="layer-number-twice",
                why="layers were built as model.layers.0.layers.N, and listed as model.layers.N",
                refs=("vllm#11790", "vllm PR #11795"),
                retire="vLLM 0.6.7 builds them as model.layers.N",
                lookup=(Regex(r"\blayers\.\d+\.layers\.", "layers."),),
            ),
        ),
    ),
)
