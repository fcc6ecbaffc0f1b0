"""Where in the model tensors without a place would belong: what is not filled, and the names that it may be filled by.

Tensors that reached no parameter are sorted by what the names say: called right and refused all the same, experts of the
other convention, modules or tensors that a rule renames, and the rest. The findings and the suggestion both go by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ascend_hotfix.doctor.findings import pattern
from ascend_hotfix.doctor.rehearsal import Part, fused_rows
from ascend_hotfix.doctor.suggest.words import Alignment, align, alike
from ascend_hotfix.names import Exact, Prefix, Rule, Segments, Suffix

__all__ = [
    "EXPERT_NAMES",
    "Way",
    "Whereabouts",
    "any_expert",
    "claimed",
    "expert_rules",
    "of_tensors",
    "wanted",
    "ways",
    "whereabouts",
]

EXPERT_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""The two conventions for the projections of an expert, in the same order. The second are vLLM's own names for them."""
_EXPERT = re.compile(r"\.experts\.\d+\.")
_NUMBERS = re.compile(r"\.(\d+)(?=\.)")
MOST_TENSORS = 64
"""So many tensors of parameters of other layers tell what a checkpoint calls them; those of one parameter in any case."""
Shape = tuple[int | None, ...] | None
"""A shape as far as it can be told: the rows of one shard of a fused parameter cannot."""


Way = dict[str, Shape]
"""Tensors of the checkpoint that would fill one parameter together."""


