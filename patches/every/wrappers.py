"""Multimodal wrappers whose description begins its names otherwise than vLLM does."""

from ascend_hotfix.records import Exact, Fix, ModelPatch, Prefix

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="order",
            why="the description says model.language_model.* and model.vision_tower.*, as transformers does from 4.52 on; "
            "these releases cut language_model from what vLLM asks, and map nothing",
            refs=("vllm-ascend quant_config.py of 0.11.0 to 0.17.0rc1", "vllm 0.13 gemma3_mm.py"),
            versions={"vllm-ascend": ">=0.11,<0.18"},
            retire="0.18.0rc1 maps the description with the model's own mapper",
            lookup=(
                Prefix("model", "model.language_model"),
                Prefix("vision_tower", "model.vision_tower"),
                Prefix("multi_modal_projector", "model.multi_modal_projector"),
                Exact("lm_head", "model.language_model.embed_tokens"),  # a tied head has no entry of its own
            ),
        ),
    ),
)
