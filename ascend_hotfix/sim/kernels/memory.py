"""Ops that move or lay out data: on the CPU they change nothing."""

from __future__ import annotations

import torch

from ascend_hotfix.sim.kernels.registry import kernel

__all__ = ["npu_format_cast", "npu_format_cast_", "npu_prefetch"]


@kernel("npu::npu_format_cast")
def npu_format_cast(
    input: torch.Tensor, acl_format: int, customize_dtype: int | None = None, input_dtype: int | None = None
) -> torch.Tensor:
    """The input itself: a memory format (ND, NZ, …) is a matter of storage, and the tensors here keep their logical
    order. The two types say how the bytes are to be read when the blocks of the format are cut, which is storage too.

    Definition: ``torch_npu.npu_format_cast``.
    """
    return input


@kernel("npu::npu_format_cast_.acl_format")
def npu_format_cast_(input: torch.Tensor, acl_format: int) -> torch.Tensor:
    """:func:`npu_format_cast` in place.

    Definition: ``torch_npu.npu_format_cast_``.
    """
    return input


@kernel("npu::npu_prefetch")
def npu_prefetch(input: torch.Tensor, dependency: torch.Tensor | None, max_size: int, offset: int = 0) -> None:
    """Nothing: a hint to fetch a weight into the cache of the NPU.

    Definition: ``torch_npu.npu_prefetch``.
    """
