"""The weights seam: tensor names on their way into ``load_weights``, and what load_weights made of them.

``load_weights`` of every model class is wrapped. Renames and drops act at the outermost call, on
checkpoint names; the aliases of the params seam act at every level, since each inner model looks its
own parameters up. A name is renamed only where that brings it closer to a parameter of the built
model (:class:`Places`), so a rule does nothing once upstream knows the name. A call may be one of many: what lasts longer
than a call is in :mod:`ascend_hotfix.seams.instances`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ascend_hotfix import log, scope
from ascend_hotfix.ledger import LEDGER, Build
from ascend_hotfix.names import matches
from ascend_hotfix.renamer import Renamer
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import hooking, instances, params
from ascend_hotfix.seams.instances import Instance
from ascend_hotfix.seams.tensors import Tensors

__all__ = ["Places", "arm_class", "remember"]

PARAMETER, MODULE, NEIGHBOUR, NOWHERE = 3, 2, 1, 0
# a draft's loader puts the tensors of its decoder layer below this module (DeepSeek, GLM-4 MoE)
DRAFT_LAYER = re.compile(r"(?:[^.]+\.)*layers\.\d+\.")
EXPERTS = ".experts."
EXPERT_SHARDS = {"gate_proj": "w13", "up_proj": "w13", "w1": "w13", "w3": "w13", "down_proj": "w2", "w2": "w2"}


class _Stack(threading.local):
    depth = 0
    scope: Scope | None = None


_STACK = _Stack()


def arm_class(cls: type) -> None:
    """Wraps ``load_weights`` of a model class and of the classes it comes from, where they define it."""
    for owner in cls.__mro__:
        if callable(owner.__dict__.get("load_weights")):
            hooking.wrap(owner, "load_weights", _load_weights)


def remember(
    model: Any, current: Scope, build: Build | None = None, *, draft: bool = False, whole: bool = True
) -> Instance:
    """Keeps the scope in which *model* was built, for the time when its weights are loaded.

    *draft*: is it the draft of speculative decoding? *whole*: is the whole model on this rank of a pipeline?
    """
    if build is None:
        build = LEDGER.begin(scope.keys_of(current))
        build.model = type(model).__name__
    instance = Instance(model, current, build, draft=draft, whole=whole)
    instances.remember(model, instance)
    return instance


def _load_weights(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if scope.catalog().off:
        return wrapped(*args, **kwargs)
    try:
        held = _instance_of(instance)
        load = _Load(instance, held) if _STACK.depth == 0 else None
    except Exception as error:
        log.contained(f"preparing to load {type(instance).__name__}", error)
        return wrapped(*args, **kwargs)
    if load is None:
        return _called(wrapped, instance, args, kwargs, held, load)
    with LEDGER.counting(held.build):
        return _called(wrapped, instance, args, kwargs, held, load)


def _called(
    wrapped: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], held: Instance, load: _Load | None
) -> Any:
    """One call of ``load_weights``, the outermost one with its *load*."""
    try:
        if load is not None:
            args, kwargs = load.take_over(args, kwargs)
        aliases = params.Aliases(model, held.scope)
    except Exception as error:
        log.contained(f"preparing to load {type(model).__name__}", error)
        return wrapped(*args, **kwargs)
    outer, _STACK.scope = _STACK.scope, held.scope
    _STACK.depth += 1
    try:
        with aliases:
            loaded = aliases.guard(wrapped, args, kwargs)
    except Exception as error:
        if load is not None and not isinstance(error, log.StrictError):
            hooking.add_hint(error, load.hint(error))
            with suppress(log.StrictError):
                log.write_ledger()
        raise
    finally:
        _STACK.depth -= 1
        _STACK.scope = outer
    try:
        loaded = aliases.map_back(loaded)
        return load.finish(loaded) if load is not None else loaded
    except Exception as error:
        log.contained(f"finishing to load {type(model).__name__}", error)
        return loaded


def _instance_of(model: Any) -> Instance:
    """What is known of *model*; vllm-ascend 0.11 builds its draft where we do not see it."""
    held = instances.known(model)
    if held is None:
        current = scope.of_model(model)
        if not current.types:  # an inner model without a config is part of the one around it
            current = _STACK.scope or scope.current()
        held = remember(model, current, LEDGER.current)
    return held


class _Like(NamedTuple):
    """A parameter without its memory."""

    dtype: Any
    shape: Any


class Places:
    """Where in a built model a checkpoint name can land, as upstream's own mapper and fused names have it."""

    def __init__(self, model: Any, packed: Mapping[str, Iterable[str]] | None = None) -> None:
        self.parameters = params.own_parameters(model)
        self._own = set(self.parameters)
        self.parameters.update(model.named_buffers(remove_duplicate=False))
        self.modules = {name for name, _ in model.named_modules()}
        self._draft = any(".mtp_block." in name for name in self.modules)
        self._draft_layers = _draft_layers(model)
        self._mapper = getattr(model, "hf_to_vllm_mapper", None)
        self._fused: dict[str, set[str]] = {}
        own = getattr(model, "packed_modules_mapping", None)
        for mapping in (own, packed):
            for fused, shards in (mapping or {}).items():
                for shard in shards:
                    self._fused.setdefault(shard, set()).add(fused)
        self._memo: dict[str, int] = {}
        self._mapped_names: dict[str, str | None] = {}
        self._expert_homes: dict[tuple[str, str], str | None] = {}
        self._last: tuple[str, str | None] = "", None

    def let_go(self) -> None:
        """Keeps of the parameters what is asked of them: a live model may replace one, and its memory must be free then."""
        for name, held in self.parameters.items():
            if not isinstance(held, _Like):
                self.parameters[name] = _Like(getattr(held, "dtype", None), getattr(held, "shape", None))

    def is_of(self, model: Any) -> bool:
        """Has *model* still the parameters that it had?"""
        return params.own_parameters(model).keys() == self._own

    def closeness(self, name: str) -> int:
        """PARAMETER, MODULE, NEIGHBOUR (the module it would be in is there) or NOWHERE.

        A name that the model's own mapper drops counts as PARAMETER: upstream knows what to do with it.
        """
        found = self._memo.get(name)
        if found is None:
            mapped = self._mapped(name)
            found = PARAMETER if mapped is None else max(self._closeness(one) for one in self._variants(mapped))
            self._memo[name] = found
        return found

    def home(self, name: str) -> str | None:
        """The parameter in which tensor *name* lands, if one can be told: its own, a fused one, or its experts'."""
        if self._last[0] != name:  # each tensor is asked for by every fix
            self._last = name, self._find_home(name)
        return self._last[1]

    def _find_home(self, name: str) -> str | None:
        mapped = self._mapped(name)
        if mapped is None or mapped in self.parameters:
            return mapped
        head, experts, tail = mapped.partition(".experts.")
        number, _, rest = tail.partition(".")
        if not experts or not number.isdigit():
            return self._home(mapped)
        key = head, rest  # all experts of a layer land alike, and most tensors of a checkpoint are theirs
        if key not in self._expert_homes:
            self._expert_homes[key] = self._home(mapped)
        return self._expert_homes[key]

    def _home(self, mapped: str) -> str | None:
        return next((one for one in self._variants(mapped) if one in self.parameters), None)

    def mapped(self, name: str) -> str:
        """*name* as the model's own mapper has it."""
        mapped = self._mapped(name)
        return name if mapped is None else mapped

    def is_parameter(self, name: str) -> bool:
        """Is *name*, or what the model's own mapper makes of it, the name of a parameter?"""
        return name in self.parameters or self._mapped(name) in self.parameters

    def takes_scale(self, module: str, leaf: str) -> bool:
        """Has the model a parameter for the scale *leaf* of the checkpoint's *module*?"""
        name = f"{module}.{leaf}"
        if self.closeness(name) == PARAMETER:
            return True
        segments = (self._mapped(name) or name).split(".")
        if "experts" not in segments:
            return False
        # the scales of fused experts have names of their own, such as w13_weight_scale
        head = ".".join(segments[: segments.index("experts") + 1]) + "."
        return any(known.startswith(head) and known.endswith(leaf) for known in self.parameters)

    def _mapped(self, name: str) -> str | None:
        if self._mapper is None:
            return name
        if name not in self._mapped_names:  # every tensor is asked for more than once
            map_name = getattr(self._mapper, "_map_name", None)
            self._mapped_names[name] = map_name(name) if callable(map_name) else name
        return self._mapped_names[name]

    def _variants(self, name: str) -> Iterator[str]:
        """*name*, with its module fused, and with its expert's number taken out; the same inside a draft's block."""
        yield from self._fused_variants(name.split("."))
        if self._draft and (found := DRAFT_LAYER.match(name)):
            yield from self._fused_variants(f"{found[0]}mtp_block.{name[found.end() :]}".split("."))

    def _fused_variants(self, segments: list[str]) -> Iterator[str]:
        yield ".".join(segments)
        for index, segment in enumerate(segments[:-1]):
            for fused in self._fused.get(segment, ()):
                yield ".".join([*segments[:index], fused, *segments[index + 1 :]])
            if segment == "experts" and segments[index + 1].isdigit():
                yield from self._expert_variants(segments[: index + 1], segments[index + 2 :])

    @staticmethod
    def _expert_variants(head: list[str], rest: list[str]) -> Iterator[str]:
        """Names of the fused experts' parameter, below ``experts`` up to vLLM 0.23, below ``routed_experts`` from 0.24."""
        fused = f"{EXPERT_SHARDS.get(rest[0], rest[0])}_{'_'.join(rest[1:])}" if len(rest) > 1 else rest[-1]
        yield ".".join([*head, fused])
        yield ".".join([*head, "routed_experts", fused])

    def _closeness(self, name: str) -> int:
        module = name.rpartition(".")[0]
        parent = module.rpartition(".")[0]
        if name in self.parameters:
            return PARAMETER
        if module and module in self.modules:
            return MODULE
        if (parent and parent in self.modules) or self._is_left_to_draft(name):
            return NEIGHBOUR
        return NOWHERE

    def _is_left_to_draft(self, name: str) -> bool:
        """Is *name* in a layer that the checkpoint numbers on for the draft? The target's loader leaves those aside."""
        found = DRAFT_LAYER.match(name) if self._draft_layers else None
        if found is None:
            return False
        layers, number = found[0].rstrip(".").rsplit(".", 1)
        here = f"{layers}.{number}" in self.modules  # then this is the draft
        return int(number) in self._draft_layers and layers in self.modules and not here


