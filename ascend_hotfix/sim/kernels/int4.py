"""Four-bit integers: eight of them in an int32, or two in an int8, the first one in the lowest bits."""

from __future__ import annotations

import torch

from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = ["npu_convert_weight_to_int4pack", "pack_int4", "unpack_int4"]


def pack_int4(value: torch.Tensor) -> torch.Tensor:
    """int32 ``[..., N / 8]`` from integers in [-8, 7] ``[..., N]``; element i of each eight in the bits 4i to 4i + 3."""
    nibbles = (value.to(torch.int64) & 15).unflatten(-1, (-1, 8))
    word = (nibbles << (4 * torch.arange(8))).sum(-1)
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """int8 ``[..., 8 N]`` from int32 ``[..., N]``, or ``[..., 2 N]`` from int8: the inverse of :func:`pack_int4`."""
    each = {torch.int32: 8, torch.int8: 2}[packed.dtype]
    nibbles = (packed.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(each))) & 15
    return torch.where(nibbles > 7, nibbles - 16, nibbles).to(torch.int8).flatten(-2)


@kernel("npu::npu_convert_weight_to_int4pack")
def npu_convert_weight_to_int4pack(weight: torch.Tensor, inner_k_tiles: int = 0) -> torch.Tensor:
    """int32 ``[..., N / 8]`` from an int32 weight ``[..., N]`` whose values lie in [-8, 7]; ``inner_k_tiles`` has no effect.

    Definition: ``torch_npu.npu_convert_weight_to_int4pack``; ``aclnnConvertWeightToINT4Pack``.
    """
    op = "npu::npu_convert_weight_to_int4pack"
    if weight.dtype is not torch.int32 or weight.shape[-1] % 8:
        raise unsupported(op, "weight", weight)
    if weight.numel() and (int(weight.min()) < -8 or int(weight.max()) > 7):
        raise ValueError(f"simulated NPU: {op}: the weight has values outside [-8, 7]")
    return pack_int4(weight)
