"""Layers that the checkpoint has in float and its quantization config takes for quantized, or the other way round."""

from ascend_hotfix.records import Dequantize, Fix, ModelPatch, Scheme

PATCH = ModelPatch(
    model_types=(),
    fixes=(
        Fix(
            id="draft-in-float",
            model_types=(
                "qwen3_5",
                "qwen3_5_text",
                "qwen3_5_moe",
                "qwen3_5_moe_text",
                "qwen3_5_mtp",
                "qwen3_next",
                "deepseek_v4",
            ),
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
        Fix(
            id="experts-in-float",
            model_types=("qwen3_moe", "deepseek_v2", "qwen3_omni_moe", "qwen3_omni_moe_thinker"),
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
            model_types=("qwen3_moe", "deepseek_v2", "qwen3_omni_moe", "qwen3_omni_moe_thinker"),
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
        Fix(
            id="scale-without-parameter",
            model_types=("llama", "mistral", "qwen2", "qwen3"),
            why="the layer is built unquantized and the checkpoint has a scale for it; the loader takes the layer itself for the "
            "missing parameter",
            refs=("vllm#53107", "vllm PR #53118"),
            versions={"vllm": ">=0.27"},
            retire="never: it depends on the export; PR #53118 makes it a clear error",
            tensors=(
                Dequantize("model.layers.*.self_attn.q_proj"),
                Dequantize("model.layers.*.self_attn.k_proj"),
                Dequantize("model.layers.*.self_attn.v_proj"),
                Dequantize("model.layers.*.self_attn.o_proj"),
                Dequantize("model.layers.*.mlp.gate_proj"),
                Dequantize("model.layers.*.mlp.up_proj"),
                Dequantize("model.layers.*.mlp.down_proj"),
            ),
        ),
    ),
)
