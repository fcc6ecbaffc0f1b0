"""Builds the installed upstream's model without memory, loads the checkpoint's headers into it, and says what is wrong.

The real model class, the real quant config and the real ``load_weights`` run on the meta device, fed with tensors that
have a dtype and a shape and no data. What they ask and fill is watched (:mod:`ascend_hotfix.doctor.observe`) and judged
here. One run reports every fault it can reach: a description name that is missing gets a stand-in, a tensor that the
loader refuses is set aside, and the run goes on.

torch, vllm and vllm_ascend are imported by the functions that need them.
"""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ascend_hotfix.doctor import layout, standin
from ascend_hotfix.doctor.findings import pattern
from ascend_hotfix.doctor.observe import Box, Description, Frame, Recorder, Region, Viewed, box_of, uncovered, watching
from ascend_hotfix.names import matches
from ascend_hotfix.records import Reuse
from ascend_hotfix.seams.spare import Spare, plain, twins_of
from ascend_hotfix.sim import frames
from ascend_hotfix.words import printable, text_of

__all__ = ["Part", "Refused", "fused_rows", "meta_tensors", "observe"]

Load = Callable[[Iterator[tuple[str, Any]]], Any]

LEAF = ".weight"
MOST_MISSES = 32
"""More shards than any fused layer has."""

SAME_FAULT = 3
"""After so many refusals of one pattern for one reason, its remaining tensors count as refused untried."""

TORCH_DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


@dataclass(frozen=True)
class Refused:
    """A tensor at which ``load_weights`` raised. ``tried`` is False where only its pattern was refused before."""

    tensor: str
    error: str
    text: str
    place: str
    asked: str = ""
    tried: bool = True


@dataclass
class Part:
    """What one model (target or draft) made of the checkpoint. Plain data; parameters by their own names.

    ``modules`` maps a module to its class; ``landed`` a tensor to the parameters it reached; ``unwritten`` parameters
    to (shape, dtype); ``partial`` to their unwritten boxes; ``cut`` tensors to the boxes of them that went nowhere;
    ``spare`` are those of the unwritten that need no tensor on this release;
    ``cast`` and ``spread`` are (tensor, of the tensor, parameter, of the parameter) for dtype kind and shape.
    ``filled`` are parameters that no tensor fills and an armed patch does, to the patch and its value; the patch is empty
    where the same fix keeps the layer from reading them. ``experts`` are the names that the loader takes for the
    projections of an expert, by vLLM's own: w1 (gate), w3 (up), w2 (down); empty where the model does not say.
    ``sizes`` and ``called`` are what :mod:`ascend_hotfix.doctor.layout` tells of the modules; ``mapped`` are the checkpoint's
    modules that the model's own mapper names otherwise, to that name.
    """

    role: str
    model_class: str = ""
    frames: list[Frame] = field(default_factory=list)
    failure: str = ""
    failure_place: str = ""
    refused: list[Refused] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    unwritten: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    spare: set[str] = field(default_factory=set)
    partial: dict[str, list[Box]] = field(default_factory=dict)
    cut: dict[str, list[Box]] = field(default_factory=dict)
    cast: list[tuple[str, str, str, str]] = field(default_factory=list)
    spread: list[tuple[str, str, str, str]] = field(default_factory=list)
    landed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    filled: dict[str, tuple[str, float]] = field(default_factory=dict)
    experts: dict[str, str] = field(default_factory=dict)
    packed: dict[str, list[str]] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, tuple[layout.Size, ...]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    mapped: dict[str, str] = field(default_factory=dict)


