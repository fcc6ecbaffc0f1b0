"""Runs inside an upstream environment: the reference kernels behind torch_npu's own op schemas."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _values(tensor: Tensor) -> list[Any]:
    values: list[Any] = tensor.tolist()
    return values


def quantize() -> dict[str, list[Any]]:
    x = torch.tensor([[-1.0, 0.25, 0.375, 100.0]])
    quantize = torch.ops.npu.npu_quantize
    per_tensor, offset = torch.tensor([0.25]), torch.tensor([3.0])
    values, scales = torch.ops.npu.npu_dynamic_quant(torch.tensor([[-2.0, 1.0, 0.5], [0.0, 0.0, 0.0]]))
    return {
        "divided": _values(quantize(x, per_tensor, offset, torch.int8, -1, True)),
        "multiplied": _values(quantize(x, 1 / per_tensor, offset, torch.int8, -1, False)),
        "per token": _values(values),
        "scales": _values(scales),
    }


def quant_matmul() -> dict[str, list[Any]]:
    x = torch.tensor([[1, -2], [100, 100]], dtype=torch.int8)
    weight = torch.tensor([[3, 127], [5, 127]], dtype=torch.int8)
    scale, bias = torch.tensor([0.5, 0.25]), torch.tensor([10, -20], dtype=torch.int32)
    multiply = torch.ops.npu.npu_quant_matmul
    token_scale = torch.tensor([2.0, 1.0])
    float_bias = torch.tensor([1.0, 0.0])
    return {
        "static": _values(multiply(x, weight, scale, bias=bias, output_dtype=torch.float32)),
        "dynamic": _values(
            multiply(x, weight, scale, pertoken_scale=token_scale, bias=float_bias, output_dtype=torch.float32)
        ),
    }


def routing() -> dict[str, list[Any]]:
    """Two tokens, two of three experts each: what leaves the sorting, and what comes back from its inverse."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    experts = torch.tensor([[2, 0], [0, 1]], dtype=torch.int32)
    rows, index, counts, _ = torch.ops.npu.npu_moe_init_routing_v2(
        x,
        experts,
        active_num=4,
        expert_num=3,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[0, 3],
    )
    back = torch.ops.npu.npu_moe_token_unpermute(rows, index, torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    return {"rows": _values(rows), "index": _values(index), "counts": _values(counts), "back": _values(back)}


def refusals() -> dict[str, str]:
    """The message of each call that no reference kernel defines."""
    x = torch.ones(2, 4)
    calls = {
        "unknown argument": lambda: torch.ops.npu.npu_dynamic_quant(x, dst_type_max=7.0),
        "unknown value": lambda: torch.ops.npu.npu_dynamic_quant(x, quant_mode="pertensor"),
        "no kernel": lambda: torch.ops.npu.npu_anchor_response_flags(x, [2, 2], [1, 1], 1),
    }
    messages = {}
    for name, call in calls.items():
        try:
            messages[name] = f"returned {call()}"
        except NotImplementedError as error:
            messages[name] = str(error)
    return messages
