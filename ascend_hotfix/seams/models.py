"""Where a model is built: ``initialize_model`` opens the scope, and the built model's class is armed.

``vllm.model_executor.model_loader.utils.initialize_model`` exists in every release from 0.11 to 0.30; a
wrapper model calls it again for the language model inside. vllm-ascend 0.11 builds its draft without it,
so the classes of model modules are armed when those modules are imported as well.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from types import ModuleType
from typing import Any

from ascend_hotfix import finder, log, scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import describe, hooking, ignore, layers, lookup, weights

__all__ = ["arm", "arm_module"]

TARGET = "vllm.model_executor.model_loader.utils.initialize_model"
BUILD_SEAMS = ("build", "lookup", "packed", "types", "config", "describe", "layers")


def arm(module: ModuleType) -> None:
    """Wraps ``initialize_model`` and the bindings of it that were made before."""
    original = getattr(module, "initialize_model", None)
    if original is None:
        hooking.drifted("weights", TARGET, "vllm/model_executor/model_loader/utils.py")
        return
    if hooking.wrap(module, "initialize_model", _initialize_model):
        hooking.replace_everywhere(original, module.initialize_model, "initialize_model")


def arm_module(module: ModuleType) -> None:
    """Arms every model class that *module* defines, and the parts that fixes name."""
    built = layers.named_classes()
    for value in list(vars(module).values()):
        if not inspect.isclass(value) or value.__module__ != module.__name__:
            continue
        if "load_weights" in value.__dict__:
            weights.arm_class(value)
        if value.__name__ in built:
            layers.arm_class(value)


def _initialize_model(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if scope.catalog().off:
        return wrapped(*args, **kwargs)
    try:
        finder.check()  # the model's module may have been imported past it
        current = _open_scope(*args, **kwargs)
    except Exception as error:
        log.contained("opening the scope of the model", error)
        return wrapped(*args, **kwargs)
    with scope.pinned(current):
        model = wrapped(*args, **kwargs)
    try:
        layers.adjust(model, current, args[0].quant_config if args else kwargs["vllm_config"].quant_config)
        weights.remember(model, current)
        weights.arm_class(type(model))
        _leave_fingerprint(*args, **kwargs)
    except Exception as error:
        log.contained(f"arming {type(model).__name__}", error)
    return model


def _open_scope(vllm_config: Any, *, model_config: Any = None, **_: Any) -> Scope:
    """The scope of the model about to be built; inside a wrapper model, the wrapper's names stay in it."""
    scope.announce()
    _check_classes()
    layers.rearm()
    inner = scope.of_config(vllm_config, model_config)
    outer = scope.enclosing()
    if outer is not None and set(outer.types) - set(inner.types):
        inner = scope.of_types((*outer.types, *(t for t in inner.types if t not in outer.types)), config=inner.config)
    _arm_config(vllm_config.quant_config, inner)
    if model_config is not None and model_config is not vllm_config.model_config and model_config.quantization:
        _arm_draft(model_config.quantization, inner)
    return inner


def _check_classes() -> None:
    """Says which model classes of the user's patches vLLM does not have. A shipped patch may be for another release."""
    patches = [source.patch for source in scope.catalog().sources.values() if source.patch.architectures]
    named = {cls: patch.name for patch in patches if scope.from_path(patch.name) for cls in patch.architectures}
    if not named:
        return
    from vllm.model_executor.models.registry import ModelRegistry

    known = list(ModelRegistry.get_supported_archs())
    for cls in sorted(set(named).difference(known)):
        near = difflib.get_close_matches(cls, known, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        log.finding(f"{named[cls]}: vLLM has no model class {cls!r}, which its architectures name{hint}")


def _arm_draft(quantization: str, current: Scope) -> None:
    from vllm.model_executor.layers.quantization import get_quantization_config

    cls = get_quantization_config(quantization)
    if cls.__name__ not in lookup.CLASSES:
        ignore.arm_class(cls, current)


def _arm_config(quant_config: Any, current: Scope) -> None:
    """A ModelSlim config class that lives where we did not look for it is armed here, and every other config."""
    if quant_config is None:
        return
    if not hasattr(quant_config, "quant_description"):
        ignore.arm_config(quant_config, current)
    else:
        lookup.arm_class(type(quant_config))
        describe.arm_class(type(quant_config))
        if not hooking.is_wrapped(inspect.getattr_static(type(quant_config), "get_quant_method")):
            name = f"{type(quant_config).__module__}.{type(quant_config).__qualname__}.get_quant_method"
            hooking.drifted("lookup", name, "vllm_ascend/quantization/")


def _leave_fingerprint(vllm_config: Any, **_: Any) -> None:
    """Lets the hash of the config tell what the fixes did to this build.

    A layer that is quantized because of a fix is traced into another graph, and vLLM keys its compile caches by
    ``VllmConfig.compute_hash``. A key in ``additional_config`` would do as well, but vllm-ascend 0.30 refuses
    keys that it does not know.
    """
    if _fingerprint():
        hooking.wrap(type(vllm_config), "compute_hash", _compute_hash)


def _compute_hash(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped(*args, **kwargs) + _fingerprint()


def _fingerprint() -> str:
    """Ten characters that stand for the hits while models were built; nothing where there were none."""
    applied = sorted(f"{e.patch}.{e.fix}.{e.seam}={e.hits}" for e in LEDGER if e.hits and e.seam in BUILD_SEAMS)
    return hashlib.sha256("\n".join(applied).encode()).hexdigest()[:10] if applied else ""
