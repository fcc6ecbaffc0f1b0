"""The lookup seam: names that vLLM's layers ask of the quant description, at ``get_quant_method(layer, prefix)``.

Where it lives: ``quant_config.AscendQuantConfig`` up to 0.13, ``modelslim_config.AscendModelSlimConfig`` from
0.14, ``configs.modelslim_config`` in 0.30, with a subclass for 310P from 0.15. What a release asks for a
prefix differs (a cut ``language_model.``, prefix tables, a mapped description), so nothing is predicted:
the description records which names it was asked for and did not have, the fixes give those names an
entry, and the lookup is made again. Nothing is ever defaulted by the description itself; a name that no
fix knows stays a miss, and upstream does with it what it always did.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from ascend_hotfix import log, scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import matches
from ascend_hotfix.records import Children, KVCache, Packed
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import describe, hooking, ignore
from ascend_hotfix.seams.schemes import applies
from ascend_hotfix.words import printable, said

__all__ = ["CLASSES", "Description", "arm", "arm_class", "nearest"]

CLASSES = ("AscendQuantConfig", "AscendModelSlimConfig", "AscendModelSlimConfig310")
PACKED_TABLES = ("packed_modules_model_mapping", "UPDATED_PACKED_MODULES_MAPPING")
LEAF = ".weight"
KV_TYPE, KV_FLAG = "kv_cache_type", "enable_c8_quant"
MOST_MENDINGS = 10_000
"""Each adds an entry or a row, so there is an end to them; this only keeps a server from looking for it for ever."""


class _Busy(threading.local):
    inside = False


_BUSY = _Busy()


class Description(dict[str, Any]):
    """A quant description that remembers which names a lookup asked for in vain.

    It answers exactly as the dict that it was made from; other readers of the description see no
    difference. What lookups gave an entry is in ``added``.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.misses: list[str] = []
        """What the last :meth:`watching` thread asked for in vain; what others read then, or it reads later, is not in it."""
        self.added: dict[str, None] = {}
        """Keys that are not the checkpoint's: other names for entries of it, and defaults."""
        self.defaulted: dict[str, None] = {}
        """Those of ``added`` that a default scheme was given, as no name was found for them."""
        self.overridden: list[Scope] = []
        self._watcher = 0
        self._modules: dict[str, list[str]] | None = None

    def __reduce__(self) -> Any:
        return Description, (dict(self),), {"added": dict(self.added), "defaulted": dict(self.defaulted)}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Remembers from now on what this thread asks for in vain, and forgets what was before."""
        self.misses.clear()
        self._watcher = threading.get_ident()
        try:
            yield
        finally:
            self._watcher = 0

    def _missed(self, key: str) -> None:
        if self._watcher == threading.get_ident():
            self.misses.append(key)

    def __missing__(self, key: str) -> Any:
        self._missed(key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if not found and isinstance(key, str):
            self._missed(key)
        return found

    def get(self, key: str, default: Any = None) -> Any:
        """As dict.get, a miss remembered."""
        return self[key] if key in self else default  # noqa: SIM401

    def has(self, key: str) -> bool:
        """Is *key* there? Not remembered."""
        return super().__contains__(key)

    def modules(self) -> dict[str, list[str]]:
        """Module name -> the leaves that describe it, as it was read: nothing of ``added`` is in it."""
        if self._modules is None:
            modules: dict[str, list[str]] = {}
            for key in self:
                module, dot, leaf = key.rpartition(".")
                if dot and key not in self.added:  # 'version', 'model_quant_type' and their like speak of no module
                    modules.setdefault(module, []).append(leaf)
            self._modules = modules
        return self._modules

    def knows(self, module: str) -> bool:
        """Does the description say something of *module* itself?"""
        return self.has(module + LEAF) or module in self.modules()

    def alias(self, asked: str, module: str) -> list[str]:
        """Describes *asked* as *module* is described; the keys that were added."""
        leaves = self.modules().get(module, [])
        added = {f"{asked}.{leaf}": self[f"{module}.{leaf}"] for leaf in leaves if module}
        if added and asked + LEAF not in added:
            added[asked + LEAF] = added[f"{asked}.{leaves[0]}"]
        fresh = {key: value for key, value in added.items() if not self.has(key)}
        for key, value in fresh.items():
            self.add(key, value)
        return list(fresh)

    def add(self, key: str, value: Any) -> None:
        """An entry that is not the checkpoint's."""
        self.added[key] = None
        self[key] = value

    def take_back(self, key: str) -> None:
        """Undoes :meth:`add`."""
        self.pop(key, None)
        self.added.pop(key, None)
        self.defaulted.pop(key, None)


