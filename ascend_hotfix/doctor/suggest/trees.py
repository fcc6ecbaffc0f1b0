"""The two trees: the modules that a built model asks for, and those that the checkpoint has; and when one may be the other.

The asked ones are called as the checkpoint would call them: shards of a fused layer and experts each by themselves, layers
of a draft among those of the target. A module that is filled, or that is in place, is in neither tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ascend_hotfix.doctor.layout import Size
from ascend_hotfix.doctor.rehearsal import Part
from ascend_hotfix.doctor.schemes import COMPANIONS, QUANTIZED_DTYPES
from ascend_hotfix.names import Rule

__all__ = ["Asked", "Stored", "Tree", "asked_modules", "may_be", "stored_modules"]

Rows = Mapping[str, list[tuple[str, ...]]]
Leaves = Mapping[str, tuple[str, tuple[int, ...]]]
EXPERTS = (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
"""vLLM's own names for the projections of an expert, and what most checkpoints call them."""
WEIGHTS = ("weight", "qweight", "weight_packed")
SHARED = ("embed_tokens", "lm_head", "word_embeddings", "embed", "head")
"""Modules of a draft that are, or are loaded from, the target's."""
OF_ROWS = ("weight_scale", "deq_scale", "quant_bias", "weight_offset", "bias")
BESIDE = COMPANIONS | {"weight_scale_second", "weight_offset_second", "weight_scale_inv"}


class Stored(NamedTuple):
    """A module of the checkpoint: each leaf with dtype and shape."""

    leaves: tuple[tuple[str, str, tuple[int, ...]], ...]


class Asked(NamedTuple):
    """A module that is asked: the size of its weight (None: not known, (): it has none) and its other leaves with their shapes.

    What a scheme stores beside the weight is not among them: a layer whose description was not found has the wrong ones.
    ``quantized``: is it built so? None where its description was not found.
    """

    size: Size | None
    leaves: tuple[tuple[str, tuple[int, ...]], ...]
    quantized: bool | None = None


@dataclass
class Tree:
    """Module to its form; ``parameters``: to the parameters that it fills; ``lookups``: to the name asked in vain for it.

    ``whole``: a fused layer as one module, to its form and its shards, which are in ``forms``: a checkpoint has either.
    ``lacking``: each module to the leaves that nothing fills, whether or not its weight is there. ``silent``: the names of ``lookups`` that
    upstream takes for float without a word, which is right where the tensor is float. ``veiled``: modules of a draft whose
    loader renames in its own code, so that no name looks closer to a parameter. ``shared``: empty modules of a draft that are
    the target's too, to their last segment. ``rows``: a shard to the fused layer's last segment and all of its shards.
    """

    forms: dict[str, Asked] = field(default_factory=dict)
    parameters: dict[str, list[str]] = field(default_factory=dict)
    lookups: dict[str, str] = field(default_factory=dict)
    whole: dict[str, tuple[Asked, tuple[str, ...]]] = field(default_factory=dict)
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    veiled: set[str] = field(default_factory=set)
    shared: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


# --- what is there ----------------------------------------------------------------------------------------------------


def stored_modules(tensors: Mapping[str, Any], names: Iterable[str]) -> dict[str, Stored]:
    """The modules of the tensors *names*; *tensors*: anything with dtype and shape."""
    held: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
    for name in names:
        module, _, leaf = name.rpartition(".")
        held.setdefault(module, []).append((leaf, tensors[name].dtype, tuple(tensors[name].shape)))
    return {module: Stored(tuple(sorted(leaves))) for module, leaves in held.items()}


# --- what is asked ----------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """One checkpoint module that fills a part of a built one: its name, its size and its leaves to the parameters."""

    name: str
    size: Size | None
    leaves: dict[str, str]
    shards: tuple[str, ...] = ()
    shard: bool = False


