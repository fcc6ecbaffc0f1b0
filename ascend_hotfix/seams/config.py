"""What vLLM reads of a checkpoint before it builds anything: config.json, and how the draft is quantized.

``PretrainedConfig.get_config_dict`` of transformers gives every reader in vLLM the content of config.json;
it is wrapped when vLLM's own reader (``vllm.transformers_utils.config``) has been imported. The draft is
told of the quantization where vllm-ascend detects it (``maybe_auto_detect_quantization``, from 0.17).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ascend_hotfix import log, scope
from ascend_hotfix.records import Config, DraftQuantization
from ascend_hotfix.seams import hooking

__all__ = ["arm", "arm_detection", "meets"]

SEAM = "config"
TARGET = "transformers.PretrainedConfig.get_config_dict"


def arm(module: ModuleType) -> None:
    """Wraps the reader of config.json that *module* (vllm.transformers_utils.config) uses, where a fix needs it."""
    if not any(isinstance(r, Config) for one in scope.catalog().wanted() for r in one.fix.config):
        return
    reader = getattr(module, "PretrainedConfig", None)
    if not hasattr(reader, "get_config_dict"):
        hooking.drifted(SEAM, TARGET, "vllm/transformers_utils/config.py")
        return
    hooking.wrap(reader, "get_config_dict", _get_config_dict)


def arm_detection(module: ModuleType) -> None:
    """Wraps ``maybe_auto_detect_quantization`` of vllm_ascend.quantization.utils, where the release has it."""
    if hasattr(module, "maybe_auto_detect_quantization"):
        hooking.wrap(module, "maybe_auto_detect_quantization", _detect)


def _get_config_dict(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    try:
        if isinstance(result, tuple) and result and isinstance(result[0], dict):
            return (_changed(result[0]), *result[1:])
    except Exception as error:
        log.contained("changing the model's config", error)
    return result


def _changed(config: dict[str, Any]) -> dict[str, Any]:
    classes = config.get("architectures") or ()
    for one, record in scope.of_types(scope.model_types(config), classes).records(SEAM):
        if not isinstance(record, Config) or not meets(config, record):
            continue
        gone = [key for key in record.remove if key in config]
        new = {key: value for key, value in record.put.items() if config.get(key) != value}
        if gone or new:
            config = {key: value for key, value in config.items() if key not in gone} | new
            hooking.applied(one, SEAM, "; ".join([*(f"no {g}" for g in gone), *map(_said, new.items())]))
    return config


def meets(config: dict[str, Any], record: Config) -> bool:
    """Does *config*, the content of a config.json, say what *record* is for?"""
    return all(_at(config, key) == value for key, value in record.where.items())


def _at(config: Any, key: str) -> Any:
    """The value at a dotted *key*, such as ``quantization_config.quant_method``."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config


def _said(item: tuple[str, Any]) -> str:
    return f"{item[0]}={item[1]!r}"


def _detect(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    try:
        _hand_on(args[0] if args else kwargs["vllm_config"])
    except Exception as error:
        log.contained("telling the draft of the quantization", error)
    return result


def _hand_on(vllm_config: Any) -> None:
    target = vllm_config.model_config
    draft = getattr(getattr(vllm_config, "speculative_config", None), "draft_model_config", None)
    if draft is None or target.quantization is None or draft.quantization is not None or draft.model != target.model:
        return
    for one, record in scope.of_config(vllm_config).records(SEAM):
        if isinstance(record, DraftQuantization):
            draft.quantization = target.quantization
            hooking.applied(one, SEAM, f"draft of {draft.model}: {target.quantization}")
            return
