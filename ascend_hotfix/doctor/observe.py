"""Watches the installed upstream build a model and load it: what a layer asks, what a tensor fills.

Weights have no values here: every tensor lives on the meta device, where a view still knows the
storage it belongs to, and where in it. So a write tells by itself which region of which parameter is
filled from which region of which checkpoint tensor, whatever loader made it. Nothing upstream is
replaced; ``Tensor.copy_``, ``fill_``, ``__setitem__`` and ``item`` are watched while :func:`watching`
is active, and the description answers through :class:`Description`.

torch is imported by the functions that need it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Box", "Description", "Frame", "Recorder", "Region", "Viewed", "box_of", "uncovered", "watching"]

Box = tuple[tuple[int, int], ...]
"""Start and stop of a region along each dimension."""


@dataclass
class Frame:
    """One layer's question to the quant config: what it asked and what came of it.

    ``module`` is the name in ``named_modules()``; ``missing`` are the description names that were asked
    in vain, ``defaulted`` those that a patch gave its default scheme; ``answers`` those found, with their scheme
    (bounded); ``method`` is the class of the
    scheme that the layer got, empty for none; ``standin`` is the scheme that we answered in its place and ``guess``
    the one that the most similar name has. ``layer`` is a weak reference until the model is built.
    """

    prefix: str
    kind: str
    asked: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    defaulted: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    standin: str = ""
    guess: str = ""
    method: str = ""
    float_method: bool = False
    error: str = ""
    module: str = ""
    layer: Any = field(default=None, repr=False, compare=False)


Viewed = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A :class:`Region` as it is noted, at a fifth of the cost: there is one for each tensor and each write."""


class Region(NamedTuple):
    """A region of a tensor as a view shows it: element offset, shape and strides."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def box_of(region: Region, shape: tuple[int, ...], stride: tuple[int, ...]) -> Box | None:
    """*region* as a box in a tensor of *shape* and *stride*, or None where it is no box.

    Dimensions are told apart by their stride, so a transposed or selected view is placed as well.
    """
    starts, rest = [0] * len(shape), region.offset
    for dim in sorted(range(len(shape)), key=lambda d: -stride[d]):
        if stride[dim] and shape[dim] > 1:
            starts[dim], rest = divmod(rest, stride[dim])
    if rest:
        return None
    sizes = [1] * len(shape)
    free = set(range(len(shape)))
    for size, step in zip(region.shape, region.stride, strict=True):
        if size == 1:
            continue
        dims = [d for d in free if stride[d] == step and shape[d] > 1]
        if not dims:
            return _merged(region, starts, shape, stride)
        free.discard(dims[0])
        sizes[dims[0]] = size
    box = tuple((a, a + n) for a, n in zip(starts, sizes, strict=True))
    return box if all(stop <= full for (_, stop), full in zip(box, shape, strict=True)) else None


def _merged(region: Region, starts: list[int], shape: tuple[int, ...], stride: tuple[int, ...]) -> Box | None:
    """A view that folds or splits dimensions: a box only where it is one contiguous run of rows."""
    count = 1
    for size in region.shape:
        count *= size
    row = 1
    for dim in range(len(shape) - 1, -1, -1):
        if count == row * shape[dim] or (count % row == 0 and count < row * shape[dim]):
            size = count // row
            if starts[dim] + size > shape[dim]:
                return None
            return (
                *((s, s + 1) for s in starts[:dim]),
                (starts[dim], starts[dim] + size),
                *((0, full) for full in shape[dim + 1 :]),
            )
        row *= shape[dim]
    return None


def uncovered(boxes: Iterable[Box], shape: tuple[int, ...]) -> list[Box]:
    """The parts of a tensor of *shape* that no box covers, as boxes; empty where all is covered."""
    unique = set(boxes)
    whole = tuple((0, size) for size in shape)
    if not shape or whole in unique:
        return [] if unique else [whole]
    cuts = []
    for dim, size in enumerate(shape):
        points = {0, size}
        for box in unique:
            points.update(box[dim])
        cuts.append(sorted(points))
    total = sum(_volume(box) for box in unique)
    if total == _volume(whole) and _disjoint(unique, cuts):
        return []
    covered: set[tuple[int, ...]] = set()
    index = [{point: i for i, point in enumerate(points)} for points in cuts]
    for box in unique:
        covered.update(_cells([range(index[d][a], index[d][b]) for d, (a, b) in enumerate(box)]))
    missing = sorted(set(_cells([range(len(points) - 1) for points in cuts])) - covered)
    return [tuple((cuts[d][i], cuts[d][i + 1]) for d, i in enumerate(cell)) for cell in missing]


def _volume(box: Box) -> int:
    count = 1
    for start, stop in box:
        count *= stop - start
    return count


def _disjoint(boxes: set[Box], cuts: list[list[int]]) -> bool:
    """Do equal cuts prove that boxes do not overlap? True where every box is one cell."""
    index = [{point: i for i, point in enumerate(points)} for points in cuts]
    return all(index[d][b] - index[d][a] == 1 for box in boxes for d, (a, b) in enumerate(box))


def _cells(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    if not ranges:
        yield ()
        return
    for head in ranges[0]:
        for tail in _cells(ranges[1:]):
            yield (head, *tail)


class Description(dict[str, Any]):
    """The quant description as upstream reads it; tells *recorder* what was asked."""

    recorder: Recorder

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        self.recorder.answered(key, value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            return self[key]
        self.recorder.absent(key)
        return default


@dataclass
class Recorder:
    """What was seen in one build and load.

    ``standin`` chooses the scheme to answer for a description name that is missing.
    """

    standin: Callable[[str, str, Mapping[str, Any]], str]
    frames: list[Frame] = field(default_factory=list)
    current: str = ""
    """The checkpoint tensor that the loader took last."""

    def __post_init__(self) -> None:
        self._stack: list[Frame] = []
        self._sources: dict[int, tuple[weakref.ref[Any], str]] = {}
        self.written: dict[int, list[tuple[str, Viewed, Any, tuple[int, ...] | None]]] = {}
        self.used: dict[str, list[tuple[Viewed | None, int]]] = {}
        self.padding: dict[int, list[Viewed]] = {}
        self._kept: dict[int, Any] = {}

    # --- description ---------------------------------------------------------------------------------------------

    def absent(self, key: str) -> None:
        if self._stack and key.endswith(".weight"):
            frame = self._stack[-1]
            frame.asked.append(key)
            if key not in frame.missing:
                frame.missing.append(key)

    def answered(self, key: str, value: Any) -> None:
        if self._stack and len(self._stack[-1].answers) < 8 and isinstance(value, str):
            frame = self._stack[-1]
            if key not in frame.answers:
                frame.asked.append(key)
                frame.answers[key] = value

    @contextmanager
    def asking(self, prefix: str, kind: str) -> Iterator[Frame]:
        """While *prefix* asks its quant method."""
        frame = Frame(prefix, kind)
        self._stack.append(frame)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            self._stack.pop()

    # --- weights -------------------------------------------------------------------------------------------------

    def feed(self, tensors: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """*tensors* on their way into ``load_weights``, each known by its storage from then on."""
        for name, tensor in tensors:
            self._sources[tensor.untyped_storage()._cdata] = (weakref.ref(tensor), name)
            self.current = name
            yield name, tensor

    def source_of(self, tensor: Any) -> str:
        """The checkpoint tensor that *tensor* is a view of, or empty."""
        found = self._sources.get(tensor.untyped_storage()._cdata)
        return found[1] if found is not None and found[0]() is not None else ""

    def wrote(self, target: Any, source: Any) -> None:
        """*target* (a view of a parameter) was filled from *source*, a tensor or a number that came from one."""
        store = target.untyped_storage()._cdata
        writes = self.written.get(store)
        if writes is None:
            self._kept[store] = target
            writes = self.written[store] = []
        name, shape, dtype, region, count = self.current, None, None, None, 1
        if not isinstance(source, _Number):
            shape, dtype, count = source.shape, source.dtype, source.numel()
            found = self._sources.get(source.untyped_storage()._cdata)
            if found is not None and found[0]() is not None:
                name = found[1]
                region = source.storage_offset(), shape, source.stride()
        writes.append((name, (target.storage_offset(), target.shape, target.stride()), dtype, shape))
        uses = self.used.get(name)
        if uses is None:
            self.used[name] = [(region, count)]
        else:
            uses.append((region, count))

    def padded(self, target: Any) -> None:
        """*target* (a view of a parameter) got a number of the loader's own, as the rows beyond a vocabulary do."""
        view = target.storage_offset(), target.shape, target.stride()
        self.padding.setdefault(target.untyped_storage()._cdata, []).append(view)

    def assigned(self, value: Any) -> None:
        """A parameter got *value* as its data."""
        self.wrote(value, value)


