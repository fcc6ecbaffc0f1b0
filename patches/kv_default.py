"""INT8 KV cache (C8): attention layers without scales."""

from ascend_hotfix.records import Fix, KVCache, ModelPatch

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="layers-without-scales",
            why="kv_cache_type speaks for the whole model; a layer without scales, such as an MTP layer, gets a quantized cache "
            "with scales that nothing fills",
            refs=("vllm-ascend 0.18 modelslim_config.py, get_quant_method", "vllm-ascend commit bf009c91cb"),
            versions={"vllm-ascend": ">=0.18"},
            retire="0.21.0rc1 asks each layer by number, which takes mtp.layers.0 for layer 0",
            describe=(KVCache("**.attn"),),
        ),
    ),
)
