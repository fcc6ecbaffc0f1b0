"""INT8 KV cache (C8): names of its scales in the model classes that upstream's own loader patches leave out."""

from ascend_hotfix.records import Drop, Fix, ModelPatch, Segments

SCALES_OF_ATTENTION = (
    Segments("k_proj.kv_cache_scale", "attn.k_cache_scale"),
    Segments("k_proj.kv_cache_offset", "attn.k_cache_offset"),
    Segments("v_proj.kv_cache_scale", "attn.v_cache_scale"),
    Segments("v_proj.kv_cache_offset", "attn.v_cache_offset"),
)

PATCHES = (
    ModelPatch(
        name="kv_cache",
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
        fixes=(
            Fix(
                id="c8-names",
                why="the loader turns k_proj into qkv_proj inside the name of a KV scale, or cuts a per-channel scale to "
                "its first element; the parameter is attn.k_cache_scale",
                refs=("vllm-ascend#2144", "vllm-ascend PR #12463", "vllm-ascend PR #11053", "vllm-ascend PR #11615"),
                versions={"vllm-ascend": ">=0.18,<0.25.1rc1"},
                retire="0.25.1rc1 gives vLLM a mapper for every class",
                weights=SCALES_OF_ATTENTION,
            ),
        ),
    ),
    ModelPatch(
        name="kv_cache_glm4_minimax",
        model_types=("glm4_moe", "minimax_m2"),
        fixes=(
            Fix(
                id="c8-names",
                why="0.18 patches the loader of Qwen3 alone; GLM-4 MoE and MiniMax-M2 follow later",
                refs=("vllm-ascend PR #12463", "vllm-ascend PR #11053", "vllm-ascend PR #11615"),
                versions={"vllm-ascend": ">=0.18,<0.19.1rc1"},
                retire="0.19.1rc1 has GLM-4 MoE, 0.22.1rc1 MiniMax-M2",
                weights=SCALES_OF_ATTENTION,
            ),
        ),
    ),
    ModelPatch(
        name="kv_cache_absent",
        model_types=("*",),
        fixes=(
            Fix(
                id="c8-absent",
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
        ),
    ),
)
