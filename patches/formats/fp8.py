"""FP8 checkpoints on releases without FP8: their weights are loaded as bf16."""

from ascend_hotfix.records import Config, Dequantize, Fix, ModelPatch

PATCHES = (
    ModelPatch(
        name="fp8_deepseek",
        model_types=("deepseek_v3", "deepseek_v32", "kimi_k2"),
        fixes=(
            Fix(
                id="dequantize",
                why="the release has no FP8; without quantization_config the loader stops at the scales "
                "(experts.w2_weight_scale_inv)",
                refs=("vllm-ascend#183",),
                versions={"vllm-ascend": ">=0.11,<0.23"},
                retire="0.23 supports fp8",
                config=(Config(remove=("quantization_config",), where={"quantization_config.quant_method": "fp8"}),),
                tensors=(Dequantize("model.layers.**", scale="weight_scale_inv"),),
            ),
        ),
    ),
    ModelPatch(
        name="fp8_minimax_m2",
        model_types=("minimax_m2",),
        fixes=(
            Fix(
                id="dequantize",
                why="the release has no FP8: it refuses the config, then the scales",
                refs=("vllm-ascend patch_minimax_m2.py", "vllm-ascend patch_minimax_m2_config.py"),
                versions={"vllm-ascend": ">=0.11,<0.18"},
                retire="0.18.0rc1 dequantizes in its own loader",
                config=(Config(remove=("quantization_config",), where={"quantization_config.quant_method": "fp8"}),),
                tensors=(Dequantize("model.layers.**", scale="weight_scale_inv"),),
            ),
        ),
    ),
    ModelPatch(
        name="fp8_deepseek_v4",
        model_types=("deepseek_v4", "deepseek_v4_mtp", "deepseek_mtp"),
        fixes=(
            Fix(
                id="wo-a",
                why="an export that hands wo_a through as FP8 has a .scale beside it, for which there is no parameter",
                refs=("vllm-ascend PR #15387",),
                versions={"vllm-ascend": ">=0.20"},
                retire="never: it depends on the export",
                tensors=(Dequantize("layers.*.attn.wo_a", scale="scale"), Dequantize("mtp.*.attn.wo_a", scale="scale")),
            ),
        ),
    ),
)
