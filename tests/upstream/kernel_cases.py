"""Runs inside an upstream environment: the reference kernels behind torch_npu's own op schemas."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ascend_hotfix.sim import lab


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


def microscaling() -> dict[str, Any]:
    """Blocks of 32 in E4M3 and E2M1, and a product of each with a weight of ones."""
    import torch_npu

    x = torch.zeros(1, 64)
    x[0, :6] = torch.tensor([1.0, -6.5, 0.3, 0.25, -5.0, 0.75])
    x[0, 32] = 2.0**-20
    quantize = torch_npu.npu_dynamic_mx_quant
    eight, scales = quantize(x, dst_type=torch.float8_e4m3fn)
    to_even, _ = quantize(x, dst_type=torch_npu.float4_e2m1fn_x2)
    away, fours = quantize(x, dst_type=torch_npu.float4_e2m1fn_x2, round_mode="round")
    ones, unit = torch.ones(64, 2).to(torch.float8_e4m3fn), torch.full((1, 2, 2), 127, dtype=torch.uint8)
    unit[0, 1] = 128  # the second column counts twice
    e8m0 = dict.fromkeys(("scale_dtype", "pertoken_scale_dtype"), torch_npu.float8_e8m0fnu)
    product = torch_npu.npu_quant_matmul(
        eight, ones, unit, pertoken_scale=scales, output_dtype=torch.float32, group_sizes=[1, 1, 32], **e8m0
    )
    e2m1 = dict.fromkeys(("x1_dtype", "x2_dtype"), torch_npu.float4_e2m1fn_x2)
    packed_ones = torch.full((32, 2), 0x22, dtype=torch.uint8)
    from_fours = torch_npu.npu_quant_matmul(
        away,
        packed_ones,
        unit,
        pertoken_scale=fours,
        output_dtype=torch.float32,
        group_sizes=[1, 1, 32],
        **e8m0,
        **e2m1,
    )
    return {
        "e4m3": _values(eight.float()[0, [0, 1, 2, 4, 32]]),
        "scales": _values(scales.view(torch.uint8)),
        "even": _values(to_even.view(torch.uint8)[0, :3]),
        "away": _values(away.view(torch.uint8)[0, :3]),
        "four scales": _values(fours.view(torch.uint8)),
        "product": _values(product),
        "product of fours": _values(from_fours),
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
    lab.apply_upstream_patches()
    x = torch.ones(2, 4)
    calls = {
        "unknown argument": lambda: torch.ops.npu.npu_dynamic_quant(x, dst_type_max=7.0),
        "unknown value": lambda: torch.ops.npu.npu_dynamic_quant(x, quant_mode="pertensor"),
        "no kernel": lambda: torch.ops.npu.npu_anchor_response_flags(x, [2, 2], [1, 1], 1),
        "no kernel, a topic": lambda: torch.ops.npu.npu_layer_norm_eval(x, [4]),
        "not defined": lambda: torch.ops._C_ascend.no_such_rope(x),
    }
    messages = {}
    for name, call in calls.items():
        try:
            messages[name] = f"returned {call()}"
        except (NotImplementedError, AttributeError) as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages
