"""GLM-4.5, 4.6 and 4.7 with their MTP layer."""

from ascend_hotfix.records import Fix, ModelPatch, Scheme, Segments, Suffix

PATCH = ModelPatch(
    model_types=("glm4_moe", "glm4_moe_mtp"),
    fixes=(
        Fix(
            id="mtp-head",
            why="the draft's head is asked as model.layers.N.head; an export whose MTP layer shares the LM head has no "
            "entry for it",
            refs=("vllm-ascend#5794", "vllm-ascend PR #5460"),
            versions={"vllm-ascend": ">=0.11"},
            retire="0.13.0rc2 to 0.13.0rc3 fall back to lm_head, later releases lost that again",
            lookup=(
                Segments("shared_head.head", "head"),
                # whatever the layer: the whole name is replaced
                Suffix("model.layers.*.head", "lm_head"),
                Suffix("model.layers.*.shared_head.head", "lm_head"),
            ),
        ),
        Fix(
            id="mtp-float",
            why="an export made without the MTP recipe has the MTP layer as float tensors and no entry for it",
            refs=("vllm-ascend#5794",),
            versions={"vllm-ascend": ">=0.11"},
            retire="never fixed upstream; ModelSlim's GLM-4.x recipe quantizes the MTP layer",
            types=(Scheme("model.layers.**", mtp_only=True),),
        ),
    ),
)
