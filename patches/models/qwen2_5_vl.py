"""Qwen2-VL and Qwen2.5-VL: the wrapper's names, in tensors and in lists of layers that are not quantized."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Prefix

PATCH = ModelPatch(
    model_types=("qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl"),
    fixes=(
        Fix(
            id="wrapper-tensors",
            model_types=("qwen2_5_vl", "qwen2_vl"),
            why="transformers 4.52 saves model.visual.* and model.language_model.*; older mappers know visual.* and model.*",
            refs=("verl#1710", "LlamaFactory#8254", "GPTQModel#1788", "vllm PR #19054"),
            versions={"vllm": ">=0.11"},
            retire="vLLM 0.9.1 maps both layouts",
            weights=(Prefix("model.visual", "visual"), Prefix("model.language_model", "language_model.model")),
        ),
        Fix(
            id="inner-without-prefix",
            model_types=("qwen2_vl", "qwen2_5_vl"),
            why="the language model was built without the wrapper's prefix, so layers listed as language_model.model.* were quantized",
            refs=("vllm PR #9772",),
            versions={"vllm": ">=0.11"},
            retire="every wrapper hands its prefix on",
            build=(Prefix("model", "language_model.model"),),
        ),
        Fix(
            id="listed-wrapper-order",
            model_types=("qwen2_vl", "qwen2_5_vl"),
            why="the config keeps the checkpoint's model.*, the layer asks as language_model.model.*",
            refs=("vllm PR #20046", "vllm#24244"),
            versions={"vllm": ">=0.11"},
            retire="every quantization config maps its list (apply_vllm_mapper)",
            lookup=(Prefix("language_model.model", "model"),),
        ),
        Fix(
            id="listed-lm-head",
            model_types=("qwen2_5_vl", "qwen2_5_vl_text"),
            why="the mapper's rule 'lm_head.' does not fit the listed name lm_head, which has no dot",
            refs=("vllm#25124",),
            versions={"vllm": ">=0.10"},
            retire="open",
            lookup=(Exact("language_model.lm_head", "lm_head"),),
        ),
    ),
)
