"""Takes the installed release back to an older one in the one point that a report is about.

Used where no supported pair shows a report. Each function says which release was so.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

__all__: list[str] = []


def _config_module() -> Any:
    """The module with the packed table and the config class."""
    for name in ("configs.modelslim_config", "modelslim_config", "quant_config"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(f"vllm_ascend.quantization.{name}")
    raise ImportError("vllm_ascend.quantization has no module with the packed table")


def without_kimi_k2_row() -> None:
    """0.11.0rc1 has no kimi_k2 row."""
    _config_module().packed_modules_model_mapping.pop("kimi_k2")


def without_glm_5_row() -> None:
    """0.14.0rc1 has no glm_moe_dsa row."""
    _config_module().packed_modules_model_mapping.pop("glm_moe_dsa")


def with_text_only_qwen3_5() -> None:
    """vLLM registers the text-only classes of Qwen3.5 later than it has them."""
    registry = importlib.import_module("vllm.model_executor.models.registry").ModelRegistry
    for name in ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"):
        registry.register_model(name, f"vllm.model_executor.models.qwen3_5:{name}")


def on_310p() -> None:
    """The platform of a 310P imports this config class in place of the general one."""
    registry = importlib.import_module("vllm.model_executor.layers.quantization")
    module = importlib.import_module("vllm_ascend._310p.quantization.modelslim_config")
    registry._CUSTOMIZED_METHOD_TO_QUANT_CONFIG["ascend"] = module.AscendModelSlimConfig310


def without_rot_skip() -> None:
    """Builds between 0.20.2rc1 and 0.21.0rc1 do not skip rot.weight in the target."""
    del importlib.import_module("vllm.model_executor.models.deepseek_v2").GlmMoeDsaForCausalLM.load_weights


def without_deepseek_v4_names() -> None:
    """0.19.1rc1 has neither the rows of DeepSeek-V4 nor the rewriting of its description."""
    module = _config_module()
    for table in ("packed_modules_model_mapping", "QUANT_MODEL_PREFIX_MAPPINGS", "QUANT_MODEL_SUBSTR_MAPPINGS"):
        getattr(module, table).pop("deepseek_v4")
    _without_rewriting(module)


def with_sefl_attn() -> None:
    """0.13.0rc3, 0.20.2rc1 and 0.21.0rc1 say sefl_attn; the rewriting of the description hides it in the last two."""
    module = _config_module()
    module.QUANT_MODEL_SUBSTR_MAPPINGS["deepseek_v4"][".attn."] = ".sefl_attn."
    _without_rewriting(module)


def _without_rewriting(module: Any) -> None:
    original = module.AscendModelSlimConfig._apply_extra_quant_adaptations

    def adapted(self: Any) -> None:
        description, held = self.quant_description, self.quant_description.pop("hc_head_fn", None)
        original(self)
        if held is not None:
            description["hc_head_fn"] = held

    module.AscendModelSlimConfig._apply_extra_quant_adaptations = adapted


def without_glm_4_7_flash_row() -> None:
    """0.14.0rc1 has no glm4_moe_lite row."""
    _config_module().packed_modules_model_mapping.pop("glm4_moe_lite")


def with_remote_config_classes() -> None:
    """The config classes of these models are remote code, which is not run here."""
    transformers = importlib.import_module("transformers")
    bases = dict.fromkeys(("bailing_moe", "bailing_hybrid", "minimax_m3"), transformers.PretrainedConfig)
    for name, base in {**bases, "telechat4": transformers.DeepseekV3Config}.items():
        config = type(f"{name}_standin", (base,), {"model_type": name})
        transformers.AutoConfig.register(name, config)


def without_lm_head_alias() -> None:
    """0.20.2rc1 does not look for lm_head under language_model, and refuses an embedding that has no entry."""
    config = _config_module().AscendModelSlimConfig
    original = config.quant_prefix_mapper
    config.quant_prefix_mapper = lambda self, kind, prefix: (
        prefix if prefix == "lm_head" else original(self, kind, prefix)
    )
    config._has_quant_weight = lambda self, prefix, mapping: True


def without_deepseek_v32_row() -> None:
    """Builds of the 0.11.0 branch before PR #4797 look experts up under the fused name."""
    table = _config_module().packed_modules_model_mapping
    for name in ("deepseek_v32", "deepseek_v3"):
        table.pop(name, None)


def without_kimi_k25_names() -> None:
    """0.14.0rc1 maps no description, has no row for the projector, and cuts language_model from what is asked."""
    config = _config_module().AscendModelSlimConfig
    config.apply_vllm_mapper = lambda self, mapper: None
    config.quant_prefix_mapper = lambda self, kind, prefix: prefix.removeprefix("language_model.")


def with_inverted_mapper() -> None:
    """The builds between PR #7050 and PR #7347 leave the description and ask by the inverse of the model's mapper."""
    config = _config_module().AscendModelSlimConfig

    def keep(self: Any, mapper: Any) -> None:
        self.inverse = {new: old for old, new in mapper.orig_to_new_prefix.items() if new}

    def asked(self: Any, kind: str, prefix: str) -> str:
        for new, old in getattr(self, "inverse", {}).items():
            if prefix.startswith(new):
                prefix = old + prefix[len(new) :]
        return prefix

    config.apply_vllm_mapper = keep
    config.quant_prefix_mapper = asked


def with_draft_model_config() -> None:
    """The speculator of a 310P in 0.30.0rc2 builds the draft under the draft's model config, the general one does not."""
    proposer = importlib.import_module("vllm_ascend.spec_decode.eagle_proposer").AscendEagleProposer
    original = proposer._create_draft_vllm_config

    def created(self: Any) -> Any:
        config = original(self)
        config.model_config = self.speculative_config.draft_model_config
        return config

    proposer._create_draft_vllm_config = created