def meta_tensors(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, tensor on the meta device) for each header entry (anything with ``dtype`` and ``shape``)."""
    import torch

    dtypes = {ours: getattr(torch, theirs) for ours, theirs in TORCH_DTYPES.items() if hasattr(torch, theirs)}
    empty, meta, unknown = torch.empty, torch.device("meta"), torch.uint8
    return (
        (name, empty(tensor.shape, dtype=dtypes.get(tensor.dtype, unknown), device=meta))
        for name, tensor in tensors.items()
    )


# --- the build --------------------------------------------------------------------------------------------------------


def _kind(layer: Any) -> str:
    names = {cls.__name__ for cls in type(layer).__mro__}
    if "LinearBase" in names:
        return "linear"
    if names & {"FusedMoE", "RoutedExperts", "FusedMoEModularMethod"}:
        return "moe"
    if "VocabParallelEmbedding" in names:
        return "embedding"
    return "attention" if names & {"Attention", "MLAAttention", "AttentionLayerBase"} else "other"


_INTEGERS = re.compile(r"(?<=\.)\d+(?=\.)")


class StandIn:
    """Chooses the scheme of a layer whose description name is missing: that of the most similar name.

    *fused* maps a fused module's last segment to its shards, over every model that upstream knows.
    """

    def __init__(self, fused: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        self._fused = fused
        self._index: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self._size = -1

    def _prepare(self, description: Mapping[str, Any]) -> None:
        if len(description) == self._size:
            return
        self._size = len(description)
        self._index = {}
        for name, value in description.items():
            if isinstance(value, str) and name.endswith(".weight"):
                tail = ".".join(name.rsplit(".", 2)[-2:])
                self._index.setdefault((tail, ()), []).append(name)
                self._index.setdefault((tail, tuple(_INTEGERS.findall(name))), []).append(name)

    def _nearest(self, key: str, description: Mapping[str, Any]) -> str:
        tail = ".".join(key.rsplit(".", 2)[-2:])
        names = self._index.get((tail, tuple(_INTEGERS.findall(key)))) or self._index.get((tail, ()), [])
        wanted = key.split(".")
        best = max(names[:4096], key=lambda name: _shared_tail(wanted, name.split(".")), default="")
        return str(description[best]) if best else ""

    def __call__(self, key: str, kind: str, description: Mapping[str, Any]) -> str:
        self._prepare(description)
        stem = key.removesuffix(".weight")
        parent, _, leaf = stem.rpartition(".")
        candidates = [key]
        if kind == "moe":
            candidates += [f"{stem}.0.{name}.weight" for name in ("gate_proj", "w1", "up_proj", "down_proj", "w2")]
        candidates += [f"{parent}.{shard}.weight" for shards in self._fused.get(leaf, ()) for shard in shards]
        candidates += [f"{parent}.{fused}.weight" for fused, rows in self._fused.items() for row in rows if leaf in row]
        for candidate in candidates[1:]:
            if candidate in description:
                return str(dict.__getitem__(description, candidate))  # type: ignore[index]
        for candidate in candidates:
            if candidate in description:
                return str(dict.__getitem__(description, candidate))  # type: ignore[index]
            if found := self._nearest(candidate, description):
                return found
        return "FLOAT"


def _shared_tail(one: list[str], other: list[str]) -> tuple[int, int]:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count, len(set(one) & set(other))


def _location(error: BaseException) -> str:
    """``file.py:line function()`` of the innermost frame inside vllm or vllm_ascend."""
    told = frames.places(error.__traceback__, ("vllm", "vllm_ascend"))
    return f"{told[-1] if told else frames.innermost(error.__traceback__)}()"


def _text(error: BaseException) -> str:
    lines = text_of(error).strip().splitlines()
    return printable(lines[0], 300) if lines else ""


@contextmanager
def _asking(recorder: Recorder, config_class: Any) -> Iterator[list[Any]]:
    """While active, each ``get_quant_method`` of *config_class* is a frame of *recorder* and does not fail.

    Gives the quant configs that were asked, the last one last.
    """
    from ascend_hotfix import scope
    from ascend_hotfix.seams import hooking

    owner = next(cls for cls in config_class.__mro__ if "get_quant_method" in cls.__dict__)
    original = owner.__dict__["get_quant_method"]
    configs: list[Any] = []
    armed = not scope.catalog().off

    def get_quant_method(wrapped: Any, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layer = args[0] if args else kwargs["layer"]
        prefix = args[1] if len(args) > 1 else kwargs["prefix"]
        if not any(self is one for one in configs):
            configs.append(self)
        if not armed:  # the lookup seam has a description of its own
            if not isinstance(self.quant_description, Description):
                self.quant_description = Description(self.quant_description)
            self.quant_description.recorder = recorder
        with recorder.asking(prefix, _kind(layer)) as frame:
            frame.layer = weakref.ref(layer)
            before = set(_defaulted(self))
            method = _ask(frame, lambda: wrapped(*args, **kwargs), self, recorder)
            frame.defaulted += [name for name in _defaulted(self) if name not in before]
            if armed and not frame.missing and not frame.error:
                frame.missing += [name for name in getattr(self.quant_description, "misses", []) if name.endswith(LEAF)]
        inner = getattr(method, "quant_method", method)
        frame.method = "" if method is None else type(inner).__name__
        frame.float_method = method is None or "Unquantized" in type(method).__name__
        return method

    # As one of the seams' own wrappers, so that arming again does not put the seam around it.
    owner.get_quant_method = hooking.Wrapped(original, get_quant_method)
    try:
        yield configs
    finally:
        owner.get_quant_method = original


def _defaulted(config: Any) -> Collection[str]:
    """Description names that the lookup seam has given a default scheme."""
    return getattr(config.quant_description, "defaulted", ())


def _ask(frame: Frame, ask: Callable[[], Any], config: Any, recorder: Recorder) -> Any:
    """The quant method that upstream chooses; a name that it misses gets the scheme of the most similar one."""
    added: list[str] = []
    try:
        while True:
            try:
                return ask()
            except KeyError as error:
                key = _missed(error)
                if not key or key in added or len(added) >= MOST_MISSES:
                    raise
                frame.guess = frame.guess or next(iter(frame.answers.values()), "")
                frame.guess = frame.guess or recorder.standin(key, frame.kind, config.quant_description)
                frame.standin = frame.guess
                frame.missing.append(key)
                added.append(key)
                config.quant_description[key] = frame.guess
    except Exception as error:
        standin.check(error)
        frame.error, first = f"{type(error).__name__}: {_text(error)}", error
    finally:
        for key in added:
            config.quant_description.pop(key, None)
    return _ask_otherwise(frame, ask, config, recorder, first)


def _missed(error: KeyError) -> str:
    """The description name that was asked in vain; the seams may have added a hint to the error."""
    text = str(error.args[0]) if error.args else ""
    found = re.match(r"['\"]?([\w.*-]*\.weight)\b", text)
    return found[1] if found else ""


def _ask_otherwise(frame: Frame, ask: Callable[[], Any], config: Any, recorder: Recorder, first: Exception) -> Any:
    """Upstream refuses the scheme: what it chooses for a stand-in, so that the build goes on."""
    description = config.quant_description
    names = {f"{frame.prefix}{LEAF}", f"{frame.prefix.partition('.')[2]}{LEAF}", *frame.missing}
    frame.guess = frame.guess or recorder.standin(f"{frame.prefix}{LEAF}", frame.kind, description)
    for scheme, every in ((frame.guess, False), ("FLOAT", True)):
        changed = {name: scheme for name in names if not dict.__contains__(description, name)}
        if every:
            changed.update((name, scheme) for name in frame.answers)
            changed.update((name, scheme) for name in _below(frame.prefix, description))
        before = {name: dict.get(description, name) for name in changed}
        description.update(changed)
        try:
            method = ask()
            frame.standin = scheme
            return method
        except Exception:  # the next stand-in may do
            continue
        finally:
            description = config.quant_description
            for name, value in before.items():
                if value is None:
                    description.pop(name, None)
                else:
                    description[name] = value
    if frame.kind in ("attention", "other"):
        frame.standin = "FLOAT"
        return None
    raise first


def _below(prefix: str, description: Mapping[str, Any]) -> list[str]:
    """The weights of the layer's parent, by the end of their names: its shards are among them, whatever the prefix."""
    tail = ".".join(prefix.split(".")[-4:-1])
    return [name for name in description if name.endswith(LEAF) and tail and f".{tail}." in f".{name}"]


