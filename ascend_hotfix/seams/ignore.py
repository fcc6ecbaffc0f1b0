"""Quantization configs other than ModelSlim's: which layers they say are quantized, and which are not.

compressed-tensors, FP8, AWQ, Quark and ModelOpt keep the checkpoint's names of layers that are not quantized
in a list, AutoRound of those that are, and compare it with vLLM's prefixes. A prefix that is not in the list, and that a
lookup rule turns into a name that is, is put into the list beside it; nothing is ever taken out. ``packed`` rows tell the
config the shards of a fused layer where it names them and the model class does not; a ``types`` record makes a layer
float that the config would quantize and the checkpoint has in float. Acts at ``get_quant_method(layer, prefix)``,
which every quantization config has.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from ascend_hotfix import log, scope
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import matches
from ascend_hotfix.records import Children, ClassAlias, Unnamed
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import hooking
from ascend_hotfix.seams.schemes import applies
from ascend_hotfix.words import printable

__all__ = ["LISTS", "added", "arm_class", "arm_config", "named", "unlisted"]

SEGMENT = re.compile(r"[A-Za-z0-9_]+")
QUANTIZED = ("block_name_to_quantize",)  # an entry stands for everything below it
LISTS = (
    "ignore",
    "ignore_list",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude",
    "exclude_modules",
    "unquantized_modules",
)
TARGETS = "target_scheme_map"
_ADDED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
FIELDS = ("lookup", "describe", "packed", "types")


def arm_config(config: Any, current: Scope) -> None:
    """Wraps ``get_quant_method`` of a config's class where a fix has something to say to it."""
    for one, record in current.records("describe"):
        if isinstance(record, ClassAlias):
            _alias_class(config, one, record)
    arm_class(type(config), current)


def arm_class(cls: type, current: Scope) -> None:
    """As :func:`arm_config`, before there is an instance: EAGLE3 makes a config of its own for its draft."""
    if not any(getattr(one.fix, field) for one in current.selected for field in FIELDS):
        return
    for owner in cls.__mro__:
        if "get_quant_method" in owner.__dict__ and owner.__name__ != "QuantizationConfig":
            hooking.wrap(owner, "get_quant_method", _get_quant_method)


def _alias_class(config: Any, one: Selection, record: ClassAlias) -> None:
    targets = getattr(config, TARGETS, None)
    if isinstance(targets, dict) and record.target in targets and record.cls not in targets:
        targets[record.cls] = targets[record.target]
        LEDGER.hit(one.patch, one.fix.id, "describe", f"{record.cls} is what the config calls {record.target}")


