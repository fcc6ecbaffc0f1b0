"""Whether a ``types`` record is for a layer: its pattern, its bounds, and what the checkpoint has."""

from __future__ import annotations

from typing import Any

from ascend_hotfix import scope
from ascend_hotfix.names import filled, layer_number, matches
from ascend_hotfix.records import Scheme
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams.headers import in_float, tensor_names

__all__ = ["applies"]


def applies(record: Scheme, module: str, current: Scope) -> bool:
    """Is *record* for *module*, and does the checkpoint have a tensor that it asks for?"""
    return (
        matches(record.pattern, module)
        and (not record.mtp_only or _is_draft_layer(module, current.config))
        and (not record.when or _is_shown(record, module))
    )


def _is_shown(record: Scheme, module: str) -> bool:
    """Does the checkpoint that is being served have a tensor of ``when``? A draft from another folder is not asked."""
    from vllm.config import get_current_vllm_config

    model = str(get_current_vllm_config().model_config.model)
    wanted = [name for tensor in record.when if (name := filled(record.pattern, module, tensor)) is not None]
    if record.scheme == "FLOAT":
        return in_float(model, wanted)
    return not tensor_names(model).isdisjoint(wanted)


def _is_draft_layer(module: str, config: Any) -> bool:
    """Is the layer numbered from num_hidden_layers on, where MTP layers are kept?"""
    holders = (config, *(getattr(config, key, None) for key in scope.NESTED))
    counts = [count for one in holders if isinstance(count := getattr(one, "num_hidden_layers", None), int)]
    number = layer_number(module)
    return bool(counts) and number is not None and number >= counts[0]