class _Number(float):
    """What ``item()`` of a meta tensor gives: a number without a value, so that a loader can go on."""


@contextmanager
def watching(recorder: Recorder) -> Iterator[None]:
    """While active, every write into a tensor is told to *recorder*, and meta tensors have numbers.

    A copy from a meta tensor has no effect that could be seen; it is only tried where the shapes differ.
    """
    import torch

    copy_, fill_, setitem, item = (
        torch.Tensor.copy_,
        torch.Tensor.fill_,
        torch.Tensor.__setitem__,
        torch.Tensor.item,
    )

    def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
        if src.is_meta:
            if self.shape != src.shape:
                copy_(torch.empty_like(self, device="meta"), src)
        else:
            copy_(self, src, non_blocking)
        recorder.wrote(self, src)
        return self

    def fill(self: Any, value: Any) -> Any:
        if isinstance(value, _Number):
            recorder.wrote(self, value)
            return self
        result = fill_(self, value)
        if isinstance(value, torch.Tensor):
            recorder.wrote(self, value)
        else:
            recorder.padded(self)
        return result

    def set_item(self: Any, index: Any, value: Any) -> None:
        setitem(self, index, value)
        if isinstance(value, torch.Tensor | _Number):
            part = self[index]
            if part.untyped_storage()._cdata == self.untyped_storage()._cdata:
                recorder.wrote(part, value)
            else:
                recorder.wrote(self, value)

    def number(self: Any) -> Any:
        return _Number(1.0) if self.is_meta else item(self)

    held: Any = torch._C.TensorBase.data

    def set_data(self: Any, value: Any) -> None:
        held.__set__(self, value)
        if value.is_meta:
            recorder.assigned(value)

    patched: dict[str, Any] = {"copy_": copy, "fill_": fill, "__setitem__": set_item, "item": number}
    saved = {name: torch.Tensor.__dict__.get(name) for name in patched}
    for name, function in patched.items():
        setattr(torch.Tensor, name, function)
    # Some loaders replace a parameter's data (the KV scales of vllm-ascend's C8) instead of filling it.
    torch.nn.Parameter.data = property(held.__get__, set_data)
    try:
        yield
    finally:
        del torch.nn.Parameter.data
        for name, original in saved.items():
            if original is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, original)
