"""InternVL 3.5: the language model's names in the description."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, per_expert

PATCH = ModelPatch(
    model_types=("internvl_chat",),
    fixes=(
        Fix(
            id="language-model",
            why="the description says language_model.model.*; releases before 0.18 cut language_model from what is asked",
            refs=("vllm-ascend quant_config.py of 0.11.0 to 0.17.0rc1, get_quant_method",),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18.0rc1 cuts nothing and maps the description with the model's own mapper",
            lookup=(
                Prefix("model", "language_model.model"),
                Prefix("lm_head", "language_model.lm_head"),
            ),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
