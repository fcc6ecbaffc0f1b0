"""Made-up checkpoints: names and shapes of a model's tensors from tests/patches/shapes, schemes as a case wants them.

A file of shapes holds ``source`` (where the names come from), ``config`` and ``tensors`` (name -> shape).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

__all__ = ["shaped"]

SHAPES = Path(__file__).resolve().parents[1] / "shapes"
Made = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def shaped(name: str, quantized: Any) -> Made:
    """Config, tensors and description of ``shapes/name.json``; *quantized* are pairs of a pattern of weights and a scheme."""
    read = json.loads((SHAPES / f"{name}.json").read_text(encoding="utf-8"))
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, Any] = {}
    described: dict[str, Any] = {"model_quant_type": quantized[0][1], "version": "1.0.0"} if quantized else {}
    for tensor, shape in read["tensors"].items():
        scheme = next((one for pattern, one in quantized if re.search(pattern, tensor)), "FLOAT")
        made = _quantized if scheme != "FLOAT" else _plain
        for key, value in made(tensor, shape, scheme, generator):
            tensors[key] = value
            described[key] = scheme
    return read["config"], tensors, described


def _plain(name: str, shape: list[int], scheme: str, generator: Any) -> Any:
    dtype = torch.float32 if "bias" in name and ("expert_bias" in name or "e_score" in name) else torch.bfloat16
    yield name, (torch.randn(shape, generator=generator) * 0.05).to(dtype)


def _quantized(name: str, shape: list[int], scheme: str, generator: Any) -> Any:
    """What ModelSlim writes for W8A8_DYNAMIC and, in its older form, for static W8A8."""
    stem, rows = name.removesuffix("weight"), shape[0]
    scale = torch.rand((rows, 1), generator=generator) * 0.01 + 0.001
    yield name, torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    yield stem + "weight_scale", scale.to(torch.bfloat16)
    yield stem + "weight_offset", torch.zeros((rows, 1), dtype=torch.bfloat16)
    if scheme == "W8A8":
        yield stem + "input_scale", torch.full((1,), 0.02, dtype=torch.bfloat16)
        yield stem + "input_offset", torch.zeros((1,), dtype=torch.bfloat16)
        yield stem + "quant_bias", torch.randint(-50, 50, (rows,), generator=generator, dtype=torch.int32)
        yield stem + "deq_scale", scale.flatten() * 0.02
