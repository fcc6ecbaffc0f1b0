"""A checkpoint as the static checks look at it: tensors by module, schemes, and what is already known to be missing.

A tensor that one check has reported as absent is not reported again by the next: one cause, one finding.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ascend_hotfix.doctor.bounds import MOST, MOST_NAMED
from ascend_hotfix.doctor.checkpoint import Checkpoint, Tensor
from ascend_hotfix.doctor.drafts import is_of_draft
from ascend_hotfix.doctor.findings import Collector
from ascend_hotfix.doctor.schemes import Kind
from ascend_hotfix.names import number_of

__all__ = ["TOWERS", "WEIGHTS", "Experts", "Form", "View", "is_draft", "layer_count", "view"]

TOWERS = frozenset({"visual", "vision", "vision_model", "vision_tower", "audio_tower", "talker", "code2wav", "encoder"})
"""Segments of names that are not the language model's."""

WEIGHTS = ("weight", "weight_packed")
"""Leaves that hold the weight itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """How a module is stored: leaf, dtype, shape and scheme of each of its tensors. Thousands of experts share one, so
    forms are compared by identity."""

    tensors: tuple[tuple[str, str, tuple[int, ...], str | None], ...]


@dataclass
class Experts:
    """The experts of one layer: their numbers, and per part (``gate_proj``) how many are stored in which form."""

    numbers: set[int] = field(default_factory=set)
    forms: dict[str, Counter[Form]] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> dict[str, Counter[Kind]]:
        """Per tensor of an expert (``gate_proj.weight``) how many experts store it how."""
        kinds: dict[str, Counter[Kind]] = {}
        for part, forms in self.forms.items():
            for form, count in forms.items():
                for leaf, dtype, shape, _ in form.tensors:
                    kinds.setdefault(f"{part}.{leaf}" if part else leaf, Counter())[dtype, shape] += count
        return kinds

    @cached_property
    def schemes(self) -> Counter[str]:
        """How many weights have which scheme."""
        schemes: Counter[str] = Counter()
        for forms in self.forms.values():
            for form, count in forms.items():
                for leaf, _, _, scheme in form.tensors:
                    if leaf in WEIGHTS and scheme is not None:
                        schemes[scheme] += count
        return schemes


@dataclass
class View:
    """``schemes``: tensor name to scheme, under the tensor's own name where the description calls it otherwise.
    ``gone``: names known to be missing; ``blind``: a file could not be read and no index says what is in it, so nothing
    can be called missing. ``room``: how many more absent names may be gone through. What is grouped by module is made at
    its first use, and not before ``schemes`` is right."""

    checkpoint: Checkpoint
    found: Collector
    schemes: Mapping[str, str]
    gone: set[str] = field(default_factory=set)
    blind: bool = False
    room: int = MOST_NAMED
    _gone_prefixes: set[str] = field(default_factory=set)

    @cached_property
    def modules(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Module name to {leaf: tensor}."""
        modules: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self.checkpoint.tensors.items():
            module, _, leaf = name.rpartition(".")
            leaves = modules.get(module)
            if leaves is None:
                leaves = modules[module] = {}
            leaves[sys.intern(leaf)] = tensor
        return modules

    @cached_property
    def forms(self) -> Mapping[str, Form]:
        """Module name to how it is stored."""
        scheme_of = self.schemes.get
        known: dict[tuple[Any, ...], Form] = {}
        forms: dict[str, Form] = {}
        for module, leaves in self.modules.items():
            schemes = [scheme_of(f"{module}.{leaf}") for leaf in leaves]
            stored = (*leaves, *leaves.values(), *schemes)  # quicker than to take each tensor's file out of it
            form = known.get(stored)
            if form is None:
                alike = tuple((leaf, t.dtype, t.shape, s) for (leaf, t), s in zip(leaves.items(), schemes, strict=True))
                form = known[stored] = known.setdefault(alike, Form(alike))
            forms[module] = form
        return forms

    @cached_property
    def used(self) -> frozenset[str]:
        """The schemes of the weights."""
        return frozenset(scheme for name, scheme in self.schemes.items() if name.endswith(".weight"))

    @cached_property
    def _parted(self) -> tuple[list[str], dict[str, Experts]]:
        """Modules outside of numbered experts, and the experts by container."""
        outside: list[str] = []
        containers: dict[str, Experts] = {}
        for module, form in self.forms.items():
            container, found, rest = module.rpartition(".experts.")
            segment, _, part = rest.partition(".")
            number = number_of(segment) if found else None
            if number is None:
                outside.append(module)
                continue
            experts = containers.get(container)
            if experts is None:
                experts = containers[container] = Experts()
            experts.numbers.add(number)
            if part not in experts.forms:
                experts.forms[part] = Counter()
            experts.forms[part][form] += 1
        return outside, {f"{container}.experts": experts for container, experts in containers.items()}

    @property
    def outside(self) -> list[str]:
        """Modules that are no part of a numbered expert."""
        return self._parted[0]

    @property
    def experts(self) -> Mapping[str, Experts]:
        """Every ``*.experts`` container that numbers its experts."""
        return self._parted[1]

    @property
    def text_config(self) -> Mapping[str, Any]:
        return self.checkpoint.text_config

    def mark_gone(self, names: Iterable[str]) -> None:
        """Note names as reported; a later check does not report them again."""
        for name in names:
            self.gone.add(name)
            while name:
                name = name.rpartition(".")[0]
                if name in self._gone_prefixes:
                    break
                self._gone_prefixes.add(name)

    def may_miss(self, name: str) -> bool:
        """May *name*, a tensor or a module, be reported as missing?"""
        return not self.blind and name not in self.gone and name not in self._gone_prefixes

    def absent(self, stack: str, numbers: Set[int], expected: int) -> list[int]:
        """The numbers below *expected* that the list *stack* lacks and that may be reported, as long as there is room."""
        if not self.room or len(numbers) >= expected == max(numbers, default=-1) + 1:
            return []
        lacking = (n for n in range(min(expected, MOST)) if n not in numbers and self.may_miss(f"{stack}.{n}"))
        found = list(itertools.islice(lacking, self.room))
        self.room -= len(found)
        return found

    def draft(self, name: str) -> bool:
        return is_draft(name, layer_count(self.text_config))


