"""Checks config.json: what vLLM computes with has a value of its type.

Only keys whose type is the same in every model that vllm-ascend serves; what else a model needs is the dry run's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ascend_hotfix.doctor.bounds import most_of
from ascend_hotfix.doctor.checkpoint import LANGUAGE_CONFIGS, LONGEST, language_configs
from ascend_hotfix.doctor.findings import Collector

__all__ = ["DRAFT_COUNTS", "EXPERT_COUNTS", "SIZE", "check_config"]

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
DRAFT_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
QUANTIZATION = ("quantization_config", "compression_config")
NESTED = (*LANGUAGE_CONFIGS, "vision_config", "audio_config")


def _size(value: object) -> bool:
    return type(value) is int and value > 0


def _count(value: object) -> bool:
    # ERNIE 4.5 VL has a list: one number for text, one for vision
    return value is None or (type(value) is int and value >= 0) or (isinstance(value, list) and all(map(_count, value)))


def _strings(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))


Rule = tuple[Callable[[object], bool], str]
SIZE: Rule = _size, "a whole number above 0"
COUNT: Rule = _count, "a whole number"
OBJECT: Rule = (lambda value: isinstance(value, dict | None)), "an object"
TEXT: Rule = (lambda value: isinstance(value, str | None)), "a string"
SWITCH: Rule = (lambda value: isinstance(value, bool | None)), "true or false"

RULES: dict[str, Rule] = {
    "architectures": (_strings, "a list of strings"),
    **dict.fromkeys(("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads"), SIZE),
    **dict.fromkeys((*EXPERT_COUNTS, *DRAFT_COUNTS), COUNT),
    **dict.fromkeys((*NESTED, *QUANTIZATION), OBJECT),
    **dict.fromkeys(("model_type", "dtype", "torch_dtype"), TEXT),
    "tie_word_embeddings": SWITCH,
}


def _shown(value: object) -> str:
    """*value* as config.json writes it, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _wrong(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, what it is, what was expected) of every value that cannot be right."""
    if config.get("model_type") in (None, ""):
        yield "model_type", _shown(config["model_type"]) if "model_type" in config else "missing", TEXT[1]
    for path, inner in language_configs(config):
        for key, (fits, expected) in RULES.items():
            if key in inner and not fits(inner[key]):
                yield f"{path}.{key}" if path else key, _shown(inner[key]), expected
        for key, value in inner.items():
            if value != value:  # NaN alone is unlike itself; Python's json takes it, and so does the model
                yield f"{path}.{key}" if path else key, "NaN", "a number"
    for path, inner in _all_configs(config):
        for key, value in inner.items():
            most = most_of(key)
            if most is not None and any(
                one > most for one in (value if isinstance(value, list) else [value]) if _size(one)
            ):
                yield f"{path}.{key}" if path else key, _shown(value), f"{SIZE[1]}, at most {most}"
    block = config.get("quantization_config")
    method = block.get("quant_method") if isinstance(block, dict) else None
    if not TEXT[0](method):
        yield "quantization_config.quant_method", _shown(method), TEXT[1]


def _all_configs(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """*config* and every config inside it, as (dotted path, config); not what says how it is quantized."""
    queue: list[tuple[str, Mapping[str, Any]]] = [("", config)]
    for path, current in queue:
        yield path, current
        for key, value in current.items():
            if isinstance(value, dict) and key.endswith("config") and key not in QUANTIZATION:
                queue.append((f"{path}.{key}" if path else key, value))


def check_config(config: Mapping[str, Any], found: Collector) -> None:
    """Report values that vLLM cannot take, one finding each."""
    for key, value, expected in _wrong(config):
        found.add("config-value", key, place="config.json", key=key, found=value, expected=expected)
