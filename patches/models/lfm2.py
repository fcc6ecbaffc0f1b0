"""LFM2: a layer that the quantization config lists under another name."""

from ascend_hotfix.records import Fix, ModelPatch, Segments

PATCH = ModelPatch(
    model_types=("lfm2", "lfm2_moe"),
    fixes=(
        Fix(
            id="listed-short-conv",
            why="the list is mapped to layers.N.short_conv, the layer is built as layers.N.conv",
            refs=("vllm PR #51495",),
            versions={"vllm": ">=0.11"},
            retire="0.30 builds it as layers.N.short_conv",
            lookup=(Segments("layers.*.conv", "layers.*.short_conv"),),
        ),
    ),
)