# --- the load ---------------------------------------------------------------------------------------------------------


class _Feed:
    """The tensors still to be loaded, in order; refused ones are set aside."""

    def __init__(self, tensors: Iterator[tuple[str, Any]], apart: Collection[str] = ()) -> None:
        self._tensors, self._apart = tensors, apart
        self._again: list[tuple[str, Any]] = []
        self._retried = ""
        self._last: tuple[str, Any] | None = None
        self._counts: dict[tuple[str, str, Any], int] = {}
        self._known: dict[tuple[str, Any], Refused] = {}
        self.refused: list[Refused] = []
        self.exhausted = False

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        while True:
            if self._again:
                self._last = self._again.pop()
                yield self._last
                continue
            self._last = next(self._tensors, None)
            if self._last is None:
                self.exhausted = True
                return
            if self._known:
                name, tensor = self._last
                known = self._known.get((self._shape_of(name), (tensor.shape, tensor.dtype)))
                if known is not None:
                    self.refused.append(Refused(name, known.error, known.text, known.place, known.asked, tried=False))
                    continue
            yield self._last

    def _shape_of(self, name: str) -> str:
        """The name's pattern; draft layers, numbered on from the target's, are a pattern of their own."""
        return f"{pattern(name)} {name in self._apart}"

    def refuse(self, error: Exception) -> bool:
        """Set the tensor at fault aside; False where none is at fault, as all were taken."""
        if self._last is None or self.exhausted:
            return False
        name, tensor = self._last
        place = _location(error)
        key = self._shape_of(name), f"{type(error).__name__} {place}", (tensor.shape, tensor.dtype)
        if key not in self._counts and self._retried != name:
            # The loader may have looked ahead: the tensor at fault fails again as the first one.
            self._retried = name
            self._again.append(self._last)
            return True
        self._counts[key] = self._counts.get(key, 0) + 1
        asked = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
        refused = Refused(name, type(error).__name__, _text(error), place, asked)
        self.refused.append(refused)
        if self._counts[key] >= SAME_FAULT:
            self._known[key[0], key[2]] = refused
        return True


