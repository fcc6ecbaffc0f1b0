"""What a built model itself says of its modules: the sizes of their weights, and how a checkpoint calls them.

Sizes are those of the whole layer, whatever scheme it got and however it is split; so a layer whose description was not
found is known as well. Used in the process that has upstream; the results are plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["Size", "called", "mapped_by", "sizes"]

Size = tuple[int, ...]
"""Rows and columns of a matrix, or what a tensor of other rank has."""
Mapped = Callable[[str], str | None]


def _number(*values: Any) -> int:
    return next((int(one) for one in values if isinstance(one, int) and one > 0), 0)


def sizes(model: Any) -> dict[str, tuple[Size, ...]]:
    """Module to the sizes of the weights that fill it, in elements: one, or one for each shard in order.

    Fused experts have two, of gate and up, and of down. A module that says nothing of its size is not in it.
    """
    found: dict[str, tuple[Size, ...]] = {}
    for name, module in model.named_modules():
        names = {cls.__name__ for cls in type(module).__mro__}
        held: tuple[Size, ...] = ()
        if "LinearBase" in names:
            held = _of_linear(module)
        elif "VocabParallelEmbedding" in names:
            rows, columns = (_number(getattr(module, one, 0)) for one in ("org_vocab_size", "embedding_dim"))
            held = ((rows, columns),) if rows and columns else ()
        elif hasattr(module, "w13_weight"):
            held = _of_experts(module)
        if held:
            found[name] = held
    return found


def _of_linear(module: Any) -> tuple[Size, ...]:
    columns = _number(getattr(module, "input_size", 0))
    rows = getattr(module, "output_sizes", None)
    if not columns:
        return ()
    if isinstance(rows, list | tuple) and rows and all(isinstance(one, int) for one in rows):
        return tuple((one, columns) for one in rows)
    whole = _number(getattr(module, "output_size", 0))
    return ((whole, columns),) if whole else ()


def _of_experts(module: Any) -> tuple[Size, ...]:
    config = getattr(module, "moe_config", None)
    hidden = _number(getattr(module, "hidden_size", 0), getattr(config, "hidden_dim", 0))
    inner = _number(
        getattr(module, "intermediate_size_per_partition", 0),
        getattr(config, "intermediate_size_per_partition", 0),
    )
    ranks = _number(getattr(module, "tp_size", 0), 1)
    return ((inner * ranks, hidden), (hidden, inner * ranks)) if hidden and inner else ()


# --- names ------------------------------------------------------------------------------------------------------------


def mapped_by(model: Any) -> Mapped:
    """What the model's own mapper makes of a checkpoint's name; None where it leaves the tensor out."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    map_name = getattr(mapper, "_map_name", None)

    def mapped(name: str) -> str | None:
        try:
            new = map_name(name) if callable(map_name) else name
        except Exception:  # a mapper that wants more than a name
            return name
        return None if new is None else str(new)

    return mapped


def called(model: Any, modules: Iterable[str]) -> dict[str, str]:
    """Module to what a checkpoint calls it, for those that the model's mapper names otherwise.

    Each name is read back with the mapper: it leads to the module.
    """
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is None:
        return {}
    mapped, found = mapped_by(model), {}
    for module in modules:
        for name in _back(mapper, f"{module}.weight"):
            if name != f"{module}.weight" and mapped(name) == f"{module}.weight":
                found[module] = name.removesuffix(".weight")
                break
    return found


def _back(mapper: Any, name: str) -> Iterator[str]:
    """What a mapper may have made *name* of, by its prefixes and by pieces of a name."""
    fronts = _turned(mapper, "orig_to_new_prefix")
    for new, old in sorted(fronts, key=lambda pair: len(pair[0]), reverse=True):
        if name.startswith(new):
            front = f"{old}{name[len(new) :]}"
            yield from _pieces(mapper, front)
            yield front
    yield from _pieces(mapper, name)


def _pieces(mapper: Any, name: str) -> Iterator[str]:
    for new, old in _turned(mapper, "orig_to_new_substr"):
        if new and new in name:
            yield name.replace(new, old, 1)


def _turned(mapper: Any, table: str) -> Iterator[tuple[str, str]]:
    for old, new in (getattr(mapper, table, None) or {}).items():
        if isinstance(old, str) and isinstance(new, str) and old != new:
            yield new, old
