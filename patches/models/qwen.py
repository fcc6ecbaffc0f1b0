"""Qwen2 and Qwen3, text: the row of Qwen2-MoE, tensors of embedding models, layers listed without their prefix."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Packed, Prefix, Segments, per_expert

PATCH = ModelPatch(
    model_types=("qwen2", "qwen2_moe", "qwen3"),
    fixes=(
        Fix(
            id="qwen2-moe-row",
            model_types=("qwen2_moe",),
            why="no packed row for qwen2_moe: fused experts are looked up under a name that no description has",
            refs=("vllm-ascend#925",),
            versions={"vllm-ascend": ">=0.11,<0.30"},
            retire="0.30 finds the experts' shards in the description",
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="embedding-names",
            model_types=("qwen3", "qwen2"),
            why="embedding checkpoints are saved from the inner model and lack model.*",
            refs=("vllm#21614", "vllm#21823"),
            versions={"vllm": ">=0.11"},
            retire="every class that is served for pooling maps the names",
            weights=(
                Prefix("layers", "model.layers"),
                Prefix("embed_tokens", "model.embed_tokens"),
                Exact("norm.weight", "model.norm.weight"),
            ),
        ),
        Fix(
            id="layer-number-twice",
            model_types=("qwen2",),
            why="layers were built as model.layers.0.layers.N, and listed as model.layers.N",
            refs=("vllm#11790", "vllm PR #11795"),
            versions={"vllm": ">=0.11"},
            retire="vLLM 0.6.7 builds them as model.layers.N",
            lookup=(Segments("layers.*.layers", "layers"),),
        ),
    ),
)