def arm(module: ModuleType) -> None:
    """Wraps the config classes that *module* defines."""
    found = [getattr(module, name) for name in CLASSES if isinstance(getattr(module, name, None), type)]
    if not found:
        hooking.drifted("lookup", f"{module.__name__}.{CLASSES[1]}", "vllm_ascend/quantization/")
    for cls in found:
        arm_class(cls)
        describe.arm_class(cls)


def arm_class(cls: type) -> None:
    """Wraps ``get_quant_method`` of *cls* and of the classes it comes from, where they define it."""
    for owner in cls.__mro__:
        if owner.__name__ in CLASSES and "get_quant_method" in owner.__dict__:
            hooking.wrap(owner, "get_quant_method", _get_quant_method)


def _get_quant_method(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _BUSY.inside or scope.catalog().off:
        return wrapped(*args, **kwargs)
    with hooking.LOCK:  # other lookups see the description before or after this one, not what it tries
        return _mended(wrapped, instance, args, kwargs)


def _mended(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        current = scope.current()
        description = _watched(instance)
        _override(description, current)
        args, kwargs = _named(args, kwargs, description, current)
    except Exception as error:
        log.contained("preparing the quant description", error)
        return wrapped(*args, **kwargs)
    _BUSY.inside = True
    try:
        attempt = _Attempt(instance, description, current)
        result = _look_up(wrapped, args, kwargs, attempt)
        return result if result is None else _kv_cache(wrapped, args, kwargs, attempt, result)
    finally:
        _BUSY.inside = False


def _named(
    args: tuple[Any, ...], kwargs: dict[str, Any], description: Description, current: Scope
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with the name that a layer built without a prefix should have."""
    if len(args) > 1 and args[1] == "":
        name = ignore.named(args[0], "", current, description.knows)
        return (args[0], name, *args[2:]), kwargs
    if kwargs.get("prefix") == "":
        layer = args[0] if args else kwargs.get("layer")
        return args, {**kwargs, "prefix": ignore.named(layer, "", current, description.knows)}
    return args, kwargs


def _kv_cache(wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any], attempt: _Attempt, result: Any) -> Any:
    """*result*, or what upstream gives an attention layer of a checkpoint without a quantized KV cache."""
    description = attempt.description
    prefix = args[1] if len(args) > 1 else kwargs.get("prefix")
    if "KVCache" not in type(result).__name__ or not isinstance(prefix, str) or not description.has(KV_TYPE):
        return result
    for one, record in attempt.scope.records("describe"):
        if not isinstance(record, KVCache) or not matches(record.pattern, prefix):
            continue
        key = f"{prefix.rpartition('.')[0]}.{record.leaf}"
        if description.has(key) or attempt.resolves(key):
            continue
        with _without_kv_type(attempt.config, description):
            result = wrapped(*args, **kwargs)
        LEDGER.hit(one.patch, one.fix.id, "describe", f"{prefix}: no {record.leaf}, so its KV cache is not quantized")
        return result
    return result


@contextlib.contextmanager
def _without_kv_type(config: Any, description: Description) -> Iterator[None]:
    """The config as it would be if the description said nothing of the KV cache (0.18 asks the key, later ones a flag)."""
    kind, flag = description.pop(KV_TYPE), getattr(config, KV_FLAG, None)
    if flag is not None:
        setattr(config, KV_FLAG, False)
    try:
        yield
    finally:
        description[KV_TYPE] = kind
        if flag is not None:
            setattr(config, KV_FLAG, flag)


def _watched(config: Any) -> Description:
    """The description of *config*, made to remember misses. Upstream replaces the object now and then."""
    description = config.quant_description
    if not isinstance(description, Description):
        description = config.quant_description = Description(description)
        description.modules()  # now, while nothing is in it that was not read
    return description


class _Attempt:
    """The mending of one lookup: what was added, so that what did not help can be taken back."""

    def __init__(self, config: Any, description: Description, current: Scope) -> None:
        self.config, self.description, self.scope = config, description, current
        self.pending: list[tuple[str, str, str, str]] = []
        self.keys: list[str] = []
        self.rows: list[tuple[dict[str, Any], str]] = []
        self._last = 0, 0, 0  # how much of these there was before the last mending

    def mend(self, misses: Iterable[str], *, failed: bool) -> bool:
        """Gives each missed name what the fixes offer; True where something was added."""
        before = len(self.pending), len(self.keys), len(self.rows)
        for key in dict.fromkeys(misses):
            if not key.endswith(LEAF) or self.description.has(key):
                continue
            module = key[: -len(LEAF)]
            for way in (self._rename, self._pack, self._share, self._children):
                if way(module):
                    break
            else:
                self._default(module, failed)
        if len(self.pending) == before[0]:
            return False
        self._last = before
        return True

    def commit(self) -> None:
        """Counts what was added."""
        for patch, fix, seam, example in self.pending:
            LEDGER.hit(patch, fix, seam, example)
        self.pending.clear()

    def roll_back(self, *, last: bool = False) -> None:
        """Takes back what was added; by the *last* mending alone, if so said."""
        added, keys, rows = self._last if last else (0, 0, 0)
        for key in self.keys[keys:]:
            self.description.take_back(key)
        for row, fused in self.rows[rows:]:
            row.pop(fused, None)
        del self.pending[added:], self.keys[keys:], self.rows[rows:]

    def _added(self, patch: str, fix: str, seam: str, example: str, keys: Iterable[str] = ()) -> bool:
        self.pending.append((patch, fix, seam, example))
        self.keys += keys
        return True

    def _rename(self, module: str) -> bool:
        for one, renamer in self.scope.renamers("lookup"):
            renaming = renamer.resolve(module, self.description.knows)
            if renaming and (keys := self.description.alias(module, renaming.new)):
                renamer.count(renaming)
                return self._added(one.patch, one.fix.id, "lookup", f"{module or '(empty)'} -> {renaming.new}", keys)
        return self._rename_leaf(module + LEAF)

    def _rename_leaf(self, key: str) -> bool:
        """A rule may name the leaf: packed tensors are described as ``weight_packed`` (vllm-ascend PR #4516)."""
        for one, renamer in self.scope.renamers("lookup"):
            if renaming := renamer.resolve(key, self.description.has):
                renamer.count(renaming)
                self.description.add(key, self.description[renaming.new])
                return self._added(one.patch, one.fix.id, "lookup", f"{key} -> {renaming.new}", [key])
        return False

    def _pack(self, module: str) -> bool:
        parent, _, last = module.rpartition(".")
        for one, record in self.scope.records("packed"):
            if record.fused == last and self._complete_rows(record, parent):
                return self._added(one.patch, one.fix.id, "packed", f"{module}: {', '.join(record.shards)}")
        return False

    def _complete_rows(self, record: Packed, parent: str) -> bool:
        """Adds *record* to every mapping that upstream may use for this model, where it has no such entry."""
        if not self._shards_described(record, parent):
            return False
        rows = [row for row in _packed_rows(self.config, self.scope.types) if record.fused not in row]
        for row in rows:
            row[record.fused] = list(record.shards)
            self.rows.append((row, record.fused))
        return bool(rows)

    def _shards_described(self, record: Packed, parent: str) -> bool:
        """Is a shard described, under the name that is asked or the one that a rename gives?"""
        for shard in record.shards:
            name = f"{parent}.{shard}" if parent else shard
            if self.description.knows(name):
                return True
            if any(renamer.resolve(name, self.description.knows) for _, renamer in self.scope.renamers("lookup")):
                return True
        # the release may ask a name of its own making (0.11 to 0.17 cut the first segment)
        return any(known.endswith("." + shard) for shard in record.shards for known in self.description.modules())

    def _share(self, module: str) -> bool:
        """An optional shard that is absent has the scheme of a shard beside it."""
        for one, record in self.scope.records("packed"):
            for shard in record.optional:
                if module != shard and not module.endswith("." + shard):
                    continue
                stem = module[: -len(shard)]
                beside = next((stem + s for s in record.shards if self.description.has(stem + s + LEAF)), None)
                if beside is not None:
                    self.description.add(module + LEAF, self.description[beside + LEAF])
                    example = f"{module}: as {beside}"
                    return self._added(one.patch, one.fix.id, "packed", example, [module + LEAF])
        return False

    def _children(self, module: str) -> bool:
        """The scheme of the modules below *module*, where they have one and the same."""
        for one, record in self.scope.records("describe"):
            if not isinstance(record, Children) or not matches(record.pattern, module):
                continue
            for name in (module, *(renamer.look(module).new for _, renamer in self.scope.renamers("lookup"))):
                below = {
                    self.description[child + LEAF]
                    for child in self.description.modules()
                    if child.startswith(f"{name}.") and self.description.has(child + LEAF)
                }
                if len(below) == 1:
                    self.description.add(module + LEAF, below.pop())
                    example = f"{module}: {self.description[module + LEAF]}, as the modules below it"
                    return self._added(one.patch, one.fix.id, "describe", example, [module + LEAF])
        return False

    def resolves(self, key: str) -> bool:
        """Does a rename turn *key*, a name with its leaf, into one that the description has?"""
        module, _, leaf = key.rpartition(".")
        return any(
            renamer.resolve(module, lambda name: self.description.has(f"{name}.{leaf}"))
            for _, renamer in self.scope.renamers("lookup")
        )

    def _default(self, module: str, failed: bool) -> bool:
        for one, record in self.scope.records("types"):
            if not applies(record, module, self.scope) or (record.scheme == "FLOAT" and not failed):
                continue
            self.description.add(module + LEAF, record.scheme)
            self.description.defaulted[module + LEAF] = None
            return self._added(one.patch, one.fix.id, "types", f"{module}: {record.scheme}", [module + LEAF])
        return False


def _look_up(wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any], attempt: _Attempt) -> Any:
    """Asks upstream, gives the names it missed an entry, and asks again while that helps.

    A release that takes a missing name for float (0.30, embeddings in 0.23) raises nothing: there the
    entries stay only if they make the layer a quantized one.
    """
    description = attempt.description
    raised, told = False, ""
    for mendings in itertools.count():
        error: Exception | None = None
        result: Any = None
        try:
            with description.watching():
                result = wrapped(*args, **kwargs)
        except Exception as caught:
            error = caught
            raised = True
        misses = list(description.misses)
        if error is not None and not misses:  # 0.11 looks through all names for those below an expert's prefix
            misses = [_prefix(args, kwargs) + LEAF]
        if error is None and (not misses or _is_quantized(result)):
            break
        before, told = told, said(error) if error is not None else ""
        try:
            if mendings < MOST_MENDINGS and attempt.mend(misses, failed=error is not None):
                continue
        except Exception as ours:
            log.contained(f"mending the lookup of {misses[:2]}", ours)
        if error is not None:
            if told == before:  # what was added last is not what upstream lacks, such as a method for the scheme
                attempt.roll_back(last=True)
            attempt.commit()
            hooking.add_hint(error, _hint(error, args, kwargs, description))
            raise error
        break
    if attempt.pending and not raised and not _is_quantized(result):
        attempt.roll_back()
    else:
        attempt.commit()
    return result


def _prefix(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The prefix that a layer asks with."""
    return str(args[1] if len(args) > 1 else kwargs.get("prefix", ""))


def _is_quantized(method: Any) -> bool:
    return method is not None and "Unquantized" not in type(method).__name__


def _packed_rows(config: Any, types: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The mappings from which upstream takes the shards of a fused module: table rows, then the config's own."""
    seen: list[dict[str, Any]] = []
    for owner in type(config).__mro__:
        module = sys.modules.get(owner.__module__)
        for name in PACKED_TABLES:
            table = getattr(module, name, None)
            rows = [table.get(one) for one in types] if isinstance(table, dict) else []
            seen += [row for row in rows if isinstance(row, dict) and not any(row is one for one in seen)]
    yield from seen
    held = getattr(config, "packed_modules_mapping", None)
    if not any(held is row for row in seen):
        # vLLM hands over the model class's own dict; what we add must not reach the class
        config.packed_modules_mapping = dict(held) if isinstance(held, dict) else {}
        yield config.packed_modules_mapping


def _override(description: Description, current: Scope) -> None:
    """Replaces what the description says where a fix says ``override``; once for each description and scope."""
    if any(current is one for one in description.overridden):
        return
    description.overridden.append(current)
    for one, record in current.records("types"):
        if not one.fix.override:
            continue
        for module, leaves in description.modules().items():
            if not applies(record, module, current):
                continue
            keys = [f"{module}.{leaf}" for leaf in leaves if description[f"{module}.{leaf}"] != record.scheme]
            description.update(dict.fromkeys(keys, record.scheme))
            if keys:
                LEDGER.hit(one.patch, one.fix.id, "types", f"{module}: {record.scheme}")


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Names of *known* that share the longest run of last segments with *name*, then of first ones."""
    wanted = name.split(".")

    def shared(one: Iterable[str], other: Iterable[str]) -> int:
        count = 0
        for a, b in zip(one, other, strict=False):
            if a != b:
                break
            count += 1
        return count

    scored = []
    for other in known:
        have = other.split(".")
        tail = shared(reversed(wanted), reversed(have))
        if tail:
            scored.append((-tail, -shared(wanted, have), len(have), other))
    return [other for *_, other in sorted(scored)[:limit]]


def _hint(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], description: Description) -> str:
    """What a person needs to know about a lookup that failed."""
    layer = args[0] if args else kwargs.get("layer")
    prefix = args[1] if len(args) > 1 else kwargs.get("prefix", "?")
    text = f"layer {type(layer).__name__} built with prefix {_quoted(prefix)}"
    asked = error.args[0] if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str) else None
    if asked is not None:
        near = nearest(asked, description)
        text += f" asks the quant description for {_quoted(asked)}, which is not there"
        text += (
            f"; nearest names: {', '.join(map(printable, near))}" if near else "; the description has no name like it"
        )
    return f"{text}. 'ascend-hotfix doctor MODEL_DIR' lists every such name at once and suggests a patch"


def _quoted(name: object) -> str:
    return f"'{printable(name)}'"
