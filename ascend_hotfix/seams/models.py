"""Where a model is built: ``initialize_model`` opens the scope, and the built model's class is armed.

``vllm.model_executor.model_loader.utils.initialize_model`` exists in every release from 0.11 to 0.30; a
wrapper model calls it again for the language model inside. vllm-ascend 0.11 builds its draft without it,
so the classes of model modules are armed when those modules are imported as well.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import weakref
from types import ModuleType
from typing import Any

from ascend_hotfix import finder, log, scope
from ascend_hotfix.ledger import LEDGER, Build
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import describe, hooking, ignore, instances, layers, lookup, weights

__all__ = ["arm", "arm_module"]

TARGET = "vllm.model_executor.model_loader.utils.initialize_model"
_BUILDS: dict[int, list[Build]] = {}
"""What was built with each VllmConfig, by its id: it has no hash, and compares by content."""

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
        instances.arm()
    except Exception as error:
        log.contained("arming the ends of a load", error)
    try:
        finder.check()  # the model's module may have been imported past it
        vllm_config = args[0] if args else kwargs["vllm_config"]
        current = _open_scope(*args, **kwargs)
        asked = _Asked(vllm_config, kwargs.get("model_config") or vllm_config.model_config)
        build = LEDGER.current if scope.enclosing() is not None else None
        build = build or _begin(asked, current)
    except Exception as error:
        log.contained("opening the scope of the model", error)
        return wrapped(*args, **kwargs)
    with scope.pinned(current), LEDGER.counting(build):
        model = wrapped(*args, **kwargs)
        try:
            build.model = type(model).__name__
            layers.adjust(model, current, vllm_config.quant_config)
            weights.remember(model, current, build, draft=asked.is_draft, whole=asked.is_whole).fill()
            weights.arm_class(type(model))
            _leave_fingerprint(vllm_config, build)
        except Exception as error:
            log.contained(f"arming {type(model).__name__}", error)
    return model


class _Asked:
    """What is to be built: the model of *model_config*, in a server of *vllm_config*."""

    def __init__(self, vllm_config: Any, model_config: Any) -> None:
        speculative = getattr(vllm_config, "speculative_config", None)
        draft = getattr(speculative, "draft_model_config", None)
        # n-gram drafting has the target's config for a draft's, and builds none
        self.draft = None if draft is getattr(speculative, "target_model_config", None) else draft
        self.is_draft = self.draft is not None and model_config is self.draft
        parallel = getattr(vllm_config, "parallel_config", None)
        self.is_whole = getattr(parallel, "pipeline_parallel_size", 1) == 1
        self.vllm_config = vllm_config


def _begin(asked: _Asked, current: Scope) -> Build:
    """The build of a model that is in no other one. What the draft may need as well waits for the draft."""
    before = LEDGER.builds[-1] if LEDGER.builds else None
    build = LEDGER.begin(scope.keys_of(current))
    if asked.is_draft:
        build.target = before
    elif asked.draft is not None:
        build.awaited = set(scope.keys_of(scope.of_config(asked.vllm_config, asked.draft)))
    return build


def _open_scope(vllm_config: Any, *, model_config: Any = None, **_: Any) -> Scope:
    """The scope of the model about to be built; inside a wrapper model, the wrapper's names stay in it."""
    scope.announce()
    _check_classes()
    layers.rearm()
    inner = scope.of_config(vllm_config, model_config)
    outer = scope.enclosing()
    if outer is not None and set(outer.types) - set(inner.types):
        types = (*outer.types, *(one for one in inner.types if one not in outer.types))
        inner = scope.of_types(types, config=inner.config, model=inner.model)
    _arm_config(vllm_config.quant_config, inner)
    if model_config is not None and model_config is not vllm_config.model_config and model_config.quantization:
        _arm_draft(model_config.quantization, inner)
    return inner


def _check_classes() -> None:
    """Says which model classes of the user's patches vLLM does not have. A shipped patch may be for another release."""
    mine = {name: source.patch.fixes for name, source in scope.catalog().sources.items() if source.kind == "user"}
    named = {cls: name for name, fixes in mine.items() for fix in fixes for cls in fix.architectures}
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


def _leave_fingerprint(vllm_config: Any, build: Build | None = None) -> None:
    """Lets the hash of the config tell what the fixes say that acted on the models built with it.

    A layer that is quantized because of a fix is traced into another graph, and vLLM keys its compile caches by
    ``VllmConfig.compute_hash``. A key in ``additional_config`` would do as well, but vllm-ascend 0.30 refuses
    keys that it does not know.
    """
    if build is not None:
        key = id(vllm_config)
        if key not in _BUILDS:
            weakref.finalize(vllm_config, _BUILDS.pop, key, None)
        _BUILDS.setdefault(key, []).append(build)
    if _fingerprint(vllm_config):
        hooking.wrap(type(vllm_config), "compute_hash", _compute_hash)


def _compute_hash(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped(*args, **kwargs) + _fingerprint(instance)


def _fingerprint(vllm_config: Any) -> str:
    """Ten characters that stand for the content of the fixes that acted on what *vllm_config* built; nothing without any.

    How often a fix acted is no part of it: ranks differ in that, and another day's patch may act as often. A config
    that has built nothing itself is a copy of one: then it is all that acted in this process.
    """
    builds = _BUILDS.get(id(vllm_config), ())
    entries = [entry for build in builds for entry in build.entries.values()] if builds else list(LEDGER)
    acted = {(one.patch, one.fix, one.seam) for one in entries if one.hits and one.seam in BUILD_SEAMS}
    said = sorted("\n".join((*key, _content(*key))) for key in acted)
    return hashlib.sha256("\n\n".join(said).encode()).hexdigest()[:10] if said else ""


def _content(patch: str, fix: str, seam: str) -> str:
    """What a fix says at *seam*."""
    source = scope.catalog().sources.get(patch)
    return next((repr(getattr(one, seam)) for one in (source.patch.fixes if source else ()) if one.id == fix), "")