def layer_count(config: Mapping[str, Any]) -> int:
    """Number of layers of the language model, 0 where the config does not say, or says what cannot be."""
    # LongCat counts attention blocks in num_hidden_layers, two to a layer
    count = config.get("num_layers") if str(config.get("model_type", "")).startswith("longcat") else None
    count = count or config.get("num_hidden_layers")
    return count if type(count) is int and 0 < count <= MOST else 0


def is_draft(name: str, layers: int) -> bool:
    """Does the tensor belong to the draft (MTP) layers: called so, or in a layer beyond the model's last?"""
    if is_of_draft(name):
        return True
    segments = name.split(".")
    if not layers or not TOWERS.isdisjoint(segments) or "layers" not in segments[:-1]:
        return False
    number = number_of(segments[segments.index("layers") + 1])
    return number is not None and number >= layers


def view(checkpoint: Checkpoint, found: Collector) -> View:
    """A view of *checkpoint* that knows what damaged files have taken away."""
    description = checkpoint.description
    result = View(checkpoint, found, description.schemes if description is not None else {})
    for index in checkpoint.indexes:
        result.mark_gone(name for name in index.outside if name not in checkpoint.tensors)
    result.mark_gone(checkpoint.unread)
    lost = {file for file in checkpoint.lost if file.endswith(".safetensors")}
    if lost and checkpoint.index is None:
        result.blind = True
    elif lost and checkpoint.index is not None:
        listed = checkpoint.index.weight_map.items()
        result.mark_gone(name for name, file in listed if file in lost and name not in checkpoint.tensors)
    return result
