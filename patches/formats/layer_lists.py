"""Layers that a quantization config of plain vLLM lists under another name than they are built with."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, Regex, Segments

PATCHES = (
    ModelPatch(
        name="qwen3_next_listed",
        model_types=("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        fixes=(
            Fix(
                id="linear-attention",
                why="the list names in_proj_qkv, in_proj_z, in_proj_b and in_proj_a; the class has no row for the fused layers",
                refs=("vllm#40252", "vllm#34697", "vllm#35413", "sglang PR #32266"),
                versions={"vllm": ">=0.11"},
                retire="the class has both rows",
                packed=(
                    Packed("in_proj_qkvz", ("in_proj_qkv", "in_proj_z")),
                    Packed("in_proj_ba", ("in_proj_b", "in_proj_a")),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="vision_language_listed",
        model_types=("qwen2_vl", "qwen2_5_vl"),
        fixes=(
            Fix(
                id="inner-without-prefix",
                why="the language model was built without the wrapper's prefix, so layers listed as language_model.model.* were quantized",
                refs=("vllm PR #9772",),
                versions={"vllm": ">=0.11"},
                retire="every wrapper hands its prefix on",
                build=(Prefix("model", "language_model.model"),),
            ),
            Fix(
                id="unmapped-list",
                why="the config keeps the checkpoint's model.*, the layer asks as language_model.model.*",
                refs=("vllm PR #20046", "vllm#24244"),
                versions={"vllm": ">=0.11"},
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
                versions={"vllm": ">=0.11"},
                retire="vLLM 0.6.7 builds them as model.layers.N",
                lookup=(Regex(r"\blayers\.\d+\.layers\.", "layers."),),
            ),
        ),
    ),
    ModelPatch(
        name="eagle3_listed",
        model_types=("llama", "qwen3", "minimax_m2", "minimax_m3", "eagle"),
        fixes=(
            Fix(
                id="first-layer",
                why="the draft's first projection is built as layers.N.qkv_proj, and listed below self_attn",
                refs=("vllm PR #48068",),
                versions={"vllm": "<0.30"},
                retire="0.30 builds it as layers.N.self_attn.qkv_proj",
                lookup=(
                    Segments("layers.*.qkv_proj", "layers.*.self_attn.qkv_proj"),
                    Segments("layers.*.q_proj", "layers.*.self_attn.q_proj"),
                    Segments("layers.*.k_proj", "layers.*.self_attn.k_proj"),
                    Segments("layers.*.v_proj", "layers.*.self_attn.v_proj"),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="lfm2_listed",
        model_types=("lfm2", "lfm2_moe"),
        fixes=(
            Fix(
                id="short-conv",
                why="the list is mapped to layers.N.short_conv, the layer is built as layers.N.conv",
                refs=("vllm PR #51495",),
                versions={"vllm": ">=0.11"},
                retire="0.30 builds it as layers.N.short_conv",
                lookup=(Segments("layers.*.conv", "layers.*.short_conv"),),
            ),
        ),
    ),
    ModelPatch(
        name="minimax_m3_listed",
        model_types=("minimax_m3", "minimax_m3_vl"),
        fixes=(
            Fix(
                id="rows",
                why="the list names q_proj, k_proj, v_proj, gate_proj and up_proj; the class had no row for the fused layers",
                refs=("vllm PR #45794",),
                versions={"vllm": ">=0.23"},
                retire="0.24 has both rows in its classes",
                packed=(
                    Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                    Packed("gate_up_proj", ("gate_proj", "up_proj")),
                ),
            ),
        ),
    ),
)
