"""DeepSeek V2 to V3.2, R1 and Kimi-K2: fused projections, the MTP layer, exports of W4A8."""

from ascend_hotfix.records import (
    Config,
    DescriptionSet,
    Fill,
    Fix,
    ModelPatch,
    Packed,
    Scheme,
    Segments,
    Suffix,
    per_expert,
)

PATCH = ModelPatch(
    model_types=("deepseek_mtp", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseekv2", "kimi_k2"),
    fixes=(
        Fix(
            id="rows",
            model_types=("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"),
            why="vLLM builds self_attn.fused_qkv_a_proj and fused experts; the rows of deepseek_v32 and kimi_k2 in "
            "0.11 lack the first, and before 0.11.0rc2 there is none for kimi_k2",
            refs=("vllm-ascend#3785", "vllm-ascend PR #3798", "vllm-ascend PR #4190", "vllm-ascend PR #4797"),
            versions={"vllm-ascend": ">=0.11.0rc0,<0.12"},
            retire="0.12.0rc1 has the entries",
            packed=(
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="weight-packed",
            model_types=("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"),
            why="the description names a packed tensor (weight_packed), vLLM asks for weight",
            refs=("vllm-ascend PR #4516",),
            versions={"vllm-ascend": ">=0.11,<0.12"},
            retire="0.12.0rc1 adds the name without _packed itself",
            lookup=(Suffix("weight", "weight_packed"),),
        ),
        Fix(
            id="mtp-in-float",
            model_types=("deepseek_mtp", "deepseek_v2", "deepseek_v3", "deepseek_v32"),
            why="an export without the MTP layer has float tensors for it and no entry in the description; "
            "upstream tells users to add the entries by hand",
            refs=("vllm-ascend packed_modules_model_mapping, the note on MTP (since PR #3021)",),
            versions={"vllm-ascend": ">=0.11"},
            retire="never: it depends on the export",
            types=(Scheme("model.layers.**", mtp_only=True),),
        ),
        Fix(
            id="mtp-attention-scales",
            model_types=("deepseek_mtp",),
            why="the draft's loader does not map fa_q, fa_k and fa_v to the attention layer that has them",
            refs=("vllm-ascend PR #14540",),
            versions={"vllm-ascend": ">=0.18,<0.19"},
            retire="0.23 maps them in the draft as well, and a second rename would break it",
            weights=(
                Segments("self_attn.fa_q", "self_attn.mla_attn.mla_attn.fa_q"),
                Segments("self_attn.fa_k", "self_attn.mla_attn.mla_attn.fa_k"),
                Segments("self_attn.fa_v", "self_attn.mla_attn.mla_attn.fa_v"),
            ),
        ),
        Fix(
            id="indexer-bias",
            model_types=("deepseek_v32", "deepseek_mtp"),
            why="vLLM 0.13 builds indexer.weights_proj with a bias that no checkpoint has, and the attention adds it",
            refs=("vllm 0.13 deepseek_v2.py, Indexer", "vllm-ascend 0.13 sfa_v1.py"),
            versions={"vllm": ">=0.12,<0.14"},
            retire="vLLM 0.14 builds it without",
            fill=(Fill("**.indexer.weights_proj.bias"),),
        ),
        Fix(
            id="w4a8-model-type",
            model_types=("deepseekv2",),
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
        Fix(
            id="w4a8-group-size",
            model_types=("deepseek_v2", "deepseek_v3"),
            why="an export of before group_size was written has groups of 256; from 0.23 on its absence means one group "
            "a channel",
            refs=("vllm-ascend#2296", "vllm-ascend methods/w4a8.py"),
            versions={"vllm-ascend": ">=0.11"},
            retire="never: it depends on the export",
            describe=(DescriptionSet("group_size", 256, schemes=("W4A8_DYNAMIC",)),),
        ),
    ),
)
