"""DeepSeek-V4: the original names of its checkpoints in the description, and an indexer that it leaves out."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Packed, Prefix, Scheme, Segments, per_expert

PATCH = ModelPatch(
    model_types=("deepseek_v4", "deepseek_v4_mtp"),
    fixes=(
        Fix(
            id="original-names",
            why="checkpoints keep layers.N.attn and ffn with w1, w2, w3; vLLM asks model.layers.N.self_attn and mlp. "
            "The substring row of 0.13.0rc3, 0.20.2rc1 and 0.21.0rc1 says sefl_attn",
            refs=("vllm-ascend PR #9270", "vllm-ascend PR #10458"),
            versions={"vllm-ascend": ">=0.13.0rc3,<0.24"},
            retire="0.22.1rc1 has the right row",
            lookup=(
                Prefix("model.layers", "layers"),
                Exact("model.embed_tokens", "embed"),
                Exact("lm_head", "head"),
                Segments("self_attn", "attn"),
                Segments("sefl_attn", "attn"),
                Segments("mlp", "ffn"),
                Segments("gate_proj", "w1"),
                Segments("down_proj", "w2"),
                Segments("up_proj", "w3"),
            ),
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="indexer-scheme",
            why="the description says nothing of indexer.wq_b, which the checkpoint has in int8 with a scale and an offset",
            refs=("vllm-ascend#12675",),
            versions={"vllm-ascend": ">=0.20"},
            retire="never: it depends on the export",
            types=(
                Scheme(
                    "model.layers.*.self_attn.indexer.wq_b",
                    "W8A8_DYNAMIC",
                    when=("layers.*.attn.indexer.wq_b.weight_offset",),
                ),
            ),
        ),
    ),
)
