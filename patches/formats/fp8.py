"""FP8: checkpoints for releases without it, loaded as bf16, and names of its scales."""

from ascend_hotfix.records import Config, Dequantize, Fix, ModelPatch, Suffix

PATCH = ModelPatch(
    model_types=(),
    fixes=(
        Fix(
            id="deepseek-v3-dequantize",
            model_types=("deepseek_v3", "deepseek_v32", "kimi_k2"),
            why="the release has no FP8; without quantization_config the loader stops at the scales "
            "(experts.w2_weight_scale_inv)",
            refs=("vllm-ascend#183",),
            versions={"vllm-ascend": ">=0.11,<0.23"},
            retire="0.23 supports fp8",
            config=(Config(remove=("quantization_config",), where={"quantization_config.quant_method": "fp8"}),),
            tensors=(Dequantize("model.layers.**", scale="weight_scale_inv"),),
        ),
        Fix(
            id="minimax-m2-dequantize",
            model_types=("minimax_m2",),
            why="the release has no FP8: it refuses the config, then the scales",
            refs=("vllm-ascend patch_minimax_m2.py", "vllm-ascend patch_minimax_m2_config.py"),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18.0rc1 dequantizes in its own loader",
            config=(Config(remove=("quantization_config",), where={"quantization_config.quant_method": "fp8"}),),
            tensors=(Dequantize("model.layers.**", scale="weight_scale_inv"),),
        ),
        Fix(
            id="deepseek-v4-wo-a",
            model_types=("deepseek_v4", "deepseek_v4_mtp", "deepseek_mtp"),
            why="an export that hands wo_a through as FP8 has a .scale beside it, for which there is no parameter",
            refs=("vllm-ascend PR #15387",),
            versions={"vllm-ascend": ">=0.20"},
            retire="never: it depends on the export",
            tensors=(Dequantize("layers.*.attn.wo_a", scale="scale"), Dequantize("mtp.*.attn.wo_a", scale="scale")),
        ),
        Fix(
            id="mistral-scales",
            model_types=("llama", "mistral", "mistral3", "ministral3"),
            why="the exporter writes activation_scale and weight_scale_inv; vLLM's layers have input_scale and weight_scale",
            refs=("vllm PR #41982 (Devstral-2)", "vllm#32673, vllm PR #32859 (Mistral-3)"),
            versions={"vllm": ">=0.11"},
            retire="the loader maps the suffixes itself",
            weights=(Suffix("activation_scale", "input_scale"), Suffix("weight_scale_inv", "weight_scale")),
        ),
    ),
)
