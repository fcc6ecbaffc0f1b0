"""Controls of :mod:`inside.values`: parameters that are right, and the same ones with a mistake in them."""

from __future__ import annotations

import torch

from inside.values import differing

__all__ = ["mistakes"]


def mistakes() -> dict[str, list[str]]:
    """Mistake -> what is said of it; ``none`` for parameters as they must be."""
    generator = torch.Generator().manual_seed(1)

    def made(*shape: int) -> torch.Tensor:
        return torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)

    tensors = {f"mlp.experts.{e}.{n}_proj.weight": made(4, 3) for e in range(3) for n in ("gate", "up", "down")}
    tensors |= {f"attn.{n}_proj.weight": made(rows, 3) for n, rows in (("q", 4), ("k", 2), ("v", 2))}
    tensors |= {"lm_head.weight": torch.rand(5, 3, generator=generator)}
    tensors |= {"gate.weight": made(4, 3), "gate.weight_scale": torch.rand(4, 1, generator=generator)}

    def parameters() -> dict[str, torch.Tensor]:
        halves = [[tensors[f"mlp.experts.{e}.{n}_proj.weight"] for n in ("gate", "up")] for e in range(3)]
        return {
            "w13": torch.stack([torch.cat(one) for one in halves]),
            "qkv": torch.cat([tensors[f"attn.{n}_proj.weight"] for n in "qkv"]),
            "head": torch.cat((tensors["lm_head.weight"], torch.full((3, 3), 7.0))),
            "gate": tensors["gate.weight"].float() * tensors["gate.weight_scale"],
        }

    landed = {
        "w13": [one for one in tensors if one.startswith("mlp.") and "down" not in one],
        "qkv": [one for one in tensors if one.startswith("attn.")],
        "head": ["lm_head.weight"],
        "gate": ["gate.weight", "gate.weight_scale"],
    }
    right = parameters()
    swapped = right["w13"].view(3, 2, 4, 3).flip(1).reshape(3, 8, 3)
    unscaled = tensors["gate.weight"].float()
    wrong = {
        "none": right,
        "gate and up swapped": right | {"w13": swapped},
        "experts permuted": right | {"w13": right["w13"].roll(1, 0)},
        "k and v swapped": right | {"qkv": torch.cat((right["qkv"][:4], right["qkv"][6:], right["qkv"][4:6]))},
        "one value off": right | {"qkv": right["qkv"] + torch.eye(8, 3, dtype=torch.int8)},
        "scale left out": right | {"gate": unscaled},
        "head shifted": right | {"head": right["head"].roll(1, 0)},
    }
    answers = {name: differing(held, landed, tensors) for name, held in wrong.items()}
    answers["an expert missing"] = differing(right, {"w13": landed["w13"][2:]}, tensors)
    answers["a shard missing"] = differing(right, {"qkv": landed["qkv"][:2]}, tensors)
    return answers
