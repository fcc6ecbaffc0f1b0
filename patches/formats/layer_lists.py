"""Lists of layers that are not quantized, in other formats than ModelSlim's: they name them as the checkpoint does."""

from ascend_hotfix.records import Children, Fix, ModelPatch, Packed, Segments

PATCH = ModelPatch(
    model_types=(),
    fixes=(
        Fix(
            id="experts",
            model_types=("*",),
            why="the list names single experts, vLLM asks for the experts as one module and builds them quantized",
            refs=("vllm PR #48226", "vllm#23025", "vllm#54547"),
            versions={"vllm": ">=0.11"},
            retire="vLLM 0.30 looks at the children for Quark, for no other format",
            describe=(Children("**.experts"),),
        ),
        Fix(
            id="linear-attention",
            model_types=("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
            why="the list names in_proj_qkv, in_proj_z, in_proj_b and in_proj_a; the class has no row for the fused layers",
            refs=("vllm#40252", "vllm#34697", "vllm#35413", "sglang PR #32266"),
            versions={"vllm": ">=0.11"},
            retire="the class has both rows",
            packed=(
                Packed("in_proj_qkvz", ("in_proj_qkv", "in_proj_z")),
                Packed("in_proj_ba", ("in_proj_b", "in_proj_a")),
            ),
        ),
        Fix(
            id="eagle3-first-layer",
            model_types=("llama", "qwen3", "minimax_m2", "minimax_m3", "eagle"),
            why="the draft's first projection is built as layers.N.qkv_proj, and listed below self_attn",
            refs=("vllm PR #48068",),
            versions={"vllm": "<0.30"},
            retire="0.30 builds it as layers.N.self_attn.qkv_proj",
            lookup=(
                Segments("layers.*.qkv_proj", "layers.*.self_attn.qkv_proj"),
                Segments("layers.*.q_proj", "layers.*.self_attn.q_proj"),
                Segments("layers.*.k_proj", "layers.*.self_attn.k_proj"),
                Segments("layers.*.v_proj", "layers.*.self_attn.v_proj"),
            ),
        ),
    ),
)
