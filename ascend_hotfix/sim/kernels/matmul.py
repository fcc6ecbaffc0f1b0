"""Quantized matrix products, dense and grouped by expert."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ascend_hotfix.sim.kernels import dtypes, mx
from ascend_hotfix.sim.kernels.int4 import unpack_int4
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = [
    "group_bounds",
    "grouped_product",
    "npu_grouped_matmul",
    "npu_quant_matmul",
    "npu_weight_quant_batchmatmul",
    "per_expert",
    "w4a8_grouped_product",
]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@kernel("npu::npu_quant_matmul")
def npu_quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    scale_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    group_sizes: Sequence[int] | None = None,
) -> torch.Tensor:
    """``(x1 @ x2 + bias_int32) * scale * pertoken_scale + bias_float``, the product in int32.

    Shapes: x1 int8 ``[..., M, K]``, x2 int8 ``[K, N]``, scale ``[1]`` or ``[N]``, pertoken_scale ``[M]``, bias ``[N]``: an int32
    bias is added before the scales, a float bias after them. The result is fp16, bf16 or fp32, or the int32 sum itself.
    int4 operands come packed in int32: x1 ``[M, K / 8]`` and x2 ``[K, N / 8]``, or ``[K / 8, N]`` when it is transposed.
    With E8M0 scales (``scale_dtype``) both operands are MX, and the scales belong to blocks of 32 along K, see :mod:`mx`:
    scale ``[K / 64, N, 2]``, pertoken_scale ``[M, K / 64, 2]``, group_sizes ``[1, 1, 32]``.
    Definition: ``torch_npu.npu_quant_matmul``; ``aclnnQuantMatmulV4``, for MX ``aclnnQuantMatmulV5``.
    """
    op = "npu::npu_quant_matmul"
    result = _dtype(op, output_dtype, torch.int8)
    if mx.is_mx_scale(scale_dtype, scale):
        return _mx_matmul(op, x1, x2, scale, pertoken_scale, pertoken_scale_dtype, bias, group_sizes, result)
    for name, given in (
        ("x1_dtype", x1_dtype),
        ("x2_dtype", x2_dtype),
        ("scale_dtype", scale_dtype),
        ("pertoken_scale_dtype", pertoken_scale_dtype),
        ("group_sizes", group_sizes),
    ):
        if given is not None:
            raise unsupported(op, name, given)
    if x1.dtype is torch.int32 and x2.dtype is torch.int32:
        x2 = unpack_int4(x2) if x2.shape[0] == 8 * x1.shape[-1] else unpack_int4(x2.t()).t()
        x1 = unpack_int4(x1)
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


def _mx_matmul(
    op: str,
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    row_scale: torch.Tensor | None,
    row_scale_dtype: int | None,
    bias: torch.Tensor | None,
    group_sizes: Sequence[int] | None,
    result: torch.dtype,
) -> torch.Tensor:
    if row_scale is None or not mx.is_mx_scale(row_scale_dtype, row_scale):
        raise unsupported(op, "pertoken_scale", row_scale)
    if group_sizes is None or list(group_sizes) != [1, 1, mx.BLOCK]:
        raise unsupported(op, "group_sizes", group_sizes)
    if result not in _FLOATS:
        raise unsupported(op, "output_dtype", result)
    value = mx.dequantized_rows(op, x1, row_scale) @ mx.dequantized_weight(op, x2, scale)
    return (value if bias is None else value + bias.double()).to(result)


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
    antiquant_scale: Sequence[torch.Tensor] | None = None,
    antiquant_offset: Sequence[torch.Tensor] | None = None,
    x_dtype: int | None = None,
    weight_dtype: int | None = None,
    scale_dtype: int | None = None,
    per_token_scale_dtype: int | None = None,
) -> list[torch.Tensor]:
    """Rows sorted by expert, each group times its expert's weight: ``(x @ weight[e]) * scale[e] * per_token_scale + bias[e]``.

    Shapes: x one tensor ``[M, K]``, weight ``[E, K, N]`` or a list of ``[K, N]``, scale and bias ``[E, N]`` or lists of ``[N]``,
    per_token_scale ``[M]``, group_list ``[E]``. One result ``[M, N]`` (split_item 2 or 3, groups along M). int8 operands need a
    scale, or give the int32 sum.
    int8 rows with an int32 weight ``[E, K, N / 8]`` are W4A8, see :func:`w4a8_grouped_product`. Float rows with ``antiquant_scale``
    ``[E, K / group, N]`` or ``[E, N]`` are weight-only quantization: ``weight = (w + antiquant_offset) * antiquant_scale``.
    With E8M0 scales (``scale_dtype``) both operands are MX: scale ``[E, K / 64, N, 2]``, per_token_scale ``[M, K / 64, 2]``.
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
    if scale is not None and mx.is_mx_scale(scale_dtype, scale[0]):
        if per_token_scale is None or not mx.is_mx_scale(per_token_scale_dtype, per_token_scale[0]):
            raise unsupported(op, "per_token_scale", None if per_token_scale is None else per_token_scale[0])
        if bias is not None:
            raise unsupported(op, "bias", bias[0])
        bounds = group_bounds(op, group_list, group_list_type)
        total = mx.grouped_mx_product(op, x[0], per_expert(weight), bounds, per_expert(scale), per_token_scale[0])
        return [total.to(_dtype(op, output_dtype, torch.bfloat16))]
    for name, given in (
        ("x_dtype", x_dtype),
        ("weight_dtype", weight_dtype),
        ("scale_dtype", scale_dtype),
        ("per_token_scale_dtype", per_token_scale_dtype),
    ):
        if given is not None:
            raise unsupported(op, name, given)
    if antiquant_scale is not None:
        if scale is not None or per_token_scale is not None:
            raise unsupported(op, "antiquant_scale", "together with scale or per_token_scale")
        weight = _dequantized_experts(weight, antiquant_scale, antiquant_offset)
    elif antiquant_offset is not None:
        raise unsupported(op, "antiquant_offset", antiquant_offset)
    quantized = x[0].dtype is torch.int8
    if quantized and per_expert(weight)[0].dtype is torch.int32:
        if scale is None or per_token_scale is None or bias is None:
            raise unsupported(op, "weight", weight[0])
        bounds = group_bounds(op, group_list, group_list_type)
        total = w4a8_grouped_product(op, x[0], weight, bounds, scale, per_token_scale[0], bias)
        return [total.to(_dtype(op, output_dtype, torch.bfloat16))]
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


