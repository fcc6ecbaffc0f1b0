"""Quantized matrix products, dense and grouped by expert."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ascend_hotfix.sim.kernels import dtypes
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = ["group_bounds", "grouped_product", "npu_grouped_matmul", "npu_quant_matmul"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@kernel("npu::npu_quant_matmul")
def npu_quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: int | None = None,
) -> torch.Tensor:
    """``(x1 @ x2 + bias_int32) * scale * pertoken_scale + bias_float``, the product in int32.

    Shapes: x1 int8 ``[..., M, K]``, x2 int8 ``[K, N]``, scale ``[1]`` or ``[N]``, pertoken_scale ``[M]``, bias ``[N]``: an int32
    bias is added before the scales, a float bias after them. The result is fp16, bf16 or fp32, or the int32 sum itself.
    Definition: ``torch_npu.npu_quant_matmul``; ``aclnnQuantMatmulV4``.
    """
    op = "npu::npu_quant_matmul"
    result = _dtype(op, output_dtype, torch.int8)
    for name, operand in (("x1", x1), ("x2", x2)):
        if operand.dtype is not torch.int8:
            raise unsupported(op, name, operand)
    if scale.dtype not in _FLOATS:
        raise unsupported(op, "scale", scale)
    total = x1.double() @ x2.double()
    if bias is not None and bias.dtype is torch.int32:
        total = total + bias.double()
    if result is torch.int32:
        return total.to(torch.int32)
    if result not in _FLOATS:
        raise unsupported(op, "output_dtype", output_dtype)
    value = total * scale.double()
    if pertoken_scale is not None:
        value = value * pertoken_scale.double().unsqueeze(-1)
    if bias is not None and bias.dtype is not torch.int32:
        value = value + bias.double()
    return value.to(result)


def _dtype(op: str, value: int | None, default: torch.dtype) -> torch.dtype:
    found = dtypes.output_dtype(value, default)
    if found is None:
        raise unsupported(op, "output_dtype", value)
    return found


def group_bounds(op: str, group_list: torch.Tensor, group_list_type: int | None) -> list[int]:
    """Row bounds of the experts, starting with 0: ``group_list`` holds running sums (type 0) or counts (type 1)."""
    if group_list_type not in (0, 1):
        raise unsupported(op, "group_list_type", group_list_type)
    ends = group_list.long().cumsum(0) if group_list_type == 1 else group_list.long()
    return [0, *ends.tolist()]


def per_expert(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor for each expert, from a list of them or from one stacked tensor."""
    return list(tensors) if len(tensors) > 1 else list(tensors[0].unbind(0))


def grouped_product(
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    bounds: Sequence[int],
    scale: Sequence[torch.Tensor] | None = None,
    token_scale: torch.Tensor | None = None,
    bias: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """float64 ``(x[rows of e] @ weight[e]) * scale[e] * token_scale + bias[e]`` for each expert e; rows behind the last bound are 0."""
    out = torch.zeros(len(x), weight[0].shape[-1], dtype=torch.float64)
    for expert, (start, end) in enumerate(pairwise(bounds)):
        value = x[start:end].double() @ weight[expert].double()
        if scale is not None:
            value = value * scale[expert].double()
        if token_scale is not None:
            value = value * token_scale[start:end].double().reshape(-1, 1)
        if bias is not None:
            value = value + bias[expert].double()
        out[start:end] = value
    return out


@kernel("npu::npu_grouped_matmul")
def npu_grouped_matmul(
    x: Sequence[torch.Tensor],
    weight: Sequence[torch.Tensor],
    bias: Sequence[torch.Tensor] | None = None,
    scale: Sequence[torch.Tensor] | None = None,
    per_token_scale: Sequence[torch.Tensor] | None = None,
    group_list: torch.Tensor | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    output_dtype: int | None = None,
) -> list[torch.Tensor]:
    """Rows sorted by expert, each group times its expert's weight: ``(x @ weight[e]) * scale[e] * per_token_scale + bias[e]``.

    Shapes: x one tensor ``[M, K]``, weight ``[E, K, N]`` or a list of ``[K, N]``, scale and bias ``[E, N]`` or lists of ``[N]``,
    per_token_scale ``[M]``, group_list ``[E]``. One result ``[M, N]`` (split_item 2 or 3, groups along M). int8 operands need a
    scale, or give the int32 sum.
    Definition: ``torch_npu.npu_grouped_matmul``; ``aclnnGroupedMatmulV4``.
    """
    op = "npu::npu_grouped_matmul"
    if len(x) != 1:
        raise unsupported(op, "x", f"{len(x)} tensors")
    if group_list is None:
        raise unsupported(op, "group_list", None)
    if split_item not in (2, 3):
        raise unsupported(op, "split_item", split_item)
    if group_type != 0:
        raise unsupported(op, "group_type", group_type)
    quantized = x[0].dtype is torch.int8
    if quantized and any(expert.dtype is not torch.int8 for expert in weight):
        raise unsupported(op, "weight", weight[0])
    default = torch.int32 if quantized and scale is None else x[0].dtype
    total = grouped_product(
        x[0],
        per_expert(weight),
        group_bounds(op, group_list, group_list_type),
        None if scale is None else per_expert(scale),
        None if per_token_scale is None else per_token_scale[0],
        None if bias is None else per_expert(bias),
    )
    return [total.to(_dtype(op, output_dtype, default))]