def _load(load: Load, feed: _Feed, recorder: Recorder, part: Part) -> None:
    while not feed.exhausted:
        try:
            load(recorder.feed(iter(feed)))
            if not feed.exhausted:  # a loader that stopped taking tensors
                for _ in feed:
                    pass
            break
        except MemoryError:
            raise
        except Exception as error:
            standin.check(error)
            if not feed.refuse(error):
                part.failure = f"{type(error).__name__}: {_text(error)}"
                part.failure_place = _location(error)
                break
    part.refused = feed.refused


# --- what came of it --------------------------------------------------------------------------------------------------


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


@functools.lru_cache(maxsize=64)
def _kind_of_dtype(dtype: Any) -> str:
    """``float``, ``int8``, ``int32``... : dtypes between which a copy only changes the precision are one kind."""
    name = str(dtype).removeprefix("torch.")
    if name.startswith(("float8", "float4")):
        return name
    if dtype.is_floating_point:
        return "float"
    return "int" if name in ("int32", "int64") else name


def _collect(model: Any, tensors: Mapping[str, Any], recorder: Recorder, part: Part, ranks: int) -> None:
    """Fill in *part* from what *recorder* saw."""
    owners: dict[int, list[str]] = {}
    held: dict[str, Any] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(_storage(parameter), []).append(name)
        held[name] = parameter
        part.parameters[name] = tuple(parameter.shape), str(parameter.dtype).removeprefix("torch.")
    for name, buffer in model.named_buffers(remove_duplicate=False):
        owners.setdefault(_storage(buffer), []).append(name)
        held[name] = buffer
    part.modules = {name: type(module).__name__ for name, module in model.named_modules()}
    layers = {id(module): name for name, module in model.named_modules()}
    for frame in part.frames:
        layer = frame.layer() if frame.layer is not None else None
        frame.module = layers.get(id(layer), "") if layer is not None else ""
        frame.layer = None
    landed: dict[str, tuple[str, ...]] = {}
    for store, names in owners.items():
        parameter = held[names[0]]
        if names[0] in part.parameters:
            writes = recorder.written.get(store, [])
            _judge_writes(names[0], parameter, writes, recorder.padding.get(store, ()), part, landed)
        else:
            _land((write[0] for write in recorder.written.get(store, [])), names[0], landed)
    part.landed = landed
    refused = {one.tensor for one in part.refused}
    part.unused = [name for name in tensors if name not in recorder.used and name not in refused]
    if ranks > 1:  # an expert that another rank holds
        shapes = {pattern(name) for name in landed}
        part.unused = [name for name in part.unused if ".experts." not in name or pattern(name) not in shapes]
    _find_cuts(tensors, recorder, part, ranks)


