"""Quantization configs other than ModelSlim's: the list of layers that are not quantized.

compressed-tensors, FP8, AWQ, Quark and ModelOpt keep the checkpoint's names of such layers in a list and
compare it with vLLM's prefixes. A prefix that is not in the list, and that a lookup rule turns into a name that is,
is put into the list beside it; nothing is ever taken out. Acts at ``get_quant_method(layer, prefix)``, which
every quantization config has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ascend_hotfix import log, scope
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import matches
from ascend_hotfix.records import Children, ClassAlias, Unnamed
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import hooking

__all__ = ["LISTS", "arm_config", "named", "unlisted"]

LISTS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude", "exclude_modules", "unquantized_modules")
TARGETS = "target_scheme_map"


def arm_config(config: Any, current: Scope) -> None:
    """Wraps ``get_quant_method`` of a config's class where a fix has something to say to it."""
    for one, record in current.records("describe"):
        if isinstance(record, ClassAlias):
            _alias_class(config, one, record)
    speaks = any(True for _ in current.renamers("lookup")) or any(True for _ in current.records("describe"))
    if not speaks:
        return
    for owner in type(config).__mro__:
        if "get_quant_method" in owner.__dict__ and owner.__name__ != "QuantizationConfig":
            hooking.wrap(owner, "get_quant_method", _get_quant_method)


def _alias_class(config: Any, one: Selection, record: ClassAlias) -> None:
    targets = getattr(config, TARGETS, None)
    if isinstance(targets, dict) and record.target in targets and record.cls not in targets:
        targets[record.cls] = targets[record.target]
        LEDGER.hit(one.patch, one.fix.id, "describe", f"{record.cls} is what the config calls {record.target}")


def _get_quant_method(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        layer = args[0] if args else kwargs.get("layer")
        prefix = args[1] if len(args) > 1 else kwargs.get("prefix")
        if isinstance(prefix, str):
            current = scope.current()
            name = named(layer, prefix, current, lambda _: False)
            if name != prefix:
                args, kwargs = (layer,), {**{k: v for k, v in kwargs.items() if k not in ("layer", "prefix")}}
                args = (*args, name)
            for asked in _asked(instance, name):
                unlisted(instance, asked, current)
    except Exception as error:
        log.contained("completing the list of unquantized layers", error)
    return wrapped(*args, **kwargs)


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


def unlisted(config: Any, asked: str, current: Scope) -> None:
    """Puts *asked* into each list that has it under another name, or has modules below it."""
    for entries in _lists(config):
        if asked in entries:
            continue
        for one, seam, name in _reasons(asked, entries, current):
            entries.append(asked)
            LEDGER.hit(one.patch, one.fix.id, seam, f"{asked or '(empty)'} is not quantized: {name}")
            break


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