def _draft_layers(model: Any) -> range:
    """The numbers that a checkpoint of *model* gives the layers of its draft (DeepSeek, GLM, Kimi)."""
    config = getattr(model, "config", None)
    for holder in (config, getattr(config, "text_config", None)):
        first, count = (getattr(holder, key, None) for key in ("num_hidden_layers", "num_nextn_predict_layers"))
        if isinstance(first, int) and isinstance(count, int):
            return range(first, first + count)
    return range(0)


class _Alike(NamedTuple):
    """An expert's tensor that passed as it was, and the experts of its layer, by number, of which that can be said."""

    looks: tuple[Any, Any]
    numbers: set[str]


def _looks(tensor: Any) -> tuple[Any, Any]:
    return getattr(tensor, "dtype", None), getattr(tensor, "shape", None)


class _Load:
    """One outermost call of load_weights."""

    def __init__(self, model: Any, instance: Instance) -> None:
        self.model, self.instance, self.scope = model, instance, instance.scope
        self.renamers = list(self.scope.renamers("weights"))
        self.drops = list(self.scope.records("drop"))
        self._overrides = any(one.fix.override for one, _ in (*self.renamers, *self.drops))
        instance.begin_load()
        self.tensors = Tensors(model, self.scope)
        self.homes: set[str] = set()
        self.last = ""
        self._alike: dict[tuple[str, str], _Alike] = {}
        self._is_fresh = False
        watched = instance.watch is not None or instance.filled
        self._idle = not (watched or self.renamers or self.drops or self.tensors)

    @property
    def places(self) -> Places:
        """Made at first need, and kept for the next bucket."""
        if self.instance.places is None:
            packed = {record.fused: record.shards for _, record in self.scope.records("packed")}
            self.instance.places = Places(self.model, packed)
            self._is_fresh = True
        return self.instance.places  # type: ignore[no-any-return]

    def home(self, name: str) -> str | None:
        """As :meth:`Places.home`. Of a live model, parameters may have been replaced since the last bucket."""
        found = self.places.home(name)
        if found is None and not self._is_fresh and self.instance.live:
            self._is_fresh = True  # once for each call: the loader lists all parameters as well
            if not self.places.is_of(self.model):
                self.instance.places = None
                found = self.places.home(name)
        return found

    def take_over(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with its weights passed through us."""
        if "weights" in kwargs:
            return args, {**kwargs, "weights": self.pass_on(kwargs["weights"])}
        return (self.pass_on(args[0]), *args[1:]) if args else args, kwargs

    def pass_on(self, weights: Any) -> Iterator[Any]:
        """The weights with their names renamed and the dropped ones left out.

        Tensors are touched only where a record of the field ``tensors`` says so.
        """
        items = weights.items() if isinstance(weights, Mapping) else weights
        for item in items:
            self.last = item[0]
            if self._idle or (len(item) == 2 and self._is_like_another(*item)):
                yield item
                continue
            for name, *rest in self._transformed(item):
                yield from self._passed(name, rest, item)
        for name, *rest in self.tensors.flush():
            yield from self._passed(name, rest)

    def _is_like_another(self, name: str, tensor: Any) -> bool:
        """Is it one expert's tensor, and did another expert's of this layer, name, dtype and shape pass as it was?

        Most of a checkpoint's 100,000 tensors are; asking each of them everything would take seconds. No rule tells
        them apart: what lands is asked of none but those that override, and a record of the field ``tensors`` goes by
        the layer, the dtype, or what the model has parameters for.
        """
        head, _, tail = name.partition(EXPERTS)
        number, _, kind = tail.partition(".")
        other = self._alike.get((head, kind))
        if other is None or not number.isdigit() or other.looks != _looks(tensor):
            return False
        other.numbers.add(number)
        return True

    def _transformed(self, item: Any) -> Iterable[Any]:
        """What the tensor seam makes of one item of the iterator."""
        if not self.tensors or len(item) != 2:
            return (item,)
        try:
            return list(self.tensors.feed(item[0], item[1], self.places))
        except Exception as error:
            log.contained(f"transforming the tensor {item[0]!r}", error)
            return (item,)

    def _passed(self, name: str, rest: list[Any], item: Any = ()) -> Iterator[Any]:
        """What *item* has become, under its new name, or nothing where it is dropped or loaded already."""
        try:
            renamed = self._renamed(name)
        except Exception as error:
            log.contained(f"renaming the tensor {name!r}", error)
            renamed = name
        if renamed is None or (self.tensors and len(rest) == 1 and self.tensors.direct(renamed, rest[0], self.places)):
            return
        if rest:
            self._look_at(renamed, rest[0], untouched=len(item) == 2 and renamed == item[0] and rest[0] is item[1])
        yield (renamed, *rest)

    def _look_at(self, name: str, tensor: Any, *, untouched: bool) -> None:
        try:
            home = self.home(name)
            if home is not None:
                self.homes.add(home)
            if self.instance.watch is None:
                return
            parameter = self.places.parameters.get(home or "")
            numbers = self.instance.watch.passing(self.places.mapped(name), tensor, home, parameter)
            if numbers is not None and untouched and home is not None and not self._overrides:
                head, _, tail = name.partition(EXPERTS)
                self._alike[head, tail.partition(".")[2]] = _Alike(_looks(tensor), numbers)
        except Exception as error:
            log.contained(f"checking the tensor {name!r}", error)

    def _renamed(self, name: str) -> str | None:
        """The name that is passed on, or None to drop the tensor."""
        if not self._overrides and self.home(name) is not None:
            return name  # it lands: no rule has anything to do
        for one, renamer in self.renamers:
            name = self._closer(one.patch, one.fix, renamer, name)
        for one, record in self.drops:
            if matches(record.pattern, name) and (one.fix.override or self.places.closeness(name) < PARAMETER):
                LEDGER.hit(one.patch, one.fix.id, "drop", name)
                return None
        return name

    def _closer(self, patch: str, fix: Any, renamer: Renamer, name: str) -> str:
        before = -1 if fix.override else None
        for candidate in renamer.candidates(name):
            if before is None:
                before = self.places.closeness(name)
            if self.places.closeness(candidate.new) > before:
                LEDGER.hit(patch, fix.id, "weights", f"{name} -> {candidate.new}")
                return renamer.count(candidate)
        return name

    def finish(self, loaded: Any) -> Any:
        """Notes what was written; what no tensor fills and a fix does is reported as loaded."""
        self.homes |= self.tensors.loaded
        if not isinstance(loaded, set):
            self.instance.landed(self.homes, reported=False)
        else:
            self.instance.landed(self.homes | loaded)
            loaded |= self.tensors.loaded | self.instance.filled.keys()
        if self.instance.live and self.instance.places is not None:
            self.instance.places.let_go()
        log.write_ledger(seldom=self.instance.live)
        if not self.instance.live:
            self.instance.so_far()
            log.write_ledger()
        return loaded

    def hint(self, error: Exception) -> str:
        """What a person needs to know about a load that failed."""
        text = f"loading {type(self.model).__name__} stopped at the checkpoint tensor {self.last!r}"
        if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
            text += f": its loader asked for a parameter {error.args[0]!r}"
        return f"{text}. 'ascend-hotfix doctor MODEL_DIR' checks every tensor of the checkpoint and suggests a patch"
