"""Tensors on their way into ``load_weights`` that need more than another name.

Dequantized modules, fused experts taken apart, parts of fused parameters that go to the parameter itself,
tensors of layers that are on another pipeline rank. Acts at the outermost load_weights, on checkpoint names,
before the renames of the weights seam.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ascend_hotfix import log
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.names import layer_number, matches
from ascend_hotfix.records import Absent, Config, Dequantize, Stack, Unfuse
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams.config import meets
from ascend_hotfix.seams.headers import config_of
from ascend_hotfix.seams.params import own_parameters
from ascend_hotfix.seams.watch import is_quantized

if TYPE_CHECKING:
    from ascend_hotfix.seams.weights import Places

__all__ = ["Tensors", "dequantized"]

SEAM = "tensors"
WEIGHT, OFFSET = "weight", "weight_offset"
Named = tuple[str, Any]


def dequantized(weight: Any, scale: Any, offset: Any = None, block: int = 128) -> Any:
    """The float32 value of a quantized ``weight`` ``[rows, columns]``: ``(weight - offset) * scale``.

    ``scale`` is a scalar, one value a row (``[rows]``, ``[rows, 1]``), or one a block of ``block`` by ``block``
    (``[ceil(rows/block), ceil(columns/block)]``); ``offset`` is as ``scale``. Raises ValueError for other shapes,
    such as those of packed 4-bit weights.
    """
    value = weight.float()
    if offset is not None:
        value = value - _spread(offset.float(), value, block)
    return value * _spread(scale.float(), value, block)


def _spread(scale: Any, value: Any, block: int) -> Any:
    rows, columns = value.shape
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    if scale.numel() == rows and scale.shape[0] == rows:
        return scale.reshape(rows, 1)
    if scale.dim() == 2 and tuple(scale.shape) == (-(-rows // block), -(-columns // block)):
        return scale.repeat_interleave(block, 0)[:rows].repeat_interleave(block, 1)[:, :columns]
    raise ValueError(f"a scale of shape {tuple(scale.shape)} fits no weight of shape {tuple(value.shape)}")


def _takes_quantized(module: str, places: Places) -> bool:
    """Has the model a quantized parameter for the weight of *module*? Then it is not ours to change."""
    home = places.home(f"{module}.{WEIGHT}")
    return home is not None and is_quantized(getattr(places.parameters[home], "dtype", None))


def _is_for(one: Selection, current: Scope) -> bool:
    """Is the checkpoint one that the fix speaks of in its ``Config`` records? A fix without any is for all.

    What else holds layers of a dtype or a name that a record gives is quantized in another way.
    """
    wheres = [record for record in one.fix.config if isinstance(record, Config) and record.where]
    config = config_of(current.model) if wheres else None
    return config is None or any(meets(config, record) for record in wheres)


class Tensors:
    """The records of field ``tensors`` at work in one outermost load."""

    def __init__(self, model: Any, current: Scope) -> None:
        self._model = model
        self._records: dict[type, list[tuple[Selection, Any]]] = {}
        for one, record in current.records(SEAM):
            if not isinstance(record, Dequantize) or _is_for(one, current):
                self._records.setdefault(type(record), []).append((one, record))
        self._held: dict[str, dict[str, Any]] = {}
        self._parameters: dict[str, Any] | None = None
        self._missing: set[int] | None = None
        self.loaded: set[str] = set()
        if Absent in self._records and not self._missing_layers():
            del self._records[Absent]  # the whole model is here

    def __bool__(self) -> bool:
        return bool(self._records)

    def feed(self, name: str, tensor: Any, places: Places) -> Iterator[Named]:
        """What is passed on for one tensor of the checkpoint: nothing yet, itself, or others."""
        if self._is_elsewhere(name):
            return
        if self._hold(name, tensor, places):
            yield from self._release(name.rpartition(".")[0], last=False)
            return
        yield from self._unfused(name, tensor, places)

    def flush(self) -> Iterator[Named]:
        """What was held back for a part that never came."""
        for module in list(self._held):
            yield from self._release(module, last=True)

    def direct(self, name: str, tensor: Any, places: Places) -> bool:
        """Gives a tensor that a Stack record speaks of to its parameter; True where that was done."""
        for one, record in self._records.get(Stack, ()):
            for target, shard in self._stacked(record, name, places):
                self._give(target, tensor, shard)
                self.loaded.add(target)
                LEDGER.hit(one.patch, one.fix.id, SEAM, f"{name} -> {target}" + (f" [{shard}]" if shard != "" else ""))
                return True
        return False

    def _named(self) -> dict[str, Any]:
        if self._parameters is None:
            self._parameters = own_parameters(self._model)
        return self._parameters

    def _stacked(self, record: Stack, name: str, places: Places) -> Iterator[tuple[str, str | int]]:
        """The parameter and shard id for tensor *name*; the model's own mapper may fuse names (0.30), so *name* decides."""
        segments = name.split(".")
        if not record.shards and record.fused in segments and places.mapped(name) in self._named():
            yield places.mapped(name), ""
        for segment, shard in record.shards:
            if segment in segments:
                place = segments.index(segment)
                target = places.mapped(".".join([*segments[:place], record.fused, *segments[place + 1 :]]))
                if target in self._named() and name not in self._named():
                    yield target, shard

    def _give(self, target: str, tensor: Any, shard: str | int) -> None:
        parameter = self._named()[target]
        loader = getattr(parameter, "weight_loader", None)
        if shard != "" and loader is not None:
            loader(parameter, tensor, shard)
        elif loader is None or parameter.shape == tensor.shape:  # whole, or cut for this rank already
            parameter.data.copy_(tensor)
        else:
            loader(parameter, tensor)

    def _is_elsewhere(self, name: str) -> bool:
        for one, record in self._records.get(Absent, ()):
            number = layer_number(name)
            if number is not None and number in self._missing_layers() and matches(record.pattern, name):
                LEDGER.hit(one.patch, one.fix.id, SEAM, f"{name}: layer {number} is on another pipeline rank")
                return True
        return False

    def _missing_layers(self) -> set[int]:
        if self._missing is None:
            here: set[int] = set()
            self._missing = set()
            for path, module in self._model.named_modules():
                parts = path.split(".")
                if len(parts) > 1 and parts[-1].isdigit() and parts[-2] == "layers":
                    group = self._missing if type(module).__name__ == "PPMissingLayer" else here
                    group.add(int(parts[-1]))
            self._missing -= here
        return self._missing

    def _unfused(self, name: str, tensor: Any, places: Places) -> Iterator[Named]:
        for one, record in self._records.get(Unfuse, ()):
            head, dot, tail = name.rpartition("." + record.fused)
            if not dot or tail or getattr(tensor, "ndim", 0) != 3 or places.is_parameter(name):
                continue
            experts = head + "." + record.fused.rpartition(".")[0] if "." in record.fused else head
            whole = tensor.transpose(1, 2) if record.transposed else tensor
            if whole.shape[1] % len(record.parts):
                continue
            LEDGER.hit(one.patch, one.fix.id, SEAM, f"{name} {tuple(tensor.shape)}: one tensor for each expert")
            for number, expert in enumerate(whole.unbind(0)):
                for part, rows in zip(record.parts, expert.chunk(len(record.parts), 0), strict=True):
                    yield f"{experts}.{number}.{part}.weight", rows
            return
        yield name, tensor

    def _hold(self, name: str, tensor: Any, places: Places) -> bool:
        """Keeps a part of a module that is to be dequantized until the others are there."""
        module, _, leaf = name.rpartition(".")
        record = self._to_dequantize(module)
        if record is None or leaf not in (WEIGHT, OFFSET, record.scale):
            return False
        if leaf == WEIGHT and tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
            return False
        if module not in self._held and (places.takes_scale(module, record.scale) or _takes_quantized(module, places)):
            return False
        self._held.setdefault(module, {})[leaf] = tensor
        return True

    def _to_dequantize(self, module: str) -> Dequantize | None:
        return next((r for _, r in self._records.get(Dequantize, ()) if matches(r.pattern, module)), None)

    def _release(self, module: str, *, last: bool) -> Iterator[Named]:
        parts = self._held.get(module, {})
        for one, record in self._records.get(Dequantize, ()):
            if not matches(record.pattern, module):
                continue
            complete = WEIGHT in parts and record.scale in parts
            # only int8 weights come with an offset, and it may be the last to come
            awaits_offset = complete and not parts[WEIGHT].dtype.is_floating_point and OFFSET not in parts
            if not last and (not complete or awaits_offset):
                return
            del self._held[module]
            if record.scale not in parts:  # quantized in another way, of which this record does not speak
                yield from ((f"{module}.{leaf}", tensor) for leaf, tensor in parts.items())
                return
            try:
                value = dequantized(parts[WEIGHT], parts[record.scale], parts.get(OFFSET), record.block)
            except (KeyError, ValueError) as error:
                why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                log.finding(f"{one.patch}.{one.fix.id}: {module} cannot be dequantized: {why}; it is loaded as it is")
                yield from ((f"{module}.{leaf}", tensor) for leaf, tensor in parts.items())
                return
            LEDGER.hit(one.patch, one.fix.id, SEAM, f"{module}: float, from {parts[WEIGHT].dtype} and {record.scale}")
            yield f"{module}.{WEIGHT}", value
            return
