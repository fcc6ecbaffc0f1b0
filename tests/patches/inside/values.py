"""What a parameter must hold, said by the names of the tensors that went into it, and compared value by value.

Nothing here knows a loader: the order of fused shards, the place of an expert and the meaning of a scale are stated anew,
as ModelSlim's export and vLLM's layers have them with one rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

__all__ = ["differing", "expected"]

SHARDS = (
    ("q_proj", "k_proj", "v_proj"),
    ("q_proj", "k_proj", "k_proj"),  # Gemma4 where keys are values
    ("q", "k", "v"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
    ("in_proj_qkvz", "in_proj_ba"),
    ("wk", "weights_proj"),
    ("wq_a", "wkv"),
    ("wkv", "wgate"),
)
"""Fused modules: their shards in the order in which they lie in the fused weight."""

VOCABULARIES = ("embed_tokens", "embed", "word_embeddings", "lm_head", "head")
EXPERT = re.compile(r"\.experts\.(\d+)\.")


def differing(
    parameters: Mapping[str, torch.Tensor],
    landed: Mapping[str, Iterable[str]],
    tensors: Mapping[str, torch.Tensor],
) -> list[str]:
    """The parameters that do not hold what their tensors say, each with the reason. *landed*: parameter -> names of
    the checkpoint tensors that went into it.
    """
    wrong = []
    for name, sources in landed.items():
        parameter = parameters[name].detach()
        held = {one: tensors[one] for one in sources}
        try:
            answers = expected(held, parameter)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        if not any(_same(parameter, wanted) for wanted in answers):
            wrong.append(f"{name}: other values than those of {', '.join(sorted(held)[:3])}")
    return wrong


def _same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if wanted.shape != found.shape:
        return False
    wanted = wanted.to(found.dtype)
    if found.dtype.itemsize == 1:  # some of the 8-bit types cannot be compared
        return torch.equal(found.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))
    return torch.equal(found, wanted)


def expected(held: Mapping[str, torch.Tensor], parameter: torch.Tensor) -> list[torch.Tensor]:
    """What *parameter* may be, made of the tensors *held*: one value, or one of several where each tensor fills it all.
    Raises ValueError where the names do not say it.
    """
    if any(EXPERT.search(name) for name in held):
        return [_experts(held, parameter)]
    parts = _modules(held)
    if len(parts) > 1 and all(one.numel() == parameter.numel() for one in parts.values()):
        return [one.reshape(parameter.shape) for one in parts.values()]
    whole = _fused(parts)
    if all(one.rpartition(".")[2] in VOCABULARIES for one in parts) and len(whole) < len(parameter):
        whole = torch.cat((whole.to(parameter.dtype), parameter[len(whole) :]))  # padded rows hold anything
    return [_fitted(whole, parameter)]


def _experts(held: Mapping[str, torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """Experts by number in the first dimension, each fused as a layer of its own."""
    groups: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in held.items():
        number = EXPERT.search(name)
        if number is None:
            raise ValueError(f"{name} among experts")
        groups.setdefault(int(number[1]), {})[name] = tensor
    if sorted(groups) != list(range(len(parameter))):
        raise ValueError(f"experts {sorted(groups)} in a parameter for {len(parameter)}")
    return torch.stack([_fitted(_fused(_modules(groups[n])), parameter[n]) for n in sorted(groups)])


def _modules(held: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Module -> its tensor."""
    modules: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in held.items():
        module, _, leaf = name.rpartition(".")
        modules.setdefault(module, {})[leaf] = tensor
    return {module: _one(leaves) for module, leaves in modules.items()}


def _fused(modules: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensors of *modules* in the order of their shards."""
    if len(modules) == 1:
        return next(iter(modules.values()))
    parts = {module.rpartition(".")[2]: tensor for module, tensor in modules.items()}
    order = next((row for row in SHARDS if set(row) == set(parts)), None)
    if order is None or len(parts) != len(modules):
        raise ValueError(f"no order is known for {', '.join(sorted(modules))}")
    return torch.cat([torch.atleast_1d(parts[shard]) for shard in order])


def _fitted(whole: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """*whole* in the shape of *parameter*, where it has as many elements, or one value for all."""
    if parameter.dim() == 3 and whole.dim() == 2 and parameter.shape[1] == whole.shape[1]:
        return whole.reshape(len(parameter), -1, whole.shape[1]).transpose(1, 2)  # DeepSeek-V4's wo_a: groups, in, out
    if whole.numel() == parameter.numel():
        return whole.reshape(parameter.shape)
    if parameter.numel() == 1 and len(whole.unique()) == 1:
        return whole.flatten()[:1].reshape(parameter.shape)  # one value for all shards
    return whole


def _one(leaves: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor of one module; several are the parts of a dequantized weight."""
    if len(leaves) == 1:
        return next(iter(leaves.values()))
    if {"weight", "weight_scale"} <= set(leaves) <= {"weight", "weight_scale", "weight_offset"}:
        offset = leaves.get("weight_offset", torch.zeros(1))
        return (leaves["weight"].float() - offset.float()) * leaves["weight_scale"].float()
    raise ValueError(f"made of {', '.join(sorted(leaves))}")
