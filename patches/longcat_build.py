"""LongCat-Flash: two attention modules in each layer, and MTP tensors in the target."""

from ascend_hotfix.records import Drop, Fix, LayerIndex, ModelPatch

PATCH = ModelPatch(
    model_types=("longcat_flash",),
    architectures=("LongcatFlashForCausalLM",),
    fixes=(
        Fix(
            id="layer-index",
            why="vllm-ascend asks layers.N.self_attn.M for one number and stops at the second",
            refs=("vllm-ascend patch_deepseek_v2.py, _should_skip_indexer_init",),
            versions={"vllm-ascend": ">=0.23"},
            retire="never fixed upstream",
            layers=(LayerIndex(2),),
        ),
        Fix(
            id="mtp-tensors",
            why="the target's loader skips names with .mtp. in them, but has cut the model. before it: mtp.embed_tokens.weight is "
            "no parameter",
            refs=("vllm longcat_flash.py, load_weights",),
            versions={"vllm-ascend": ">=0.11"},
            retire="never fixed upstream",
            drop=(Drop("model.mtp.**"),),
        ),
    ),
)