def ways(part: Part, tensors: Mapping[str, Any]) -> dict[str, list[Way]]:
    """Each parameter that is not filled, and in which ways a checkpoint may name what fills it."""
    rows, fronts = fused_rows(), _fronts(part)
    siblings: dict[str, dict[str, list[str]]] = {}
    for tensor, parameters in part.landed.items():
        for parameter in parameters:
            siblings.setdefault(pattern(parameter), {}).setdefault(parameter, []).append(tensor)
    found: dict[str, list[Way]] = {}
    for name in (*part.unwritten, *part.filled, *part.partial):
        shape = part.parameters[name][0]
        like = siblings.get(pattern(name), {})
        each = max(map(len, like.values()), default=1)  # whole, as a part would pass for all that is needed
        some = islice(like.items(), max(1, MOST_TENSORS // each))
        found[name] = [_as_sibling(part, tensors, one, held, name) for one, held in some]
        found[name] += _by_name(part, _in_front(name, fronts), shape, rows)
    return found


def _as_sibling(part: Part, tensors: Mapping[str, Any], other: str, held: Iterable[str], name: str) -> Way:
    """The names that the tensors *held* of parameter *other* have where the parameter is *name*."""
    shape, _ = part.parameters[name]
    same = other in part.parameters and part.parameters[other][0] == shape  # it may be a buffer
    moved = ((tensor, _renumbered(tensor, other, name)) for tensor in held)
    return {new: tuple(tensors[old].shape) if same and old in tensors else None for old, new in moved if new}


def _by_name(part: Part, name: str, shape: tuple[int, ...], rows: Mapping[str, list[tuple[str, ...]]]) -> Iterator[Way]:
    """What parameter *name*, as the checkpoint would call it, is filled by: itself, its shards, or its experts."""
    # vLLM's draft models put mtp_block into the names themselves
    name = name.replace(".mtp_block.", ".")
    module, _, leaf = name.rpartition(".")
    base = module.removesuffix(".routed_experts")
    if base.rpartition(".")[2] == "experts" and leaf.startswith(("w13_", "w2_")):
        yield from _of_experts(base, leaf, shape, part.experts)
        return
    yield {name: shape}
    parent, _, last = module.rpartition(".")
    for shards in (part.packed.get(last), *rows.get(last, [])):
        if shards:
            yield {f"{parent}.{shard}.{leaf}": (None, *shape[1:]) for shard in shards}


def wanted(found: Mapping[str, list[Way]], landed: Collection[str]) -> Way:
    """All names in the ways *found* under which no tensor has *landed*."""
    merged: Way = {}
    for held in found.values():
        for way in held:
            for name, shape in way.items():
                merged.setdefault(name, shape)
    return {name: shape for name, shape in merged.items() if name not in landed}


def _of_experts(base: str, leaf: str, shape: tuple[int, ...], taken: Mapping[str, str]) -> Iterator[Way]:
    """The tensors of each expert in the fused parameter *leaf* of *base*; a matrix is one, packed or turned as it may be."""
    first, rest = leaf.split("_", 1)
    each: Shape = (None, None) if len(shape) == 3 else None
    told = [tuple(taken[shard] for shard in EXPERT_NAMES[1])] if {*EXPERT_NAMES[1]} <= taken.keys() else EXPERT_NAMES
    for gate, up, down in told:
        held = (gate, up) if first == "w13" else (down,)
        yield {f"{base}.{expert}.{one}.{rest}": each for expert in range(shape[0]) for one in held}


def expert_rules(names: Iterable[str], wanted: Collection[str]) -> list[Rule]:
    """Rules for projections of experts that are named by the other convention, all three of them."""
    for old, new in (EXPERT_NAMES, EXPERT_NAMES[::-1]):
        rules = [Segments(f"experts.*.{a}", f"experts.*.{b}") for a, b in zip(old, new, strict=True)]
        hit = [any(rule.apply(name) != name and rule.apply(name) in wanted for name in names) for rule in rules]
        if all(hit):
            return list(rules)
    return []


def _fronts(part: Part) -> dict[str, str]:
    """How the model's own mapper begins names: what parameters begin with, to what their tensors begin with."""
    fronts: dict[str, str] = {}
    for tensor, parameters in part.landed.items():
        if len(parameters) > 1 or tensor == parameters[0]:
            continue
        one, other, last = tensor.split("."), parameters[0].split("."), ""
        while one and other and one[-1] == other[-1]:
            last = one.pop()
            other.pop()
        if not one or not other:  # anchored by one segment more
            one, other = [*one, last], [last]
        if not any(segment.isdigit() for segment in (*one, *other)):
            fronts.setdefault(".".join(other), ".".join(one))
    return fronts


def _in_front(name: str, fronts: Mapping[str, str]) -> str:
    """The checkpoint's name of parameter *name*, as far as *fronts* tell."""
    held = [front for front in fronts if name.startswith(f"{front}.")]
    if not held:
        return name
    front = max(held, key=len)
    return f"{fronts[front]}{name[len(front) :]}".lstrip(".")


def _renumbered(tensor: str, parameter: str, name: str) -> str:
    """The name that the sibling *tensor* of *parameter* has where the parameter is *name*."""
    old = [p for p in parameter.split(".") if p.isdigit()]
    new = [p for p in name.split(".") if p.isdigit()]
    segments, position = tensor.split("."), 0
    for index, segment in enumerate(segments):
        if segment.isdigit() and position < len(old) and segment == old[position]:
            segments[index] = new[position]
            position += 1
    return ".".join(segments) if position == len(old) else ""


# --- tensors without a place ------------------------------------------------------------------------------------------


@dataclass
class Whereabouts:
    """Tensors without a place, sorted, and what they would fill.

    ``right``: called like what is missing, and refused for their shape or for what the loader makes of the name;
    ``experts``: rules for the other convention of experts; ``modules`` and ``tensors``: what renames modules of tensors, and
    single tensors. ``waiting``: the modules that wait for a tensor, each with its leaves; ``held``: those of the tensors.
    """

    wanted: Way
    sizes: Mapping[str, Any]
    right: list[str] = field(default_factory=list)
    experts: list[Rule] = field(default_factory=list)
    modules: Alignment = field(default_factory=Alignment)
    tensors: Alignment = field(default_factory=Alignment)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)

    def fits(self, one: str, other: str) -> bool:
        """May the tensors of module *one* be those that *other* waits for, by leaf and shape?"""
        common = self.held[one] & self.waiting.get(other, set())
        return bool(common) and all(
            _same_size(self.sizes.get(f"{one}.{leaf}"), self.wanted[f"{other}.{leaf}"]) for leaf in common
        )


def whereabouts(homeless: Iterable[str], names: Way, landed: Iterable[str], sizes: Mapping[str, Any]) -> Whereabouts:
    """Sort the *homeless* tensors by the *names* that are wanted. *sizes*: anything with a shape, by tensor."""
    found = Whereabouts(names, sizes)
    found.right = [tensor for tensor in homeless if tensor in names]
    strange = [tensor for tensor in homeless if tensor not in names]
    found.experts = expert_rules(strange, names)
    strange = [tensor for tensor in strange if not any(rule.apply(tensor) != tensor for rule in found.experts)]
    found.waiting, found.held = _by_module(names), _by_module(strange)
    taken = {name.rpartition(".")[0] for name in landed} - found.waiting.keys()
    modules = found.modules = align(list(found.held), list(found.waiting), taken=taken, fits=found.fits)
    moved = {module for module in modules.unexplained if any(rule.apply(module) != module for rule in modules.rules)}
    rest = [name for name in strange if name.rpartition(".")[0] in {*modules.unexplained} - moved]
    found.tensors = align(rest, list(names), fits=lambda a, b: _same_size(sizes.get(a), names[b]) and _same_words(a, b))
    return found


def claimed(homeless: Collection[str], names: Way, landed: Iterable[str], sizes: Mapping[str, Any]) -> set[str]:
    """Those of the wanted *names* that a *homeless* tensor would have: its own, by a rule, or as the one that fits beside it."""
    found = whereabouts(*_few_experts(homeless, names), landed, sizes)
    rules = [*found.experts, *map(of_tensors, found.modules.rules), *found.tensors.rules]
    rules += [of_tensors(rule) for choice in found.modules.choices for rule in choice.rules]
    rules += [rule for choice in found.tensors.choices for rule in choice.rules]
    claims = {new for tensor in homeless for rule in rules if (new := rule.apply(tensor)) in names}
    beside: dict[str, list[str]] = {}
    for module in found.waiting:
        beside.setdefault(module.rpartition(".")[0], []).append(module)
    for module in found.modules.unexplained:
        for other in beside.get(module.rpartition(".")[0], []):
            if found.fits(module, other):
                claims |= {f"{other}.{leaf}" for leaf in found.held[module] & found.waiting[other]}
    return claims | (names.keys() & {*homeless})


def _few_experts(homeless: Iterable[str], names: Way) -> tuple[list[str], Way]:
    """Of what a layer numbers and names alike, its experts, one: hundreds of each tell no more and take minutes."""
    few: dict[tuple[str, ...], str] = {}
    for tensor in homeless:
        few.setdefault((*_NUMBERS.findall(tensor)[:1], pattern(tensor)), tensor)
    numbers = {number for tensor in few.values() for number in _NUMBERS.findall(tensor)[1:]}
    kept = {name: shape for name, shape in names.items() if numbers.issuperset(_NUMBERS.findall(name)[1:])}
    return list(few.values()), kept


def any_expert(name: str) -> str:
    """*name* as that of every expert of its layer."""
    return _EXPERT.sub(".experts.*.", name)


def of_tensors(rule: Rule) -> Rule:
    """*rule* about modules as one about their tensors, whose names go on."""
    if isinstance(rule, Suffix):
        return Segments(rule.old, rule.new)
    return Prefix(rule.old, rule.new) if isinstance(rule, Exact) else rule


def _by_module(names: Iterable[str]) -> dict[str, set[str]]:
    """The leaves of *names* by their module."""
    found: dict[str, set[str]] = {}
    for name in names:
        module, _, leaf = name.rpartition(".")
        found.setdefault(module, set()).add(leaf)
    return found


def _same_words(one: str, other: str) -> bool:
    return alike(one.split("."), other.split("."))


def _same_size(tensor: Any, shape: Shape) -> bool:
    """May *tensor* fill what has *shape*, as far as that can be told?"""
    if tensor is None or shape is None:
        return tensor is not None
    held = tuple(tensor.shape)
    return len(held) == len(shape) and all(want in (None, size) for size, want in zip(held, shape, strict=True))
