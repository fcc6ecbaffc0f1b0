"""The build seam: prefixes that vLLM gives to the parts of a model, at ``maybe_prefix(prefix, name)``.

Lives in ``vllm.model_executor.models.utils`` in every release from 0.11 to 0.30, and is bound by name in
144 to 285 model files. A rule turns a prefix that no quantized or ignored module of the checkpoint has
into one that they have; an override needs no such proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from ascend_hotfix import log, scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.seams import hooking, ignore
from ascend_hotfix.seams.lookup import Description

__all__ = ["arm", "quantized_names"]

TARGET = "vllm.model_executor.models.utils.maybe_prefix"
_NAMES: WeakKeyDictionary[Any, tuple[Any, frozenset[str]]] = WeakKeyDictionary()
"""Config -> its description (or None) and the names that it spoke of when it was first asked."""


def arm(module: ModuleType) -> None:
    """Wraps ``maybe_prefix`` and the bindings of it that were made before."""
    original = getattr(module, "maybe_prefix", None)
    if original is None:
        hooking.drifted("build", TARGET, "vllm/model_executor/models/utils.py")
        return
    if hooking.wrap(module, "maybe_prefix", _maybe_prefix):
        hooking.replace_everywhere(original, module.maybe_prefix, "maybe_prefix")


def _maybe_prefix(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    prefix = wrapped(*args, **kwargs)
    try:
        return prefix if scope.catalog().off or not isinstance(prefix, str) else _renamed(prefix)
    except Exception as error:
        log.contained(f"renaming the prefix {prefix!r}", error)
        return prefix


def _renamed(prefix: str) -> str:
    for one, renamer in scope.current().renamers("build"):
        renaming = renamer.look(prefix) if one.fix.override else renamer.resolve(prefix, _is_known)
        if renaming:
            LEDGER.hit(one.patch, one.fix.id, "build", f"{prefix} -> {renaming.new}")
            return renamer.count(renaming)
    return prefix


def _is_known(prefix: str) -> bool:
    """Is *prefix* a module of the quantization config, or above one? Without a config everything is."""
    known = _known_prefixes()
    return prefix in known or not known


def _known_prefixes() -> frozenset[str]:
    from vllm.config import get_current_vllm_config

    config = get_current_vllm_config().quant_config
    if config is None:
        return frozenset()
    description = getattr(config, "quant_description", None)
    held = _NAMES.get(config)
    if held is None or held[0] is not description:  # upstream replaces the description now and then
        names: set[str] = set()
        for name in quantized_names(config):
            segments = name.split(".")
            names.update(".".join(segments[:end]) for end in range(1, len(segments) + 1))
        held = _NAMES[config] = (description, frozenset(names))
    return held[1]


def quantized_names(config: Any) -> Iterable[str]:
    """Module names that a quantization config speaks of.

    The description of ModelSlim, or the dotted names in the targets and ignore lists of another method
    (compressed-tensors, FP8), where a target may also be a class name or a ``re:`` pattern. What the other seams
    have added to either is not among them.
    """
    description = getattr(config, "quant_description", None)
    if isinstance(description, Description):
        return description.modules()
    if isinstance(description, dict):
        return [key.rpartition(".")[0] for key in description if "." in key]
    names: list[str] = []
    added = ignore.added(config)
    for value in vars(config).values():
        entries = list(value) if isinstance(value, list | tuple | set | dict) else []
        names += [one for one in entries if isinstance(one, str) and "." in one and not one.startswith("re:")]
    return [one for one in names if one not in added]