def _land(sources: Iterable[str], name: str, landed: dict[str, tuple[str, ...]]) -> None:
    """Note that tensors *sources* reached parameter *name*."""
    only = (name,)
    for tensor in sources:
        held = landed.get(tensor)
        if held is None:
            landed[tensor] = only
        elif name not in held:
            landed[tensor] = *held, name


def _judge_writes(
    name: str,
    parameter: Any,
    writes: list[Any],
    padding: Iterable[Viewed],
    part: Part,
    landed: dict[str, tuple[str, ...]],
) -> None:
    if not writes:
        part.unwritten[name] = part.parameters[name]
        return
    _land((write[0] for write in writes), name, landed)
    own, kind = parameter.dtype, _kind_of_dtype(parameter.dtype)
    for tensor, region, dtype, source_shape in writes:
        if dtype is not own and dtype is not None and _kind_of_dtype(dtype) != kind:
            part.cast.append((tensor, _short(dtype), name, _short(own)))
        shape = region[1]
        if source_shape is not None and source_shape != shape and prod(source_shape) != prod(shape):
            part.spread.append((tensor, str(list(source_shape)), name, str(list(shape))))
    regions = (*(region for _, region, _, _ in writes), *padding)
    if rest := _left_open(regions, tuple(parameter.shape), tuple(parameter.stride())):
        part.partial[name] = list(rest)


