"""Layers that a checkpoint has in float while its quantization config takes them for quantized."""

from ascend_hotfix.records import Fix, ModelPatch, Scheme

PATCHES = (
    ModelPatch(
        name="float_mtp",
        model_types=(
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "qwen3_5_mtp",
            "qwen3_next",
            "deepseek_v4",
        ),
        fixes=(
            Fix(
                id="draft-in-float",
                why="the target's scheme is applied to MTP layers that the checkpoint keeps in bf16",
                refs=("vllm PR #39475, vllm#36954", "vllm PR #49539", "vllm#43304 (DeepSeek-V4)"),
                versions={"vllm": ">=0.11"},
                retire="vLLM asks the checkpoint before it quantizes a draft",
                types=(
                    Scheme("mtp.layers.*.self_attn.qkv_proj", when=("mtp.layers.*.self_attn.q_proj.weight",)),
                    Scheme("mtp.layers.*.self_attn.o_proj", when=("mtp.layers.*.self_attn.o_proj.weight",)),
                    Scheme("mtp.fc", when=("mtp.fc.weight",)),
                    Scheme(
                        "mtp.layers.*.mlp.experts",
                        when=("mtp.layers.*.mlp.experts.0.down_proj.weight", "mtp.layers.*.mlp.experts.down_proj"),
                    ),
                    Scheme(
                        "mtp.layers.*.mlp.experts.routed_experts",
                        when=("mtp.layers.*.mlp.experts.0.down_proj.weight", "mtp.layers.*.mlp.experts.down_proj"),
                    ),
                    Scheme("mtp.layers.*.mlp.gate", when=("mtp.layers.*.mlp.gate.weight",)),
                    Scheme("mtp.layers.*.mlp.gate_up_proj", when=("mtp.layers.*.mlp.gate_proj.weight",)),
                    Scheme("mtp.layers.*.mlp.down_proj", when=("mtp.layers.*.mlp.down_proj.weight",)),
                    Scheme(
                        "mtp.layers.*.mlp.shared_expert.gate_up_proj",
                        when=("mtp.layers.*.mlp.shared_expert.gate_proj.weight",),
                    ),
                    Scheme(
                        "mtp.layers.*.mlp.shared_expert.down_proj",
                        when=("mtp.layers.*.mlp.shared_expert.down_proj.weight",),
                    ),
                    # DeepSeek-V4's draft asks by the number of its layer
                    Scheme("model.layers.*.ffn.experts", mtp_only=True, when=("mtp.0.ffn.experts.0.w1.weight",)),
                    Scheme(
                        "model.layers.*.ffn.experts.routed_experts",
                        mtp_only=True,
                        when=("mtp.0.ffn.experts.0.w1.weight",),
                    ),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="float_moe",
        model_types=("qwen3_moe", "deepseek_v2", "qwen3_omni_moe", "qwen3_omni_moe_thinker"),
        fixes=(
            Fix(
                id="experts-in-float",
                why="a quantizer may leave the experts of one layer in float; the config does not say so",
                refs=("vllm PR #7086, comment on DeepSeek-V2-Lite GPTQ",),
                versions={"vllm": ">=0.11"},
                retire="quantizers list such layers",
                types=(
                    Scheme("model.layers.*.mlp.experts", when=("model.layers.*.mlp.experts.0.down_proj.weight",)),
                    Scheme(
                        "model.layers.*.mlp.experts.routed_experts",
                        when=("model.layers.*.mlp.experts.0.down_proj.weight",),
                    ),
                ),
            ),
            Fix(
                id="router-in-float",
                why="the router is built below the experts and quantized like them; the checkpoint has it in float beside them",
                refs=("vllm-omni#5573",),
                versions={"vllm": ">=0.11"},
                retire="vllm-omni builds the router unquantized",
                types=(
                    Scheme(
                        "thinker.model.layers.*.mlp.experts.gate",
                        when=("thinker.model.layers.*.mlp.gate.weight",),
                    ),
                    Scheme(
                        "language_model.model.layers.*.mlp.gate",
                        when=("thinker.model.layers.*.mlp.gate.weight",),
                    ),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="float_vision",
        model_types=("glm4v", "glm4v_moe"),
        fixes=(
            Fix(
                id="qkv-in-float",
                why="the vision attention's first layer is taken for quantized where no list names it; the checkpoint has it in float",
                refs=("vllm#27138",),
                versions={"vllm": ">=0.11"},
                retire="the quantizer lists the layer",
                types=(
                    Scheme(
                        "visual.blocks.*.attn.qkv_proj",
                        when=("model.visual.blocks.*.attn.qkv.weight", "visual.blocks.*.attn.qkv.weight"),
                    ),
                ),
            ),
        ),
    ),
)
