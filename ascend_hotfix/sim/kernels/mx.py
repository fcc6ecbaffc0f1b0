"""Microscaling formats (MXFP8, MXFP4): blocks of 32 values along K that share one power of two as their scale.

Source: OCP Microscaling Formats (MX) Specification 1.0. Section 5.4: E8M0 is a byte b for 2**(b - 127), 255 is NaN.
Section 5.3: E4M3 reaches 448, E2M1 knows 0, 0.5, 1, 1.5, 2, 3, 4 and 6. Section 6.3: how a block is converted.
Layouts are torch_npu's: a weight's scales come in pairs, ``[K / 64, N, 2]`` for ``[K, N]``, those of rows ``[M, K / 64, 2]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = [
    "BLOCK",
    "dequantized_rows",
    "dequantized_weight",
    "element",
    "grouped_mx_product",
    "is_mx_scale",
    "npu_dynamic_mx_quant",
    "pack_fp4",
    "quantize_blocks",
    "unpack_fp4",
]

BLOCK = 32

# What an int argument of these ops means: torch's ScalarType, or torch_npu's own numbers behind its aliases.
_E4M3 = (24, 292, torch.float8_e4m3fn)
_E2M1 = (45, 296)
_E8M0 = (44, 293)

_LARGEST_EXPONENT = {"e4m3": 8, "e2m1": 2}


def is_mx_scale(dtype: int | None, scale: torch.Tensor | None = None) -> bool:
    """Whether a scale is E8M0, by the argument that names its type; uint8 and ``float8_e8m0fnu`` hold it alike."""
    named = dtype in _E8M0
    return named if scale is None else named and scale.dtype in (torch.uint8, torch.float8_e8m0fnu)


def element(op: str, argument: str, dtype: int | torch.dtype | None) -> str:
    """``"e4m3"`` or ``"e2m1"``, from what an op is told; NotImplementedError in the name of ``argument`` for another."""
    for name, known in (("e4m3", _E4M3), ("e2m1", _E2M1)):
        if dtype in known:
            return name
    raise unsupported(op, argument, dtype)


def unpack_fp4(packed: torch.Tensor) -> torch.Tensor:
    """float32 ``[..., 2 K]`` from two E2M1 values in each byte, the first in the low half (bit 3 of each is the sign)."""
    levels = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    byte = packed.view(torch.uint8).to(torch.int64)
    nibbles = torch.stack([byte & 15, byte >> 4], -1).flatten(-2)
    return levels[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)


def pack_fp4(value: torch.Tensor) -> torch.Tensor:
    """uint8 ``[..., K / 2]``: the inverse of :func:`unpack_fp4` for values that E2M1 has."""
    levels = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=value.dtype)
    nibbles = torch.searchsorted(levels, value.abs().contiguous()) + 8 * torch.signbit(value)
    low, high = nibbles.unflatten(-1, (-1, 2)).unbind(-1)
    return (low + 16 * high).to(torch.uint8)


def _round_fp4(value: torch.Tensor, round_mode: str) -> torch.Tensor:
    """To the nearest E2M1 value, at most 6; a tie goes to the even mantissa (``rint``) or away from zero (``round``)."""
    magnitude = value.abs().clamp(max=6.0)
    step = torch.exp2(torch.log2(magnitude.clamp_min(1.0)).floor() - 1)
    steps = magnitude / step
    rounded = steps.round() if round_mode == "rint" else (steps + 0.5).floor()
    return (rounded * step).clamp(max=6.0).copysign(value)


def _to_e4m3(value: torch.Tensor) -> torch.Tensor:
    """To the nearest E4M3 value, ties to the even mantissa, at most 448."""
    return value.clamp(-448, 448).float().to(torch.float8_e4m3fn)


def quantize_blocks(x: torch.Tensor, kind: str, round_mode: str = "rint") -> tuple[torch.Tensor, torch.Tensor]:
    """Elements and E8M0 scales of ``x`` ``[..., K]`` by blocks along K: ``scale = 2 ** (floor(log2(max|x|)) - emax)``.

    emax is 8 for E4M3 and 2 for E2M1. The elements are ``x / scale`` rounded to nearest, saturated; E4M3 as
    ``float8_e4m3fn`` ``[..., K]``, E2M1 as uint8 ``[..., K / 2]``. The scales are uint8 ``[..., ceil(K / 64), 2]``, with a
    zero where the number of blocks is odd. A block of zeros has the scale 2**-127.
    """
    length = x.shape[-1]
    blocks = torch.nn.functional.pad(x.float(), (0, -length % BLOCK)).unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)
    exponent = torch.frexp(largest)[1].float() - 1 - _LARGEST_EXPONENT[kind]
    exponent = torch.where(largest > 0, exponent.clamp(-127, 127), torch.full_like(exponent, -127.0))
    scaled = (blocks.double() / torch.exp2(exponent.double()).unsqueeze(-1)).flatten(-2)[..., :length]
    elements = _to_e4m3(scaled) if kind == "e4m3" else pack_fp4(_round_fp4(scaled, round_mode))
    biased = (exponent + 127).to(torch.uint8)
    paired = torch.nn.functional.pad(biased, (0, biased.shape[-1] % 2)).unflatten(-1, (-1, 2))
    return elements, paired


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """The values along the last dimension: E4M3 as it is, anything of one byte else is a pair of E2M1."""
    return (tensor if tensor.dtype is torch.float8_e4m3fn else unpack_fp4(tensor)).double()


def dequantized_rows(op: str, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """float64 ``element * scale`` of rows ``[M, K]`` with scales ``[M, K / 64, 2]`` or ``[M, K / 32]``."""
    value, scales = _elements(x), scale.view(torch.uint8).reshape(len(x), -1)
    return value * _spread(op, scales, value.shape[-1])


def dequantized_weight(op: str, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """float64 ``element * scale`` of a weight ``[K, N]`` with scales ``[K / 64, N, 2]``; E2M1 comes packed along K."""
    value = _elements(weight.transpose(0, 1).contiguous())
    if scale.dim() != 3:
        raise unsupported(op, "scale", scale)
    scales = scale.view(torch.uint8).transpose(0, 1).reshape(len(value), -1)
    return (value * _spread(op, scales, value.shape[-1])).transpose(0, 1)


def _spread(op: str, scales: torch.Tensor, length: int) -> torch.Tensor:
    """float64 scales of ``length`` elements from one byte for each block; behind the last block padding may follow."""
    blocks = -(-length // BLOCK)
    if scales.shape[-1] not in (blocks, blocks + blocks % 2):
        raise unsupported(op, "scale", scales)
    return torch.exp2(scales[..., :blocks].double() - 127).repeat_interleave(BLOCK, -1)[..., :length]


def grouped_mx_product(
    op: str,
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    bounds: Sequence[int],
    scale: Sequence[torch.Tensor],
    row_scale: torch.Tensor,
) -> torch.Tensor:
    """float64 product of MX rows with the MX weight of each expert; rows behind the last bound are 0."""
    rows = dequantized_rows(op, x, row_scale)
    out = torch.zeros(len(x), weight[0].shape[-1], dtype=torch.float64)
    for expert, (start, end) in enumerate(pairwise(bounds)):
        out[start:end] = rows[start:end] @ dequantized_weight(op, weight[expert], scale[expert])
    return out


@kernel("npu::npu_dynamic_mx_quant")
def npu_dynamic_mx_quant(
    input: torch.Tensor,
    axis: int = -1,
    round_mode: str = "rint",
    dst_type: int = 296,
    block_size: int = BLOCK,
    scale_alg: int | None = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MX quantization of the last dimension: see :func:`quantize_blocks`, which is ``scale_alg`` 0 (the OCP one).

    Shapes: x ``[..., K]``; results ``float8_e4m3fn`` ``[..., K]`` or uint8 ``[..., K / 2]``, and uint8 ``[..., K / 64, 2]``.
    Definition: ``torch_npu.npu_dynamic_mx_quant``; ``aclnnDynamicMxQuant``; OCP MX 1.0, section 6.3.
    """
    op = "npu::npu_dynamic_mx_quant"
    kind = element(op, "dst_type", dst_type)
    for name, value, known in (
        ("axis", axis, (-1, input.dim() - 1)),
        ("round_mode", round_mode, ("rint",) if kind == "e4m3" else ("rint", "round")),
        ("block_size", block_size, (BLOCK,)),
        ("scale_alg", scale_alg, (0,)),
    ):
        if value not in known:
            raise unsupported(op, name, value)
    return quantize_blocks(input, kind, round_mode)
