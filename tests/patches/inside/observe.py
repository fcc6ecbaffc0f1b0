"""Which checkpoint tensor ended up in which parameter: seen at the level of torch's own operations.

Every tensor of the checkpoint is followed by its storage through views, casts and copies. It works on
the CPU and on the meta device, and knows nothing of any loader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inside.values import differing

__all__ = ["Follower"]

# one value for a layer that is made of several shards
PER_SHARD = ("input_scale", "input_offset")


class Follower(TorchDispatchMode):
    """While entered, keeps for every storage the names of the checkpoint tensors that went into it."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: dict[int, set[str]] = {}
        self.counts: dict[int, int] = {}
        self.alive: list[Any] = []
        self.scalar: set[str] = set()
        self.fed: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}

    def feed(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The weights, each known by its storage from then on."""
        for name, tensor in weights:
            self.fed.append(name)
            self.tensors[name] = tensor if tensor.is_meta else tensor.clone()  # a loader may write into its own
            self.origins[self._key(tensor)] = {name}
            yield name, tensor

    def _is_cut(self, name: str, tensors: list[str], size: int) -> bool:
        """Do *tensors* have more elements than the parameter? Two that each fill it are copies, not parts."""
        weights = [one for one in tensors if one.endswith(".weight")] if name.endswith(".weight") else tensors
        sizes = [self.tensors[one].numel() for one in weights]
        return sum(sizes) > size and size not in sizes and not name.endswith(PER_SHARD)

    def _key(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        self.alive.append(storage)
        return storage._cdata

    def _of(self, value: Any) -> set[str]:
        if isinstance(value, torch.Tensor):
            return self.origins.get(value.untyped_storage()._cdata, set())
        if isinstance(value, list | tuple):
            return set().union(*map(self._of, value)) if value else set()
        return set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            self.scalar = self._of(args[0])
            return 1.0 if args[0].is_meta else func(*args, **kwargs)
        result = func(*args, **kwargs)
        if name.endswith("_") and args and isinstance(args[0], torch.Tensor):
            source = self._of(args[1:])
            if name == "fill_":
                source = source or self.scalar
                self.scalar = set()
            if name in ("fill_", "zero_") and not source:  # a parameter that no tensor fills was given a value
                key = self._key(args[0])
                self.counts[key] = self.counts.get(key, 0) + args[0].numel()
            if source:
                key = self._key(args[0])
                self.origins[key] = self.origins.get(key, set()) | source
                self.counts[key] = self.counts.get(key, 0) + args[0].numel()
        else:
            source = self._of(args)
            for out in result if isinstance(result, list | tuple) else (result,):
                if source and isinstance(out, torch.Tensor):
                    key = self._key(out)
                    if key not in self.origins:
                        self.counts[key] = out.numel()
                    self.origins[key] = self.origins.get(key, set()) | source
        return result

    def report(self, model: Any, show: tuple[str, ...] = ()) -> dict[str, Any]:
        """What each parameter or buffer holds, those that hold too little or another kind of number, the tensors that
        are nowhere, those whose values are not what their tensors make (not on the meta device), and the first values of
        the parameters whose names contain one of *show*.
        """
        landed: dict[str, list[str]] = {}
        short: list[str] = []
        cast: list[str] = []
        cut: list[str] = []
        values: dict[str, list[float]] = {}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        buffers = dict(model.named_buffers(remove_duplicate=False))
        for name, tensor in [*parameters.items(), *buffers.items()]:
            key = tensor.untyped_storage()._cdata
            if key in self.origins:
                landed[name] = sorted(self.origins[key])
            if name not in buffers and self.counts.get(key, 0) < tensor.numel():
                short.append(name)
            weights = [one for one in landed.get(name, ()) if one.endswith(".weight")]
            dequantized = any(one.endswith("weight_scale") for one in landed.get(name, ()))
            if not dequantized and any(
                self.tensors[one].is_floating_point() != tensor.is_floating_point() for one in weights
            ):
                cast.append(name)
            if self._is_cut(name, landed.get(name, []), tensor.numel()):
                cut.append(name)
            if any(part in name for part in show):
                values[name] = tensor.detach().float().flatten()[:8].tolist()
        used = {one for names in landed.values() for one in names}
        unused = [name for name in self.fed if name not in used]
        real = {n: p for n, p in parameters.items() if not p.is_meta}
        other = differing(real, {n: s for n, s in landed.items() if n in real}, self.tensors)
        return {
            "landed": landed,
            "unwritten": short,
            "unused": unused,
            "cast": cast,
            "cut": cut,
            "other": other,
            "values": values,
        }
