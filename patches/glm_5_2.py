"""GLM-5.2: layers that share the indexer of a layer before them."""

from ascend_hotfix.records import Fill, Fix, ModelPatch, Reuse, Scheme

PATCH = ModelPatch(
    model_types=("glm_moe_dsa",),
    fixes=(
        Fix(
            id="shared-indexer",
            why="on layers that config.json's indexer_types calls shared the checkpoint has no indexer; the release builds one "
            "all the same and stops at its missing entry. It is built as float and empty here, and is not asked: the layer "
            "takes the tokens that the last full layer has chosen",
            refs=(
                "vllm-ascend#10610",
                "vllm-ascend#11208",
                "vllm-ascend PR #12660",
                "vllm-ascend#12901",
                "vllm-ascend PR #10441",
            ),
            versions={"vllm-ascend": ">=0.15,<0.23"},
            retire="0.23.0rc1 builds no indexer on such layers",
            types=(Scheme("model.layers.*.self_attn.indexer.*"),),
            fill=(
                Fill("**.indexer.wq_b.weight"),
                Fill("**.indexer.wk.weight"),
                Fill("**.indexer.weights_proj.weight"),
                Fill("**.indexer.k_norm.weight"),
                Fill("**.indexer.k_norm.bias"),
            ),
            layers=(Reuse("AscendSFAImpl", "indexer_select_post_process", "indexer_types"),),
        ),
    ),
)
