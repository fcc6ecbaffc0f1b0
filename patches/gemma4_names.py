"""Gemma4 on vLLM 0.20: expert names that have .moe already."""

from ascend_hotfix.records import Fix, ModelPatch, Segments

PATCH = ModelPatch(
    model_types=("gemma4", "gemma4_text"),
    fixes=(
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
