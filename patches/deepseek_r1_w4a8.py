"""DeepSeek-R1-W4A8 as mindie exports it: another model_type, no group_size."""

from ascend_hotfix.records import Config, DescriptionSet, Fix, ModelPatch

PATCHES = (
    ModelPatch(
        name="deepseek_r1_w4a8",
        model_types=("deepseekv2",),
        fixes=(
            Fix(
                id="model-type",
                why="config.json says model_type deepseekv2, which no transformers knows, and keeps the FP8 source's "
                "quantization_config",
                refs=("vllm-ascend#2296",),
                versions={"vllm-ascend": ">=0.11"},
                retire="never: it depends on the export",
                config=(
                    Config(
                        put={"model_type": "deepseek_v3"},
                        remove=("quantization_config",),
                        where={"model_type": "deepseekv2"},
                    ),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="w4a8_group_size",
        model_types=("deepseek_v2", "deepseek_v3"),
        fixes=(
            Fix(
                id="group-size",
                why="an export of before group_size was written has groups of 256; from 0.23 on its absence means one group "
                "a channel",
                refs=("vllm-ascend#2296", "vllm-ascend methods/w4a8.py"),
                versions={"vllm-ascend": ">=0.11"},
                retire="never: it depends on the export",
                describe=(DescriptionSet("group_size", 256, schemes=("W4A8_DYNAMIC",)),),
            ),
        ),
    ),
)
