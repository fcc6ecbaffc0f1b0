"""Scales of a quantized KV cache that a loader drops in silence, because it reads its name as another part's."""

from ascend_hotfix.records import Fix, ModelPatch, Segments

PATCHES = (
    ModelPatch(
        name="kv_cache_names",
        model_types=(
            "qwen3_moe",
            "qwen3_next",
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
        ),
        fixes=(
            Fix(
                id="attention-scales",
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
    ),
)
