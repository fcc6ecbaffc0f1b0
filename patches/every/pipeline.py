"""Pipeline parallelism: tensors of layers on other ranks, which a loader asks for all the same."""

from ascend_hotfix.records import Absent, Fix, ModelPatch

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="kv-scales",
            why="the loader looks a KV scale up before it asks whether its layer is on this rank",
            refs=("vllm-ascend PR #7385", "vllm qwen3_moe.py, load_weights"),
            versions={"vllm-ascend": ">=0.18"},
            retire="where the loader asks first nothing of the name gets that far; the tensors are left out in any case",
            tensors=(Absent("**.kv_cache_scale"), Absent("**.kv_cache_offset")),
        ),
        Fix(
            id="attention-sinks",
            why="the loader looks attn_sink up before it asks whether its layer is on this rank",
            refs=("vllm-ascend PR #9473",),
            versions={"vllm-ascend": ">=0.20,<0.21"},
            retire="0.21.0rc1 has the guard",
            tensors=(Absent("**.attn_sink"),),
        ),
    ),
)
