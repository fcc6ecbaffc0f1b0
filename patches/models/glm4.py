"""GLM-4.5 to 4.7, with and without vision, and GLM-4.7-Flash: rows, the wrapper's names, the MTP layer."""

from ascend_hotfix.records import Fill, Fix, ModelPatch, Packed, Prefix, Scheme, Segments, Suffix, per_expert

PATCH = ModelPatch(
    model_types=(
        "glm4_moe",
        "glm4_moe_lite",
        "glm4_moe_lite_mtp",
        "glm4_moe_mtp",
        "glm4v",
        "glm4v_moe",
        "glm4v_moe_text",
        "glm4v_text",
    ),
    fixes=(
        Fix(
            id="mtp-head",
            model_types=("glm4_moe", "glm4_moe_mtp"),
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
            id="mtp-in-float",
            model_types=("glm4_moe", "glm4_moe_mtp"),
            why="an export made without the MTP recipe has the MTP layer as float tensors and no entry for it",
            refs=("vllm-ascend#5794",),
            versions={"vllm-ascend": ">=0.11"},
            retire="never fixed upstream; ModelSlim's GLM-4.x recipe quantizes the MTP layer",
            types=(Scheme("model.layers.**", mtp_only=True),),
        ),
        Fix(
            id="correction-bias",
            model_types=("glm4_moe", "glm4_moe_mtp", "glm4v_moe", "glm4v_moe_text"),
            why="msModelSlim writes no mlp.gate.e_score_correction_bias, a buffer of the float model; the router adds what "
            "memory held",
            refs=("msmodelslim 26.1.0, GLM-4.x", "vllm glm4_moe.py, Glm4MoE"),
            versions={"vllm-ascend": ">=0.11"},
            retire="an export that has the tensor: it is loaded then",
            fill=(Fill("**.mlp.gate.e_score_correction_bias"),),
        ),
        Fix(
            id="wrapper-order",
            model_types=("glm4v_moe", "glm4v_moe_text", "glm4v", "glm4v_text"),
            why="ModelSlim writes model.language_model.* and model.visual.*; vLLM asks language_model.* and visual.*. "
            "The vision layers ask q_proj, k_proj and v_proj of what is one tensor, qkv",
            refs=("vllm-ascend PR #7062",),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.16.0rc1 has the rows, 0.18.0rc1 maps the description with the model's own mapper",
            lookup=(
                Prefix("visual.blocks.*.attn.q_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.k_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.v_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual.blocks.*.attn.qkv_proj", "model.visual.blocks.*.attn.qkv"),
                Prefix("visual", "model.visual"),
                Prefix("language_model.model", "model.language_model"),
                Prefix("language_model.lm_head", "lm_head"),
                Prefix("model", "model.language_model"),
                Prefix("layers", "model.language_model.layers"),
            ),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
        Fix(
            id="vision-qkv-in-float",
            model_types=("glm4v", "glm4v_moe"),
            why="the vision attention's first layer is taken for quantized where no list names it; the checkpoint has it in float",
            refs=("vllm#27138",),
            versions={"vllm": ">=0.11"},
            retire="the quantizer lists the layer",
            types=(
                Scheme(
                    "visual.blocks.*.attn.qkv_proj",
                    when=("model.visual.blocks.*.attn.qkv.weight", "visual.blocks.*.attn.qkv.weight"),
                ),
            ),
        ),
        Fix(
            id="flash-row",
            model_types=("glm4_moe_lite", "glm4_moe_lite_mtp"),
            why="no packed row for glm4_moe_lite: fused projections and experts are looked up under the fused name",
            refs=("vllm-ascend packed_modules_model_mapping before 0.15.0rc1",),
            versions={"vllm-ascend": ">=0.11,<0.15"},
            retire="0.15.0rc1 has the row",
            packed=(
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
                Packed("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")),
            ),
        ),
    ),
)
