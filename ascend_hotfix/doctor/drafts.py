"""Which tensors belong to the draft (MTP layers), told by their names and the config.

Three ways are in use. DeepSeek, GLM and Kimi number the draft's layers on from the target's; Qwen3.5, LongCat, DeepSeek-V4
and MiMo-V2 nest them under ``mtp``; MiMo (``model.mtp_layers.0``) and Ernie (``model.mtp_block.0``) keep lists of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ascend_hotfix.doctor.bounds import MOST

__all__ = ["IN_LIST", "draft_part", "draft_tensors", "is_of_draft"]

IN_LIST = re.compile(r"(.*?)\.([0-9]{1,9})\.")
"""A name in a numbered list: what the list is called, and the first number."""
_WORDS = r"(?:mtp|nextn|draft)"
_OF_DRAFT = re.compile(rf"(?:^|\.)(?:{_WORDS}\.|(?:[^.]*_)?{_WORDS}[^.]*\.[0-9]+\.)")
"""A part called so, or a numbered list with a name that has a word for it, such as ``mtp_layers``."""


def is_of_draft(name: str) -> bool:
    """Does *name* itself say that it is the draft's?

    >>> [is_of_draft(f"model.{part}.proj.weight") for part in ("mtp", "mtp_layers.0", "nextn_predict_layers.1")]
    [True, True, True]
    >>> [is_of_draft(f"model.{part}.proj.weight") for part in ("layers.61", "layers.61.mtp_block", "mtp_norm")]
    [False, False, False]
    """
    # most names have none of the words, and a search for them takes a tenth of the time
    return ("mtp" in name or "nextn" in name or "draft" in name) and _OF_DRAFT.search(name) is not None


def draft_part(name: str) -> str:
    """What the names of the draft that *name* is of begin with.

    >>> [draft_part(name) for name in ("model.mtp.norm.weight", "mtp_layers.0.proj.weight", "model.layers.61.proj.weight")]
    ['model.mtp', 'mtp_layers.0', 'model.layers.61']
    """
    if found := _OF_DRAFT.search(name):
        return name[: found.end() - 1]
    in_list = IN_LIST.match(name)
    return in_list[0][:-1] if in_list else name


def _layers(config: Mapping[str, Any]) -> int:
    """How many layers the target has: the most that any part but a vision tower says."""
    stack: list[Mapping[str, Any]] = [config]
    counts = [0]
    while stack:
        current = stack.pop()
        for key in ("num_hidden_layers", "num_layers"):
            if type(current.get(key)) is int:  # true is none
                counts.append(current[key])
        stack += [v for k, v in current.items() if isinstance(v, dict) and k.endswith("config") and "vision" not in k]
    return max(counts)


def draft_tensors(names: Iterable[str], config: Mapping[str, Any]) -> set[str]:
    """The tensors of draft layers: numbered from ``num_hidden_layers`` on, or in a part that is called the draft's."""
    layers = min(_layers(config), MOST)
    found = set()
    numbered: dict[str, dict[int, list[str]]] = {}
    front, layer = "\0", list[str]()  # the names of a layer mostly follow each other
    for name in names:
        if is_of_draft(name):
            found.add(name)
        elif name.startswith(front):
            layer.append(name)
        elif in_list := IN_LIST.match(name):
            front, layer = in_list[0], numbered.setdefault(in_list[1], {}).setdefault(int(in_list[2]), [])
            layer.append(name)
    # Only a list that has all of the target's layers can be numbered on; it need not be called ``layers``.
    whole = [
        held
        for head, held in numbered.items()
        if layers and "vis" not in head and "audio" not in head and held.keys() >= set(range(layers))
    ]
    decoder = max(whole, key=lambda held: sum(map(len, held.values())), default={})
    for number, held in decoder.items():
        if number >= layers:
            found.update(held)
    return found
