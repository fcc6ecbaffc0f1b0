"""GLM-5 family (model_type glm_moe_dsa): the row, the draft's rotation, shared indexers, the wrapper's names."""

from ascend_hotfix.records import Drop, Exact, Fill, Fix, ModelPatch, Packed, Prefix, Reuse, Scheme, per_expert

PATCH = ModelPatch(
    model_types=("glm5_next", "glm5_next_text", "glm_moe_dsa", "glm_moe_dsa_mtp"),
    fixes=(
        Fix(
            id="row",
            model_types=("glm_moe_dsa", "glm_moe_dsa_mtp"),
            why="no packed row for glm_moe_dsa: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend PR #6642",),
            versions={"vllm-ascend": ">=0.11,<0.15"},
            retire="0.15.0rc1 has the row",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
        Fix(
            id="rot-weight",
            model_types=("glm_moe_dsa", "glm_moe_dsa_mtp"),
            why="QuaRot exports carry a top-level rot.weight for the draft, which the target's loader refuses",
            refs=("vllm-ascend PR #10317", "vllm-ascend#9054", "vllm PR #41706"),
            versions={"vllm-ascend": ">=0.20,<0.21", "vllm": ">=0.21"},
            retire="0.21.0rc1 skips it in the target; builds of the plugin before that refuse it on vLLM 0.21",
            drop=(Drop("rot.weight"),),
        ),
        Fix(
            id="shared-indexer",
            model_types=("glm_moe_dsa",),
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
        Fix(
            id="listed-wrapper-order",
            model_types=("glm5_next", "glm5_next_text"),
            why="the list says model.language_model.*, model.visual.* and lm_head; vLLM asks language_model.model.*, visual.* "
            "and language_model.lm_head",
            refs=("vllm#54547",),
            versions={"vllm": ">=0.23"},
            retire="open at 2026-08-31",
            lookup=(
                Prefix("language_model.model", "model.language_model"),
                Prefix("visual", "model.visual"),
                Exact("language_model.lm_head", "lm_head"),
            ),
        ),
    ),
)
