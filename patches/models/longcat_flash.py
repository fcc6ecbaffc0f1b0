"""LongCat-Flash: the row, two attention modules in each layer, the names and tensors of its MTP layer."""

from ascend_hotfix.records import Drop, Fix, LayerIndex, ModelPatch, Packed, Prefix, per_expert

MTP_LAYER = (
    Prefix("model.layers.*.mtp_block.mlp", "model.mtp.layers.0.transformer_layer.mlp"),
    Prefix("model.layers.*.mtp_block", "model.mtp.layers.0"),
    Prefix("model.layers.*", "model.mtp.layers.0"),
)

PATCH = ModelPatch(
    model_types=("longcat_flash", "longcat_flash_mtp", "longcat_flash_ngram"),
    fixes=(
        Fix(
            id="row",
            why="no packed row for longcat_flash: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping before 0.13.0rc2",),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.13.0rc2 has the row for longcat_flash, no release up to 0.29 one for its draft and ngram types",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
        Fix(
            id="mtp-names",
            why="the draft asks model.layers.M.*, the description says model.mtp.layers.0.*, with the MLP below "
            "transformer_layer; its loader renames weights and the scales of FP8, and asks for the others as they are",
            refs=("vllm longcat_flash_mtp.py, load_weights",),
            versions={"vllm-ascend": ">=0.13"},
            retire="never fixed upstream",
            lookup=(
                Prefix("model.layers.*.mlp", "model.mtp.layers.0.transformer_layer.mlp"),
                *MTP_LAYER,
                Prefix("eh_proj", "model.mtp.layers.0.eh_proj"),
            ),
            params=MTP_LAYER,
        ),
        Fix(
            id="layer-index",
            model_types=("longcat_flash",),
            architectures=("LongcatFlashForCausalLM",),
            why="vllm-ascend asks layers.N.self_attn.M for one number and stops at the second",
            refs=("vllm-ascend patch_deepseek_v2.py, _should_skip_indexer_init",),
            versions={"vllm-ascend": ">=0.23"},
            retire="never fixed upstream",
            layers=(LayerIndex(2),),
        ),
        Fix(
            id="mtp-tensors",
            model_types=("longcat_flash",),
            architectures=("LongcatFlashForCausalLM",),
            why="the target's loader skips names with .mtp. in them, but has cut the model. before it: mtp.embed_tokens.weight is "
            "no parameter",
            refs=("vllm longcat_flash.py, load_weights",),
            versions={"vllm-ascend": ">=0.11"},
            retire="never fixed upstream",
            drop=(Drop("model.mtp.**"),),
        ),
    ),
)
