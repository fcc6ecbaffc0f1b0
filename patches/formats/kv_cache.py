"""Quantized KV cache: names of its scales, layers without them, releases that have no such cache."""

from ascend_hotfix.records import Drop, Fix, KVCache, ModelPatch, Segments

SCALES_OF_ATTENTION = (
    Segments("k_proj.kv_cache_scale", "attn.k_cache_scale"),
    Segments("k_proj.kv_cache_offset", "attn.k_cache_offset"),
    Segments("v_proj.kv_cache_scale", "attn.v_cache_scale"),
    Segments("v_proj.kv_cache_offset", "attn.v_cache_offset"),
)

PATCH = ModelPatch(
    model_types=(),
    fixes=(
        Fix(
            id="c8-names",
            model_types=(
                "qwen2",
                "qwen2_moe",
                "qwen3_moe",
                "qwen3_next",
                "llama",
                "mistral",
                "mixtral",
                "internlm2",
                "internlm3",
                "ernie4_5",
                "ernie4_5_moe",
                "hunyuan_v1_dense",
                "hunyuan_v1_moe",
                "bailing_moe",
            ),
            why="the loader turns k_proj into qkv_proj inside the name of a KV scale, or cuts a per-channel scale to "
            "its first element; the parameter is attn.k_cache_scale",
            refs=("vllm-ascend#2144", "vllm-ascend PR #12463", "vllm-ascend PR #11053", "vllm-ascend PR #11615"),
            versions={"vllm-ascend": ">=0.18,<0.25.1rc1"},
            retire="0.25.1rc1 gives vLLM a mapper for every class",
            weights=SCALES_OF_ATTENTION,
        ),
        Fix(
            id="c8-names-glm4-minimax-m2",
            model_types=("glm4_moe", "minimax_m2"),
            why="0.18 patches the loader of Qwen3 alone; GLM-4 MoE and MiniMax-M2 follow later",
            refs=("vllm-ascend PR #12463", "vllm-ascend PR #11053", "vllm-ascend PR #11615"),
            versions={"vllm-ascend": ">=0.18,<0.19.1rc1"},
            retire="0.19.1rc1 has GLM-4 MoE, 0.22.1rc1 MiniMax-M2",
            weights=SCALES_OF_ATTENTION,
        ),
        Fix(
            id="c8-absent",
            model_types=("*",),
            why="releases before 0.18 have no INT8 KV cache by these names and refuse its scales; without them the "
            "cache stays in the model's dtype, which is right and larger",
            refs=("vllm-ascend#2144",),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18.0 has the scheme",
            drop=(
                Drop("**.k_proj.kv_cache_scale"),
                Drop("**.k_proj.kv_cache_offset"),
                Drop("**.v_proj.kv_cache_scale"),
                Drop("**.v_proj.kv_cache_offset"),
            ),
        ),
        Fix(
            id="layers-without-scales",
            model_types=("*",),
            why="kv_cache_type speaks for the whole model; a layer without scales, such as an MTP layer, gets a quantized cache "
            "with scales that nothing fills",
            refs=("vllm-ascend 0.18 modelslim_config.py, get_quant_method", "vllm-ascend commit bf009c91cb"),
            versions={"vllm-ascend": ">=0.18"},
            retire="0.21.0rc1 asks each layer by number, which takes mtp.layers.0 for layer 0",
            describe=(KVCache("**.attn"),),
        ),
        Fix(
            id="attention-scales",
            model_types=("qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
            why="the loader makes qkv_proj.k_scale of k_proj.k_scale, finds no such parameter and goes on; the cache keeps scale 1",
            refs=("vllm#25047 (Qwen3-MoE)", "vllm#31872 (Qwen3-Next)", "vllm#54623 (Qwen3.5)"),
            versions={"vllm": ">=0.11"},
            retire="every loader of the family asks maybe_remap_kv_scale_name first",
            weights=(
                Segments("self_attn.k_proj.k_scale", "self_attn.attn.k_scale"),
                Segments("self_attn.v_proj.v_scale", "self_attn.attn.v_scale"),
                Segments("self_attn.k_scale", "self_attn.attn.k_scale"),
                Segments("self_attn.v_scale", "self_attn.attn.v_scale"),
            ),
        ),
    ),
)
