"""The names of a checkpoint's tensors, read from its index or from the headers of its safetensors files, and its config.json.

For rules that hold only where the checkpoint has a tensor (``Scheme.when``) or a key (``Config.where``). Nothing but the
headers is read, once for each folder. A checkpoint that is not on this machine yet has no names, so such a rule does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["config_of", "in_float", "tensor_names"]

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # bytes; the safetensors library refuses longer headers
FLOAT_LEAVES = frozenset({"weight", "bias", "gate_up_proj", "down_proj"})
PACKED = frozenset({"packed"})


@functools.lru_cache(maxsize=8)
def tensor_names(model: str) -> frozenset[str]:
    """Every tensor of the checkpoint in folder *model*, or of the model id *model* where it is in the local cache."""
    folder = _folder(model)
    if folder is None:
        return frozenset()
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if (folder / INDEX).is_file():  # a pipe would make its reader wait for ever
            listed = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            weight_map = listed.get("weight_map") if isinstance(listed, dict) else None
            if isinstance(weight_map, dict):
                return frozenset(weight_map)
    names: set[str] = set()
    for file in sorted(folder.glob("*.safetensors")):
        with contextlib.suppress(OSError, ValueError, RecursionError, struct.error):
            if file.is_file():
                names |= _header(file)
    return frozenset(names)


@functools.lru_cache(maxsize=8)
def config_of(model: str) -> dict[str, Any] | None:
    """What config.json of *model* says, before a fix or vLLM has changed it; None where it cannot be read."""
    folder = _folder(model) if model else None
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder is not None else None
        return found if isinstance(found, dict) else None
    return None


def _folder(model: str) -> Path | None:
    return Path(model) if Path(model).is_dir() else _cached(model)


def in_float(model: str, tensors: Iterable[str]) -> bool:
    """Does *model* have one of *tensors*, with nothing beside it but a bias? A scale or zero point tells of quantization."""
    return any(
        _leaves(model).get(tensor.rpartition(".")[0], PACKED) <= FLOAT_LEAVES for tensor in _held(model, tensors)
    )


def _held(model: str, tensors: Iterable[str]) -> list[str]:
    names = tensor_names(model)
    return [tensor for tensor in tensors if tensor in names]


@functools.lru_cache(maxsize=8)
def _leaves(model: str) -> dict[str, frozenset[str]]:
    """Module -> the last segments of its tensors. Fused experts are tensors of ``experts`` itself."""
    found: dict[str, set[str]] = {}
    for name in tensor_names(model):
        module, _, leaf = name.rpartition(".")
        found.setdefault(module, set()).add(leaf)
    return {module: frozenset(leaves) for module, leaves in found.items()}


def _header(file: Path) -> set[str]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > MAX_HEADER:
            raise ValueError(f"no header is {length} bytes long")
        header = json.loads(stream.read(length))
        return set(header) - {"__metadata__"} if isinstance(header, dict) else set()


def _cached(model: str) -> Path | None:
    with contextlib.suppress(Exception):  # no hub library, or no such id
        hub = importlib.import_module("huggingface_hub")
        for name in (INDEX, "model.safetensors"):
            found = hub.try_to_load_from_cache(model, name)
            if isinstance(found, str):
                return Path(found).parent
    return None
