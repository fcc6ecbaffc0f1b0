"""Output data types as the NPU ops are told them: torch's ``ScalarType`` numbers, or a ``torch.dtype``."""

from __future__ import annotations

import torch

__all__ = ["is_int4", "output_dtype"]

# c10/core/ScalarType.h. torch_npu accepts both the quantized and the plain name of int8.
_SCALAR_TYPES = {
    1: torch.int8,
    3: torch.int32,
    5: torch.float16,
    6: torch.float32,
    12: torch.int8,  # qint8
    15: torch.bfloat16,
}


def output_dtype(value: int | torch.dtype | None, default: torch.dtype) -> torch.dtype | None:
    """The dtype ``value`` stands for, ``default`` for None; None when it is a type the reference kernels do not know."""
    if value is None:
        return default
    if isinstance(value, torch.dtype):
        return torch.int8 if value == torch.qint8 else value
    return _SCALAR_TYPES.get(int(value))


def is_int4(value: int | torch.dtype | None) -> bool:
    """Whether ``value`` asks for packed four-bit integers: ``torch.quint4x2``, ScalarType 16."""
    return value is torch.quint4x2 or (isinstance(value, int) and value == 16)