def asked_modules(parts: Iterable[Part], rows: Rows, renamed: Iterable[Rule] = ()) -> Tree:
    """What *parts* ask for and nothing fills. *renamed*: rules under which the tensors that landed are known."""
    tree = Tree()
    experts = next((part.experts for part in parts if part.experts), {})
    for part in parts:
        tree.silent |= _silent(part)
        landed = _landed(part, renamed)
        empty = {*part.unwritten, *part.filled, *part.partial}
        missing, quantized = _missed(part), _quantized(part)
        for module, leaves in _modules(part).items():
            for piece in _pieces(part, module, leaves, rows, experts):
                if name := _missed_name(piece, missing.get(module, ())):
                    tree.lookups.setdefault(piece.name, name)
                open_ones = {
                    leaf: p for leaf, p in piece.leaves.items() if p in empty and f"{piece.name}.{leaf}" not in landed
                }
                if part.role != "target":
                    if part.called.get(module, module) != module:
                        tree.veiled.add(piece.name)
                    last = module.rpartition(".")[2]
                    if last in SHARED and not any(one.isdigit() for one in module.split(".")):
                        if open_ones:
                            tree.shared[module] = last
                        continue
                if open_ones:
                    tree.lacking.setdefault(piece.name, tuple(open_ones))
                if not open_ones or ("weight" in piece.leaves and "weight" not in open_ones):
                    continue  # where the weight is, the module is found, whatever else is missing
                shapes = sorted(
                    (leaf, part.parameters[p][0])
                    for leaf, p in piece.leaves.items()
                    if leaf not in BESIDE and leaf not in WEIGHTS
                )
                size = piece.size if "weight" in piece.leaves else ()
                form = Asked(size, tuple(shapes), quantized.get(module))
                if piece.shards:
                    last = module.rpartition(".")[2]
                    row = last, tuple(one.rpartition(".")[2] for one in piece.shards)
                    tree.rows.update(dict.fromkeys(piece.shards, row))
                    if all(one in tree.forms for one in piece.shards):
                        tree.whole.setdefault(piece.name, (form, piece.shards))
                    continue
                tree.forms.setdefault(piece.name, form)
                tree.parameters.setdefault(piece.name, list(open_ones.values()))
    return tree


def _landed(part: Part, renamed: Iterable[Rule]) -> set[str]:
    """The tensors that reached a parameter, by every name that *renamed* gives them."""
    found = set(part.landed)
    for rule in renamed:
        found |= {rule.apply(name) for name in found}
    return found


def _modules(part: Part) -> dict[str, dict[str, tuple[int, ...]]]:
    held: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, (shape, _) in part.parameters.items():
        module, _, leaf = name.rpartition(".")
        held.setdefault(module, {})[leaf] = shape
    return held


def _pieces(
    part: Part, module: str, leaves: Mapping[str, tuple[int, ...]], rows: Rows, experts: Mapping[str, str]
) -> Iterator[_Piece]:
    """The modules of a checkpoint that fill *module* of the model."""
    name = _checkpoint_name(part, module)
    if any(leaf.startswith("w13_") for leaf in leaves):
        yield from _experts(part, module, name, leaves, part.experts or experts)
        return
    sizes = part.sizes.get(module, ())
    shards = _shards(module.rpartition(".")[2], len(sizes), part, rows)
    own = {leaf: f"{module}.{leaf}" for leaf in leaves}
    parent = name.rpartition(".")[0]
    if shards:
        # a shard of several parts, as q, k and v of a linear attention: how many rows it has is not told
        each = sizes if len(shards) == len(sizes) else [(0, sizes[0][1])] * len(shards)
        pieces = [
            _Piece(f"{parent}.{one}".lstrip("."), size, own, shard=True) for one, size in zip(shards, each, strict=True)
        ]
        yield from pieces
        if len(pieces) > 1:
            whole = sum(size[0] for size in sizes), sizes[0][1]
            yield _Piece(name, whole, own, tuple(piece.name for piece in pieces))
        return
    size: Size | None = leaves.get("weight", None) if not sizes else sizes[0]
    if len(sizes) > 1:
        size = (sum(one[0] for one in sizes), sizes[0][1])
    yield _Piece(name, size, own)


def _checkpoint_name(part: Part, module: str) -> str:
    name = part.called.get(module, module)
    # vLLM's draft models put mtp_block into the names themselves
    return name.replace(".mtp_block.", ".").removesuffix(".mtp_block")


def _shards(last: str, count: int, part: Part, rows: Rows) -> tuple[str, ...]:
    """What a checkpoint stores a fused layer called *last* of *count* shards as; empty where it is one."""
    if count < 2:
        own = tuple(part.packed.get(last, ()))
        return own if count == 1 == len(own) and own != (last,) else ()
    row = tuple(part.packed.get(last, ()))
    for held in (row, *rows.get(last, ())):
        if held and len(held) == count:
            return tuple(held)
    return row if 1 < len(row) < count else ()


