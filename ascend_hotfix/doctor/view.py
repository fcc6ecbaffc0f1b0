"""A checkpoint as the static checks look at it: tensors by module, schemes, and what is already known to be missing.

A tensor that one check has reported as absent is not reported again by the next: one cause, one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.doctor.checkpoint import Checkpoint, Tensor
from ascend_hotfix.doctor.findings import Collector

__all__ = ["TOWERS", "View", "is_draft", "layer_count", "view"]

TOWERS = frozenset({"visual", "vision", "vision_model", "vision_tower", "audio_tower", "talker", "code2wav", "encoder"})
"""Segments of names that are not the language model's."""

LOST = frozenset({"file-unreadable", "header-corrupt", "lfs-pointer", "shard-file-absent", "file-truncated"})
"""Findings after which the tensors of a file may be unknown."""


@dataclass
class View:
    """``modules``: module name to {leaf: tensor}. ``schemes``: tensor name to scheme, under the tensor's own name where
    the description calls it otherwise. ``gone``: names known to be missing; ``blind``: a file could not be read and no
    index says what is in it, so nothing can be called missing."""

    checkpoint: Checkpoint
    found: Collector
    modules: Mapping[str, Mapping[str, Tensor]]
    schemes: dict[str, str]
    gone: set[str] = field(default_factory=set)
    blind: bool = False
    _gone_prefixes: set[str] = field(default_factory=set)

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

    def draft(self, name: str) -> bool:
        return is_draft(name, layer_count(self.text_config))


def layer_count(config: Mapping[str, Any]) -> int:
    """Number of layers of the language model, 0 where the config does not say."""
    # LongCat counts attention blocks in num_hidden_layers, two to a layer
    count = config.get("num_layers") if str(config.get("model_type", "")).startswith("longcat") else None
    count = count or config.get("num_hidden_layers")
    return count if isinstance(count, int) else 0


def is_draft(name: str, layers: int) -> bool:
    """Does the tensor belong to the draft (MTP) layers: ``mtp`` in its name, or a layer beyond the model's last?"""
    segments = name.split(".")
    if "mtp" in segments:
        return True
    if not layers or not TOWERS.isdisjoint(segments) or "layers" not in segments[:-1]:
        return False
    number = segments[segments.index("layers") + 1]
    return number.isdecimal() and int(number) >= layers


def view(checkpoint: Checkpoint, found: Collector) -> View:
    """Group the tensors of *checkpoint* by module and note what damaged files have taken away."""
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        module, _, leaf = name.rpartition(".")
        modules.setdefault(module, {})[leaf] = tensor
    description = checkpoint.description
    schemes = dict(description.schemes) if description is not None else {}
    result = View(checkpoint, found, modules, schemes)
    lost = {f.place for f in checkpoint.findings if f.code in LOST}
    if lost and checkpoint.index is None:
        result.blind = True
    elif lost and checkpoint.index is not None:
        listed = checkpoint.index.weight_map.items()
        result.mark_gone(name for name, file in listed if file in lost and name not in checkpoint.tensors)
    return result
