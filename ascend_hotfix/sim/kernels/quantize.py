"""Quantization of activations: static per tensor or channel, and dynamic per token."""

from __future__ import annotations

import torch

from ascend_hotfix.sim.kernels.dtypes import is_int4, output_dtype
from ascend_hotfix.sim.kernels.int4 import pack_int4
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = ["npu_dynamic_quant", "npu_quantize", "quantize_per_token", "saturate_int8"]


def saturate_int8(value: torch.Tensor) -> torch.Tensor:
    """Round half to even and saturate to [-128, 127]."""
    return value.round().clamp(-128, 127).to(torch.int8)


def quantize_per_token(x: torch.Tensor, largest: int = 127) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric per row: ``scale = max|x| / largest`` (float32, one for each row), ``q = round(x / scale)`` as int8.

    A row of zeros gives zeros and a scale of zero. ``largest`` is 127 for int8 and 7 for int4.
    """
    scale = x.abs().amax(-1) / largest
    divisor = torch.where(scale > 0, scale, torch.ones_like(scale))
    return saturate_int8(x / divisor.unsqueeze(-1)), scale.to(torch.float32)


@kernel("npu::npu_quantize")
def npu_quantize(
    input: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: int,
    axis: int = 1,
    div_mode: bool = True,
) -> torch.Tensor:
    """``round(x / scales + zero_points)`` with ``div_mode``, ``round(x * scales + zero_points)`` without, saturated to int8.

    Shapes: x ``[..., K]``, scales and zero points ``[1]`` or ``[K]`` along ``axis``, which must be the last one.
    Definition: ``torch_npu.npu_quantize``; ``aclnnAscendQuantV3`` for ``div_mode=False``.
    """
    op = "npu::npu_quantize"
    if output_dtype(dtype, torch.int8) is not torch.int8:
        raise unsupported(op, "dtype", dtype)
    if scales.numel() > 1 and axis not in (-1, input.dim() - 1):
        raise unsupported(op, "axis", axis)
    scaled = input.float() / scales.float() if div_mode else input.float() * scales.float()
    return saturate_int8(scaled if zero_points is None else scaled + zero_points.float())


@kernel("npu::npu_dynamic_quant")
def npu_dynamic_quant(
    input: torch.Tensor,
    smooth_scales: torch.Tensor | None = None,
    dst_type: int | None = None,
    quant_mode: str = "pertoken",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 quantization per token: ``scale = max|x * smooth| / 127``, ``q = round(x * smooth / scale)``.

    With ``dst_type`` int4 (``torch.quint4x2``) the divisor is 7, q lies in [-8, 7] and eight of them make an int32.
    Shapes: x ``[..., K]``, smooth ``[K]``; results int8 ``[..., K]`` or int32 ``[..., K / 8]``, and float32 scales ``[...]``.
    Definition: ``torch_npu.npu_dynamic_quant``; ``aclnnDynamicQuantV2``.
    """
    op = "npu::npu_dynamic_quant"
    if not is_int4(dst_type) and output_dtype(dst_type, torch.int8) is not torch.int8:
        raise unsupported(op, "dst_type", dst_type)
    if quant_mode != "pertoken":
        raise unsupported(op, "quant_mode", quant_mode)
    if smooth_scales is not None and smooth_scales.dim() != 1:
        raise unsupported(op, "smooth_scales", smooth_scales)
    x = input.float() if smooth_scales is None else input.float() * smooth_scales.float()
    if is_int4(dst_type):
        quantized, scale = quantize_per_token(x, 7)
        return pack_int4(quantized), scale
    return quantize_per_token(x)
