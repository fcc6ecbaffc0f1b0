"""Gemma 4: rows, the experts' place, layers that share K and V."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Segments, per_expert

PATCH = ModelPatch(
    model_types=("gemma4", "gemma4_text"),
    fixes=(
        Fix(
            id="rows",
            why="vLLM asks moe.experts of what the description calls experts; layers that share K and V have no v_proj",
            refs=("vllm-ascend modelslim_config.py of 0.24.0rc1, the gemma4 rows",),
            versions={"vllm-ascend": ">=0.18,<0.24"},
            retire="0.24.0rc1 has rows, rename and the optional v_proj",
            lookup=(Segments("moe.experts", "experts"),),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj"), optional=("v_proj",)),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="moe-twice",
            why="the loader puts .moe before every experts.N, also where it is: moe.moe.experts.N is no parameter",
            refs=("vllm PR #41206",),
            versions={"vllm": ">=0.20,<0.21"},
            retire="vLLM 0.21 looks whether it is there",
            override="upstream inserts the segment; the name that it makes right is the one without",
            weights=(Segments("moe.experts", "experts"),),
        ),
    ),
)