def _experts(
    part: Part, module: str, name: str, leaves: Mapping[str, tuple[int, ...]], taken: Mapping[str, str]
) -> Iterator[_Piece]:
    base = name.removesuffix(".routed_experts")
    sizes = part.sizes.get(module, ())
    inner, outer = sizes if len(sizes) == 2 else (None, None)
    count = next(shape[0] for leaf, shape in leaves.items() if leaf.startswith("w13_"))
    for own, usual in EXPERTS:
        fused, size = ("w2_", outer) if own == "w2" else ("w13_", inner)
        held = {leaf.removeprefix(fused): f"{module}.{leaf}" for leaf in leaves if leaf.startswith(fused)}
        for number in range(count):
            yield _Piece(f"{base}.{number}.{taken.get(own, usual)}", size, held)


def _silent(part: Part) -> set[str]:
    """Description names whose absence upstream says nothing about."""
    frames = [frame for frame in part.frames if not frame.standin and not frame.error]
    return {name.removesuffix(".weight") for frame in frames for name in frame.missing}


def _missed(part: Part) -> dict[str, list[str]]:
    """Built module to the description names that it asked in vain, without the leaf."""
    found: dict[str, list[str]] = {}
    for frame in part.frames:
        if frame.module:
            names = [name.removesuffix(".weight") for name in (*frame.missing, *frame.defaulted)]
            found.setdefault(frame.module, []).extend(names)
    return found


def _quantized(part: Part) -> dict[str, bool]:
    """Built module to whether it is quantized, for those whose description was found."""
    frames = [frame for frame in part.frames if frame.module and frame.kind in ("linear", "moe", "embedding")]
    unsure = {frame.module for frame in frames if frame.missing or frame.defaulted or frame.error or frame.standin}
    return {frame.module: not frame.float_method for frame in frames if frame.module not in unsure}


def _missed_name(piece: _Piece, names: Collection[str]) -> str:
    """The one of *names* that *piece* is asked under: the last segment tells shards and experts apart.

    For an expert it may be of either convention: vllm-ascend 0.30 asks by the second where the first finds nothing.
    """
    last = piece.name.rpartition(".")[2]
    either = next((pair for pair in EXPERTS if last in pair and ".experts." in piece.name), (last,))
    for one in names:
        parent, _, asked = one.rpartition(".")
        if asked in either:
            return one
        if piece.shard and parent:  # upstream stops at the first shard that it does not find
            return f"{parent}.{last}"
    return ""


# --- may one be the other? ---------------------------------------------------------------------------------------------


def may_be(asked: Asked, stored: Stored, exactly: bool) -> bool:
    """May *stored* be what *asked* waits for? *exactly*: it also has the other leaves that are asked, and no more."""
    held = {leaf: (dtype, shape) for leaf, dtype, shape in stored.leaves}
    if asked.size == ():
        return _leaves_fit(asked, held, exactly)
    if held.keys().isdisjoint(WEIGHTS):
        return False
    dtype = next(held[leaf][0] for leaf in WEIGHTS if leaf in held)
    if asked.quantized is not None and asked.quantized != (dtype in QUANTIZED_DTYPES):
        return False
    if asked.size is not None and not any(_same(asked.size, one) for one in _sizes(held)):
        return False
    return not exactly or {leaf for leaf, _ in asked.leaves} == held.keys() - BESIDE - {*WEIGHTS}


def _leaves_fit(asked: Asked, held: Leaves, exactly: bool) -> bool:
    """A module without a weight: its leaves are what is known of it."""
    wanted = dict(asked.leaves)
    common = wanted.keys() & held.keys()
    if not common or any(_elements(wanted[leaf]) != _elements(held[leaf][1]) for leaf in common):
        return False
    return not exactly or wanted.keys() == held.keys()


def _elements(shape: Iterable[int]) -> int:
    count = 1
    for one in shape:
        count *= one
    return count


def _sizes(held: Leaves) -> tuple[Size, ...]:
    """The sizes in elements that the weight among *held* may have: some types hold two values in one stored.

    How many rows there are the scales beside it say. Nothing says it of int4 without a scale of each row.
    """
    dtype, shape = next(held[leaf] for leaf in WEIGHTS if leaf in held)
    if dtype not in QUANTIZED_DTYPES or len(shape) != 2:
        return (shape,)
    told = {held[leaf][1][0] for leaf in OF_ROWS if leaf in held and held[leaf][1] and held[leaf][1][0] > 1}
    rows = [one for one in (shape[0], 2 * shape[0]) if not told or one in told]
    columns = 2 * shape[1] if dtype in ("U8", "F4") else shape[1]
    return tuple((one, columns) for one in rows)


def _same(one: Size, other: Size) -> bool:
    """Are two sizes the same, whatever dimensions of one element they have? 0 stands for any number of rows."""
    if one and one[0] == 0:
        return one[1:] == other[1:]
    return [n for n in one if n != 1] == [n for n in other if n != 1]