@functools.lru_cache(maxsize=64)
def _left_open(views: tuple[Viewed, ...], shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[Box, ...]:
    """What *views* leave of a tensor; nothing where that cannot be told. Layers are filled alike, hence the memory."""
    boxes = [box_of(Region(*view), shape, stride) for view in views]
    placed = [box for box in boxes if box is not None]
    return tuple(uncovered(placed, shape)) if len(placed) == len(boxes) else ()


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _find_cuts(tensors: Mapping[str, Any], recorder: Recorder, part: Part, ranks: int) -> None:
    """Tensors of which a part went nowhere. Of *ranks* one, each may take a whole fraction of the tensor."""
    for name, uses in recorder.used.items():
        tensor = tensors.get(name)
        if tensor is None:
            continue
        shape = tuple(tensor.shape)
        full = prod(shape)
        if uses[0][1] == full or any(count == full for _, count in uses):
            continue
        taken = sum(count for _, count in dict.fromkeys(uses))
        if ranks > 1 and taken and full % taken == 0 and full // taken <= ranks:
            continue
        if any(view is None for view, _ in uses):
            if 0 < sum(count for _, count in uses) < full:
                part.cut[name] = []
            continue
        stride, step = [0] * len(shape), 1
        for dim in range(len(shape) - 1, -1, -1):
            stride[dim], step = step, step * shape[dim]
        boxes = [box_of(Region(*view), shape, tuple(stride)) for view, _ in uses if view is not None]
        if all(box is not None for box in boxes):
            rest = uncovered([box for box in boxes if box is not None], shape)
            if rest:
                part.cut[name] = rest


def observe(
    role: str,
    build: Callable[[], tuple[Any, Load]],
    config_class: Any,
    tensors: Mapping[str, Any],
    *,
    apart: Collection[str] = (),
    ranks: int = 1,
) -> Part:
    """Build a model and load *tensors* (header entries by name) into it, watched.

    *build* gives the model, on the meta device, and the function that loads it; *config_class* is the class of the
    quant config. *apart* are the draft's tensors. *ranks*: into how many parts the server would split a layer.
    Never raises for what the checkpoint or the release does; that is in the result.
    """
    part = Part(role)
    recorder = Recorder(StandIn(fused_rows()))
    part.frames = recorder.frames
    with _asking(recorder, config_class) as configs:
        try:
            model, load = build()
        except MemoryError:  # the bound of the dry run's process; of the model it says nothing
            raise
        except Exception as error:
            standin.check(error)
            part.failure = f"{type(error).__name__}: {_text(error)}"
            part.failure_place = _location(error)
            model = None
    for quant in configs:
        given = _defaulted(quant)
        part.description = {k: v for k, v in quant.quant_description.items() if isinstance(v, str) and k not in given}
        part.packed = {k: list(v) for k, v in (getattr(quant, "packed_modules_mapping", None) or {}).items()}
    if model is None:
        return part
    part.model_class = type(model).__name__
    with watching(recorder):
        _load(load, _Feed(meta_tensors(tensors), apart), recorder, part)
    _collect(model, tensors, recorder, part, ranks)
    _leave_spare(model, part)
    _leave_to_patches(model, part)
    part.experts = _expert_names(model)
    part.sizes = layout.sizes(model)
    part.called = layout.called(model, {name.rpartition(".")[0] for name in part.parameters})
    part.mapped = _mapped(model, tensors)
    if role != "target" and part.unwritten:
        part.called |= _asked_of_loader(model, load, part)
    return part


DRAFT_FRONTS = ("mtp", "model.mtp", "mtp.0", "model.mtp.0")
"""What a checkpoint may begin the names of draft layers with where vLLM's draft model says ``model``."""
MOST_PROBES = 24


def _asked_of_loader(model: Any, load: Load, part: Part) -> dict[str, str]:
    """Modules of a draft that its loader takes under another front than their own, found by giving it such tensors.

    Loaders of drafts rename in their own code, which no table tells.
    """
    import torch

    shapes: dict[str, Any] = {}
    for name in part.unwritten:
        module, _, leaf = name.rpartition(".")
        plain = len(part.sizes.get(module, ())) < 2 and leaf == "weight" and ".experts" not in name
        if plain and name.startswith("model.") and len(shapes) < MOST_PROBES:
            shapes.setdefault(pattern(name), name)
    if not shapes:
        return {}
    held = dict(model.named_parameters())
    best = (0, "")
    for front in ("model", *DRAFT_FRONTS):
        names = {f"{front}{name.removeprefix('model')}": name for name in shapes.values()}
        recorder, trial = Recorder(StandIn({})), Part(part.role)
        given = ((new, torch.empty_like(held[old], device="meta")) for new, old in names.items())
        with watching(recorder):
            _load(load, _Feed(given), recorder, trial)
        written = {(store, write[0]) for store, writes in recorder.written.items() for write in writes}
        best = max(
            best, (sum((_storage(held[old]), new) in written for new, old in names.items()), front), key=lambda b: b[0]
        )
    front = best[1]
    if front in ("", "model"):
        return {}
    modules = {name.rpartition(".")[0] for name in part.parameters}
    return {name: f"{front}{name.removeprefix('model')}" for name in modules if name.startswith("model.")}


def _mapped(model: Any, tensors: Iterable[str]) -> dict[str, str]:
    """Modules of *tensors* that the model's own mapper names otherwise."""
    map_name = layout.mapped_by(model)
    found = {}
    for module in dict.fromkeys(name.rpartition(".")[0] for name in tensors):
        new = map_name(f"{module}.weight")
        if new is not None and new != f"{module}.weight":
            found[module] = new.removesuffix(".weight")
    return found


def _expert_names(model: Any) -> dict[str, str]:
    """What vLLM's ``get_expert_mapping`` says, wherever in *model* it is: rows of parameter, name, expert and shard."""
    for module in model.modules():
        mapping = getattr(module, "get_expert_mapping", None)
        try:
            rows = list(mapping()) if callable(mapping) else []
        except Exception:  # it computes with the config; a release may want more than there is
            continue
        found = {str(row[3]): re.search(r"experts\.\d+\.(\w+)", str(row[1])) for row in rows}
        names = {shard: match[1] for shard, match in found.items() if match}
        if names:
            return names
    return {}


def _leave_spare(model: Any, part: Part) -> None:
    """Note which parameters a right load leaves unwritten; a server that loads asks the same."""
    twins = twins_of(model)
    spare = Spare(model, draft=part.role != "target", twins=twins)
    unwritten = {twin for name in part.unwritten for twin in twins.get(name, (name,))}
    written = {plain(name) for name in part.parameters.keys() - unwritten}
    homeless = [*part.unused, *(refused.tensor for refused in part.refused)]
    part.spare = {name for name in part.unwritten if spare.is_spare(name, written, homeless)}


def _leave_to_patches(model: Any, part: Part) -> None:
    """Take out of *part* what an armed patch says of the rest: tensors that it drops, parameters that it fills."""
    from ascend_hotfix import scope

    current = scope.of_model(model)
    drops = [record.pattern for _, record in current.records("drop")]
    part.unused = [name for name in part.unused if not any(matches(drop, name) for drop in drops)]
    for one, record in current.records("fill"):
        patch = "" if any(isinstance(layer, Reuse) for layer in one.fix.layers) else one.name
        for name in [name for name in part.unwritten if matches(record.pattern, name)]:
            del part.unwritten[name]
            part.filled[name] = patch, record.value


def fused_rows() -> dict[str, list[tuple[str, ...]]]:
    """Fused module name to every list of shards that an upstream row gives it, over all models."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for path in (
        "vllm_ascend.quantization.quant_config",
        "vllm_ascend.quantization.modelslim_config",
        "vllm_ascend.quantization.configs.modelslim_config",
    ):
        module = sys.modules.get(path)
        for table in ("packed_modules_model_mapping", "UPDATED_PACKED_MODULES_MAPPING"):
            for row in (getattr(module, table, None) or {}).values():
                for fused, shards in row.items():
                    if tuple(shards) not in rows.setdefault(fused, []):
                        rows[fused].append(tuple(shards))
    defaults: dict[str, list[tuple[str, ...]]] = {
        "qkv_proj": [("q_proj", "k_proj", "v_proj")],
        "qkv": [("q", "k", "v"), ("q_proj", "k_proj", "v_proj")],
        "gate_up_proj": [("gate_proj", "up_proj")],
        "fused_qkv_a_proj": [("q_a_proj", "kv_a_proj_with_mqa")],
    }
    for fused, lists in defaults.items():
        for one in lists:
            if one not in rows.setdefault(fused, []):
                rows[fused].append(one)
    return rows
