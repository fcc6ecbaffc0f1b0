"""How layers are built: prefixes that a constructor forgets to hand on, and what a built model still lacks.

Constructors: ``__init__`` of the classes that ``Inside`` and ``TargetLayers`` name, in vLLM's model files.
After ``initialize_model``: parameters, attributes and results of layers (``Bias``, ``ParamAttr``, ``Reuse``).
``LayerIndex`` acts at ``extract_layer_index``, which every release has in
``vllm.model_executor.models.utils``.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ascend_hotfix import log, scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import layer_number, matches
from ascend_hotfix.records import Bias, ByPath, Inside, LayerIndex, ParamAttr, Reuse, TargetLayers
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import hooking

__all__ = ["adjust", "arm", "arm_class", "named_classes", "rearm"]

SEAM = "layers"
INDEX = "vllm.model_executor.models.utils.extract_layer_index"
_ARMED: list[type] = []


class _Building(threading.local):
    """The classes under construction around us, outermost first, each with the prefix it was given."""

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []


_BUILDING = _Building()


def arm(module: ModuleType) -> None:
    """Wraps ``extract_layer_index`` and the bindings of it that were made before, where a fix needs it."""
    if not any(isinstance(record, LayerIndex) for record in _wanted()):
        return
    original = getattr(module, "extract_layer_index", None)
    if original is None:
        hooking.drifted(SEAM, INDEX, "vllm/model_executor/models/utils.py")
    elif hooking.wrap(module, "extract_layer_index", _extract_layer_index):
        hooking.replace_everywhere(original, module.extract_layer_index, "extract_layer_index")


def _wanted() -> Iterator[Any]:
    for one in scope.catalog().wanted():
        yield from one.fix.layers


def named_classes() -> set[str]:
    """The names of the classes whose constructors a fix speaks of."""
    names: set[str] = set()
    for record in _wanted():
        if isinstance(record, Inside):
            names |= {record.cls, record.inside}
        elif isinstance(record, TargetLayers):
            names.add(record.cls)
    return names


def arm_class(cls: type) -> None:
    """Wraps ``__init__`` of a class that :func:`named_classes` names."""
    if "__init__" in cls.__dict__:
        hooking.wrap(cls, "__init__", _init)
        if cls not in _ARMED:
            _ARMED.append(cls)


def rearm() -> None:
    """Wraps again what a patch of vllm-ascend has replaced since."""
    for cls in _ARMED:
        hooking.wrap(cls, "__init__", _init)


def _init(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    prefix, restore = "", None
    try:
        args, kwargs, prefix = _with_prefix(wrapped, instance, args, kwargs)
        restore = _with_all_layers(instance, args, kwargs)
    except Exception as error:
        log.contained(f"preparing to build {type(instance).__name__}", error)
    _BUILDING.stack.append((type(instance).__name__, prefix))
    try:
        return wrapped(*args, **kwargs)
    finally:
        _BUILDING.stack.pop()
        if restore is not None:
            restore()


def _with_prefix(
    wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], str]:
    """The call with the prefix it should have, and that prefix."""
    signature = inspect.signature(wrapped)
    if "prefix" not in signature.parameters:
        return args, kwargs, ""
    bound = signature.bind_partial(*args, **kwargs)
    given = bound.arguments.get("prefix", "")
    if not isinstance(given, str):
        return args, kwargs, ""
    for one, record in scope.current().records(SEAM):
        if not isinstance(record, Inside) or record.cls not in _names(instance):
            continue
        above = next((p for name, p in reversed(_BUILDING.stack) if name == record.inside), None)
        if above is None:
            continue
        wanted = f"{above}.{record.name}" if above else record.name
        if given != wanted and not given.startswith(wanted + "."):
            bound.arguments["prefix"] = wanted
            LEDGER.hit(one.patch, one.fix.id, SEAM, f"{record.cls} in {record.inside}: {given!r} -> {wanted!r}")
            return bound.args, bound.kwargs, wanted
    return args, kwargs, given


def _names(instance: Any) -> set[str]:
    return {cls.__name__ for cls in type(instance).__mro__}


def _with_all_layers(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
    """Lets the target's config count all of its layers while a draft is built; how to undo it, or None."""
    for one, record in scope.current().records(SEAM):
        if not isinstance(record, TargetLayers) or record.cls not in _names(instance):
            continue
        config = kwargs.get("vllm_config", args[0] if args else None)
        target = getattr(config, "model_config", None)
        if config is None or target is None:
            continue
        total = target.hf_text_config.num_hidden_layers
        if target.get_num_layers(config.parallel_config) == total:
            continue
        held = target.__dict__
        held["get_num_layers"] = _always(total)
        LEDGER.hit(one.patch, one.fix.id, SEAM, f"{record.cls}: layers numbered from {total}")
        return lambda: held.pop("get_num_layers", None)
    return None


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _extract_layer_index(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return wrapped(*args, **kwargs)
    except AssertionError:
        if len(args) != 1 or kwargs:
            raise
        for one, record in scope.current().records(SEAM):
            if isinstance(record, LayerIndex):
                index = wrapped(args[0], record.modules)
                LEDGER.hit(one.patch, one.fix.id, SEAM, f"{args[0]}: attention module {index}")
                return index
        raise


def adjust(model: Any, current: Scope, quant_config: Any) -> None:
    """Gives a built model what the records of its scope say it lacks."""
    for one, record in current.records(SEAM):
        hits: list[str] = []
        if isinstance(record, Bias):
            hits = _add_biases(model, record, current, quant_config)
        elif isinstance(record, ByPath):
            hits = _ask_again(model, record, quant_config)
        elif isinstance(record, ParamAttr):
            hits = _set_attributes(model, record, override=bool(one.fix.override))
        elif isinstance(record, Reuse):
            hits = _reuse(model, record, current)
        for example in hits:
            LEDGER.hit(one.patch, one.fix.id, SEAM, example)


def _add_biases(model: Any, record: Bias, current: Scope, quant_config: Any) -> list[str]:
    description = getattr(quant_config, "quant_description", None)
    if not isinstance(description, dict):
        return []
    added = []
    for name, module in model.named_modules():
        if not matches(record.pattern, name) or not hasattr(module, "output_partition_sizes"):
            continue
        if getattr(module, "bias", None) is not None or "bias" not in module._parameters:
            continue
        shards = [_described(shard, description, current) for shard in _shards(name, quant_config, current)]
        schemes = {description.get(f"{shard}.weight") for shard in shards}
        if schemes == {record.scheme} and any(f"{shard}.bias" in description for shard in shards):
            _register_bias(module)
            added.append(f"{name}.bias")
    return added


def _shards(name: str, quant_config: Any, current: Scope) -> list[str]:
    """The checkpoint's modules of a fused module; *name* itself where it is not fused."""
    head, _, last = name.rpartition(".")
    rows = dict(getattr(quant_config, "packed_modules_mapping", None) or {})
    for _, packed in current.records("packed"):
        rows.setdefault(packed.fused, packed.shards)
    return [f"{head}.{shard}" if head else shard for shard in rows.get(last, (last,))]


def _described(module: str, description: dict[str, Any], current: Scope) -> str:
    """The name under which the description speaks of *module*."""
    for _, renamer in current.renamers("lookup"):
        found = renamer.resolve(module, lambda one: f"{one}.weight" in description)
        if found:
            return found.new
    return module


def _register_bias(module: Any) -> None:
    """A zero bias ``[output rows of this rank]`` in the model's dtype, loaded as vLLM's own biases are."""
    import torch

    rows = sum(module.output_partition_sizes)
    bias = torch.nn.Parameter(
        torch.zeros(rows, dtype=module.params_dtype, device=module.weight.device), requires_grad=False
    )
    bias.output_dim = 0
    bias.weight_loader = module.weight_loader
    module.bias = bias
    # vllm-ascend's parallel strategies keep their own reference
    update = getattr(getattr(module, "custom_op", None), "update_attrs", None)
    if callable(update):
        update()


def _ask_again(model: Any, record: ByPath, quant_config: Any) -> list[str]:
    done = []
    for name, module in model.named_modules():
        if not matches(record.pattern, name) or not hasattr(module, "params_dtype") or module.prefix == name:
            continue
        method = quant_config.get_quant_method(module, name) if quant_config is not None else None
        if method is None or type(method) is type(module.quant_method):
            continue
        done.append(f"{name}: {type(method).__name__} and not {type(module.quant_method).__name__}")
        for parameter in [one for one in module._parameters if one != "bias"]:
            delattr(module, parameter)
        module.prefix, module.quant_method = name, method
        method.create_weights(
            module,
            getattr(module, "input_size_per_partition", module.input_size),
            getattr(module, "output_partition_sizes", [module.output_size]),
            module.input_size,
            module.output_size,
            module.params_dtype,
            weight_loader=module.weight_loader,
        )
    return done


def _set_attributes(model: Any, record: ParamAttr, *, override: bool) -> list[str]:
    done = []
    for name, parameter in model.named_parameters():
        if not matches(record.pattern, name):
            continue
        value: Any = record.value
        if record.attribute == "weight_loader":
            value = _loader(record.value, model.get_submodule(name.rpartition(".")[0]))
        missing = getattr(parameter, record.attribute, None) is None
        if missing or (override and getattr(parameter, record.attribute) != value):
            setattr(parameter, record.attribute, value)
            done.append(f"{name}.{record.attribute} = {record.value!r}")
    return done


def _loader(word: Any, module: Any) -> Any:
    if word == "layer":
        return module.weight_loader
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    return default_weight_loader


class _Last:
    """The result of the last layer that computed it."""

    value: Any = None

    def again(self, *_: Any, **__: Any) -> Any:
        """What that layer has computed."""
        return self.value


def _reuse(model: Any, record: Reuse, current: Scope) -> list[str]:
    kinds = next((found for one in _configs(current) if (found := getattr(one, record.layers, None))), None)
    if not isinstance(kinds, list | tuple):
        return []
    done, last = [], _Last()
    for name, module in model.named_modules():
        holder = next((one for one in (module, getattr(module, "impl", None)) if record.cls in _names(one)), None)
        number = layer_number(name)
        if holder is None or number is None or number >= len(kinds):
            continue
        if kinds[number] == record.value:
            setattr(holder, record.method, last.again)
            done.append(f"{name}: {record.method} of the layer before")
        else:
            setattr(holder, record.method, _remembering(getattr(holder, record.method), last))
    return done


def _remembering(method: Any, last: _Last) -> Any:
    def remembering(*args: Any, **kwargs: Any) -> Any:
        last.value = method(*args, **kwargs)
        return last.value

    return remembering


def _configs(current: Scope) -> list[Any]:
    nested = [getattr(current.config, key, None) for key in scope.NESTED]
    return [one for one in (current.config, *nested) if one is not None]