def w4a8_grouped_product(
    op: str,
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    bounds: Sequence[int],
    scale: Sequence[torch.Tensor],
    token_scale: torch.Tensor,
    bias: Sequence[torch.Tensor],
) -> torch.Tensor:
    """float64 ``((x - 8) @ weight[e] * scale[e] + bias[e]) * token_scale``: int8 rows times an int4 weight (W4A8), by expert.

    The int4 unit takes x as 16 times its high nibble plus the low nibble less 8, so that both halves are signed; ``bias`` is the
    quantizer's ``scale_bias``, 8 times the sum of ``weight * scale`` over K, which gives the 8 back. A wrong one is not repaired.
    Shapes: x int8 ``[M, K]``, weight int32 ``[E, K, N / 8]``, scale ``[E, N]`` int64 that carries the bits of a float32, token_scale
    ``[M]``, bias ``[E, N]``.
    Definition: ``torch_npu.npu_grouped_matmul`` (A8W4); for the bias also vllm-ascend's ``quantization/methods/w4a8``.
    """
    scales = [_float_bits(op, value).reshape(-1) for value in per_expert(scale)]
    product = grouped_product(x.double() - 8, [unpack_int4(value) for value in per_expert(weight)], bounds, scales)
    for expert, value in enumerate(per_expert(bias)):
        product[bounds[expert] : bounds[expert + 1]] += value.double()
    return product * token_scale.double().reshape(-1, 1)[: len(product)]


def _float_bits(op: str, value: torch.Tensor) -> torch.Tensor:
    """The float32 whose bits an int64 carries in its lower half; the upper half must be zero."""
    if value.dtype is not torch.int64 or bool((value >> 32).any()):
        raise unsupported(op, "scale", value)
    low = torch.where(value >= 1 << 31, value - (1 << 32), value)
    return low.to(torch.int32).view(torch.float32)


def _dequantized_experts(
    weight: Sequence[torch.Tensor], scale: Sequence[torch.Tensor], offset: Sequence[torch.Tensor] | None
) -> list[torch.Tensor]:
    offsets = [None] * len(per_expert(weight)) if offset is None else per_expert(offset)
    return [_dequantized(*parts) for parts in zip(per_expert(weight), per_expert(scale), offsets)]


def _dequantized(weight: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None) -> torch.Tensor:
    """float64 ``(weight + offset) * scale``; scale and offset ``[N]``, or ``[K / group, N]`` for groups along K."""
    value = (unpack_int4(weight) if weight.dtype is torch.int32 else weight).double()

    def rows(part: torch.Tensor) -> torch.Tensor:
        part = part.double().reshape(-1, value.shape[-1])
        return part.repeat_interleave(len(value) // len(part), 0)

    return (value if offset is None else value + rows(offset)) * rows(scale)


@kernel("npu::npu_weight_quant_batchmatmul")
def npu_weight_quant_batchmatmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    antiquant_scale: torch.Tensor,
    antiquant_offset: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    antiquant_group_size: int = 0,
) -> torch.Tensor:
    """Weight-only quantization (W8A16, W4A16): ``x @ ((weight + antiquant_offset) * antiquant_scale) + bias``, in the dtype of x.

    Shapes: x float ``[..., M, K]``, weight int8 ``[K, N]`` or int32 ``[K, N / 8]`` with eight int4 each, scale and offset ``[N]``,
    or ``[K / antiquant_group_size, N]``, bias ``[N]``.
    Definition: ``torch_npu.npu_weight_quant_batchmatmul``; ``aclnnWeightQuantBatchMatmulV2``.
    """
    op = "npu::npu_weight_quant_batchmatmul"
    if weight.dtype not in (torch.int8, torch.int32):
        raise unsupported(op, "weight", weight)
    width = weight.shape[-1] * (8 if weight.dtype is torch.int32 else 1)
    groups = -(-weight.shape[0] // antiquant_group_size) if antiquant_group_size else 1
    if antiquant_scale.numel() not in (1, groups * width) or weight.shape[0] % groups:
        raise unsupported(op, "antiquant_scale", antiquant_scale)
    scale = antiquant_scale.expand(width) if antiquant_scale.numel() == 1 else antiquant_scale
    value = x.double() @ _dequantized(weight, scale, antiquant_offset)
    return (value if bias is None else value + bias.double()).to(x.dtype)
