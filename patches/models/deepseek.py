"""DeepSeek V2 to V3.2 and Kimi-K2: fused projections, the MTP layer, quantized attention in the draft."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Scheme, Segments, Suffix, per_expert

PATCHES = (
    ModelPatch(
        name="deepseek",
        model_types=("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"),
        fixes=(
            Fix(
                id="rows",
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
                why="the description names a packed tensor (weight_packed), vLLM asks for weight",
                refs=("vllm-ascend PR #4516",),
                versions={"vllm-ascend": ">=0.11,<0.12"},
                retire="0.12.0rc1 adds the name without _packed itself",
                lookup=(Suffix("weight", "weight_packed"),),
            ),
        ),
    ),
    ModelPatch(
        name="deepseek_mtp",
        model_types=("deepseek_mtp", "deepseek_v2", "deepseek_v3", "deepseek_v32"),
        fixes=(
            Fix(
                id="float-layer",
                why="an export without the MTP layer has float tensors for it and no entry in the description; "
                "upstream tells users to add the entries by hand",
                refs=("vllm-ascend packed_modules_model_mapping, the note on MTP (since PR #3021)",),
                versions={"vllm-ascend": ">=0.11"},
                retire="never: it depends on the export",
                types=(Scheme("model.layers.**", mtp_only=True),),
            ),
        ),
    ),
    ModelPatch(
        name="deepseek_mtp_kv",
        model_types=("deepseek_mtp",),
        fixes=(
            Fix(
                id="fa-names",
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
        ),
    ),
)
