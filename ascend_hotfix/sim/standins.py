"""What a checkpoint's ``config.json`` needs so that upstream can read it here: stand-in config classes and small
corrections.

Two reasons, neither of them the checkpoint's names: the release's config class is remote code, which is not run here,
or the installed transformers is older than the model. Each row says which.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_hotfix.versions import fits

__all__ = ["CORRECTIONS", "STAND_INS", "Correction", "corrected", "register", "stage"]

Config = dict[str, Any]


@dataclass(frozen=True)
class Correction:
    """A change of ``config.json`` for one model type and a range of vllm-ascend releases."""

    model_type: str
    versions: str
    why: str
    change: Callable[[Config], Config]


def _with_defaults(**values: Any) -> Callable[[Config], Config]:
    return lambda config: {**values, **config}


def _derives_layers() -> bool:
    """Whether the installed transformers works LongCat's num_hidden_layers out itself (5.24 does, 5.14 does not)."""
    try:
        from transformers.models.longcat_flash.configuration_longcat_flash import LongcatFlashConfig
    except ImportError:
        return False
    return isinstance(getattr(LongcatFlashConfig, "num_hidden_layers", None), property)


def _with_layers(config: Config) -> Config:
    return {**config, "num_hidden_layers": config.get("num_layers", config.get("num_hidden_layers"))}


CORRECTIONS = (
    Correction(
        "hunyuan_v1_moe",
        ">=0.11",
        "vLLM reads these fields; the release's remote config class supplies them",
        lambda config: {
            "moe_intermediate_size": [config.get("intermediate_size")] * int(config.get("num_hidden_layers", 0)),
            "use_mixed_mlp_moe": True,
            "use_qk_norm": True,
            "num_shared_expert": [1] * int(config.get("num_hidden_layers", 0)),
            **config,
        },
    ),
    Correction(
        "longcat_flash",
        ">=0.11",
        "vLLM reads zero_expert_type; the release's config class supplies it",
        _with_defaults(zero_expert_type="identity"),
    ),
    Correction(
        "longcat_flash",
        ">=0.11",
        "transformers' class writes num_hidden_layers as twice num_layers, vLLM's FlashConfig takes it literally",
        lambda config: config if _derives_layers() else _with_layers(config),
    ),
)


def _subclass_of_deepseek_v3(model_type: str) -> type:
    from transformers import DeepseekV3Config

    return type(f"{model_type}_StandIn", (DeepseekV3Config,), {"model_type": model_type})


def _minimax_m2() -> type:
    from transformers import PretrainedConfig

    class MiniMaxM2StandIn(PretrainedConfig):  # type: ignore[misc]
        model_type = "minimax_m2"

        def __init__(self, head_dim: int = 128, rotary_dim: int = 64, rope_theta: float = 5e6, **fields: Any) -> None:
            self.head_dim, self.rotary_dim, self.rope_theta = head_dim, rotary_dim, rope_theta
            self.partial_rotary_factor = rotary_dim / head_dim
            super().__init__(**fields)

    return MiniMaxM2StandIn


def _internvl_chat() -> type:
    from transformers import PretrainedConfig, Qwen3Config, Qwen3MoeConfig

    class InternVisionStandIn(PretrainedConfig):  # type: ignore[misc]
        model_type = "intern_vit_6b"

    class InternVLChatStandIn(PretrainedConfig):  # type: ignore[misc]
        model_type = "internvl_chat"

        def __init__(
            self,
            vision_config: Config | None = None,
            llm_config: Config | None = None,
            downsample_ratio: float = 0.5,
            select_layer: int = -1,
            ps_version: str = "v2",
            **fields: Any,
        ) -> None:
            super().__init__(**fields)
            text = {name: value for name, value in (llm_config or {}).items() if name != "model_type"}
            moe = str(text.get("architectures") or "").find("Qwen3Moe") >= 0
            self.vision_config = InternVisionStandIn(**(vision_config or {}))
            self.llm_config = (Qwen3MoeConfig if moe else Qwen3Config)(**text)
            self.downsample_ratio, self.select_layer, self.ps_version = downsample_ratio, select_layer, ps_version
            self.force_image_size = fields.get("force_image_size")
            self.hidden_size = self.llm_config.hidden_size
            self.tie_word_embeddings = self.llm_config.tie_word_embeddings

        def to_dict(self) -> Config:
            nested = {"vision_config": self.vision_config.to_dict(), "llm_config": self.llm_config.to_dict()}
            return {**super().to_dict(), **nested, "model_type": self.model_type}

    return InternVLChatStandIn


STAND_INS: dict[str, Callable[[], type]] = {
    "kimi_k2": lambda: _subclass_of_deepseek_v3("kimi_k2"),  # remote code in the release
    "glm_moe_dsa": lambda: _subclass_of_deepseek_v3("glm_moe_dsa"),  # newer than transformers 4.57
    "minimax_m2": _minimax_m2,  # newer than transformers 4.57
    "internvl_chat": _internvl_chat,  # remote code in the release
}


def register() -> None:
    """Give transformers a stand-in for each model type of :data:`STAND_INS` that neither it nor vLLM knows."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from vllm.transformers_utils import config as vllm_config

    for model_type, make in STAND_INS.items():
        if model_type not in CONFIG_MAPPING and model_type not in vllm_config._CONFIG_REGISTRY:
            AutoConfig.register(model_type, make())


def corrected(config: Config, version: str) -> Config:
    """``config`` as the vllm-ascend release ``version`` needs it here; the same content when nothing applies."""
    for row in CORRECTIONS:
        if row.model_type == config.get("model_type") and fits(version, row.versions):
            config = row.change(config)
    return {name: value for name, value in config.items() if name != "auto_map"}


def stage(model_dir: Path, version: str) -> Path:
    """``model_dir`` itself, or, when its ``config.json`` needs a correction, a temporary directory of links around
    the new one.
    """
    original = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    config = corrected(original, version)
    if config == original:
        return model_dir
    staged = Path(tempfile.mkdtemp(prefix="ascend-hotfix-")) / model_dir.name
    staged.mkdir()
    for path in model_dir.iterdir():
        if path.name != "config.json":
            os.symlink(path.resolve(), staged / path.name)
    (staged / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return staged
