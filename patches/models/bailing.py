"""Ling and Ring: layer names of the hybrid models, rows for the MoE and MTP ones."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Segments, per_expert

PATCH = ModelPatch(
    model_types=(
        "bailing_hybrid",
        "bailing_hybrid_mtp",
        "bailing_moe",
        "bailing_moe_v2",
        "bailing_moe_linear",
    ),
    fixes=(
        Fix(
            id="hybrid-names",
            why="the description says attention and attention.dense where vLLM says self_attn, linear_attn and o_proj",
            refs=("vllm-ascend PR #8709",),
            versions={"vllm-ascend": ">=0.11,<0.19"},
            retire="0.19.1rc1 renames both and has the row",
            lookup=(Segments("linear_attn", "attention"), Segments("self_attn", "attention")),
            packed=(Packed("o_proj", ("dense",)),),
        ),
        Fix(
            id="rows",
            why="no packed rows for bailing_moe and for the draft of the hybrid models",
            refs=("vllm-ascend 60f5ea0c7e", "vllm-ascend 36dd62e75f"),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.19.1rc1 has a row for bailing_hybrid alone; 0.30 finds the experts' shards in the description",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
        Fix(
            id="mtp-hybrid-names",
            why="upstream renames self_attn to attention under the model_type bailing_hybrid, not under the draft's",
            refs=("vllm-ascend 60f5ea0c7e",),
            versions={"vllm-ascend": ">=0.19"},
            retire="open upstream",
            lookup=(Segments("linear_attn", "attention"), Segments("self_attn", "attention")),
            packed=(Packed("o_proj", ("dense",)),),
        ),
    ),
)