def _get_quant_method(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    layer = args[0] if args else kwargs.get("layer")
    prefix = args[1] if len(args) > 1 else kwargs.get("prefix")
    if not isinstance(prefix, str):
        return wrapped(*args, **kwargs)
    name = prefix
    try:
        current = scope.current()
        name = prefix if _is_embedding(layer) else named(layer, prefix, current, lambda _: False)
        if name != prefix:
            args = (layer, name)
            kwargs = {key: value for key, value in kwargs.items() if key not in ("layer", "prefix")}
        with hooking.LOCK:
            _pack(instance, name, current)
            for asked in _asked(instance, name):
                unlisted(instance, asked, current)
                _listed(instance, asked, current)
    except Exception as error:
        log.contained("completing the list of unquantized layers", error)
        return wrapped(*args, **kwargs)
    method = wrapped(*args, **kwargs)
    try:
        return _float(layer, name, method, current)
    except Exception as error:
        log.contained(f"taking {printable(name)} for float", error)
        return method


def _is_embedding(layer: Any) -> bool:
    """Is it an embedding and no head? It is float in these formats, called so or not."""
    classes = {cls.__name__ for cls in type(layer).__mro__}
    return "VocabParallelEmbedding" in classes and "ParallelLMHead" not in classes


def named(layer: Any, prefix: str, current: Scope, known: Any) -> str:
    """The prefix of a layer that was built without one, by its class; *prefix* itself where *known* or given."""
    if prefix or known(prefix):
        return prefix
    classes = {cls.__name__ for cls in type(layer).__mro__}
    for one, record in current.records("describe"):
        if isinstance(record, Unnamed) and record.cls in classes:
            LEDGER.hit(one.patch, one.fix.id, "describe", f"{type(layer).__name__} without a prefix: {record.name}")
            return record.name
    return prefix


def _asked(config: Any, prefix: str) -> Iterator[str]:
    """The names by which the config will look for *prefix*: itself, or its shards."""
    head, dot, last = prefix.rpartition(".")
    shards = (getattr(config, "packed_modules_mapping", None) or {}).get(last)
    yield prefix
    for shard in shards or ():
        yield f"{head}{dot}{shard}"


def _lists(config: Any) -> Iterator[list[Any]]:
    held = vars(config)
    for holder in (held, *(value for value in held.values() if isinstance(value, dict))):
        for key in LISTS:
            if isinstance(holder.get(key), list):
                yield holder[key]


def added(config: Any) -> Collection[str]:
    """The names that this seam has put into lists of *config*."""
    return _ADDED.get(config, ())


def _add(config: Any, entries: list[Any], name: str) -> None:
    entries.append(name)
    _ADDED.setdefault(config, set()).add(name)


def unlisted(config: Any, asked: str, current: Scope) -> None:
    """Puts *asked* into each list that has it under another name, or has modules below it."""
    for entries in _lists(config):
        if asked in entries:
            continue
        for one, seam, name in _reasons(asked, entries, current):
            _add(config, entries, asked)
            LEDGER.hit(one.patch, one.fix.id, seam, f"{asked or '(empty)'} is not quantized: {name}")
            break


def _listed(config: Any, asked: str, current: Scope) -> None:
    """Puts *asked* beside what the config says is quantized: a block above it, or a target, under another name."""
    for key in QUANTIZED:
        entries = getattr(config, key, None)
        if not isinstance(entries, list):
            continue

        def known(name: str, entries: list[Any] = entries) -> bool:
            return any(name == entry or name.startswith(f"{entry}.") for entry in entries)

        for one, renamer in current.renamers("lookup"):
            found = renamer.resolve(asked, known)
            if found:
                _add(config, entries, asked)
                LEDGER.hit(one.patch, one.fix.id, "lookup", f"{asked} is quantized: {renamer.count(found)}")
                break

    targets = getattr(config, TARGETS, None)
    if isinstance(targets, dict) and asked not in targets:
        for one, renamer in current.renamers("lookup"):
            found = renamer.resolve(asked, targets.__contains__)
            if found:
                targets[asked] = targets[renamer.count(found)]
                _ADDED.setdefault(config, set()).add(asked)
                LEDGER.hit(one.patch, one.fix.id, "lookup", f"{asked} is a target: {found.new}")
                break


def _pack(config: Any, prefix: str, current: Scope) -> None:
    """Tells *config* the shards of the fused layer *prefix*, where it names one of them and not the fused layer."""
    fused = prefix.rpartition(".")[2]
    mapping = getattr(config, "packed_modules_mapping", None)
    if not isinstance(mapping, dict) or fused in mapping:
        return
    for one, record in current.records("packed"):
        if record.fused != fused:
            continue
        words = set(itertools.chain.from_iterable(map(SEGMENT.findall, _strings(vars(config)))))
        if fused not in words and words.intersection(shard.rpartition(".")[2] for shard in record.shards):
            # vLLM hands over the model class's own dict; what we add must not reach the class
            config.packed_modules_mapping = {**mapping, fused: list(record.shards)}
            LEDGER.hit(one.patch, one.fix.id, "packed", f"{fused}: {', '.join(record.shards)}")
            return


def _strings(value: Any, depth: int = 4) -> Iterator[str]:
    """The names in a config's lists and dicts. Its row of packed modules is none of them."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, dict):
        for key, below in value.items():
            if key != "packed_modules_mapping":
                yield from _strings(key, depth - 1)
                yield from _strings(below, depth - 1)
    elif depth and isinstance(value, list | tuple | set):
        for below in value:
            yield from _strings(below, depth - 1)


def _float(layer: Any, prefix: str, method: Any, current: Scope) -> Any:
    """*method*, or that of a float layer where a fix says that the checkpoint has *prefix* in float."""
    if method is None or "Unquantized" in type(method).__name__:
        return method
    for one, record in current.records("types"):
        if record.scheme == "FLOAT" and (record.when or one.fix.override) and applies(record, prefix, current):
            replaced = _unquantized(layer)
            if replaced is not None:
                LEDGER.hit(one.patch, one.fix.id, "types", f"{prefix}: FLOAT")
                return replaced
    return method


def _unquantized(layer: Any) -> Any:
    """vLLM's own method for a float layer of this kind; None for a layer that has no weights of its own."""
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        UnquantizedEmbeddingMethod,
        VocabParallelEmbedding,
    )

    if isinstance(layer, LinearBase):
        return UnquantizedLinearMethod()
    if isinstance(layer, VocabParallelEmbedding):
        return UnquantizedEmbeddingMethod()
    if hasattr(layer, "moe_config"):
        try:
            from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
        except ImportError:  # up to 0.13
            from vllm.model_executor.layers.fused_moe.layer import UnquantizedFusedMoEMethod

        return UnquantizedFusedMoEMethod(layer.moe_config)
    return None


def _reasons(asked: str, entries: Iterable[Any], current: Scope) -> Iterator[tuple[Selection, str, str]]:
    names = {entry for entry in entries if isinstance(entry, str)}
    for one, renamer in current.renamers("lookup"):
        found = renamer.resolve(asked, names.__contains__)
        if found:
            renamer.count(found)
            yield one, "lookup", found.new
    for one, record in current.records("describe"):
        if isinstance(record, Children) and matches(record.pattern, asked):
            alike = [asked, *(r.look(asked).new for _, r in current.renamers("lookup"))]
            below = next((entry for entry in names for name in alike if entry.startswith(f"{name}.")), None)
            if below is not None:
                yield one, "describe", below
