"""Activations, alone and fused with the (de)quantization around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import silu

from ascend_hotfix.sim.kernels import mx
from ascend_hotfix.sim.kernels.matmul import group_bounds, grouped_product, per_expert, w4a8_grouped_product
from ascend_hotfix.sim.kernels.quantize import quantize_per_token
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = [
    "npu_dequant_swiglu_quant",
    "npu_fast_gelu",
    "npu_grouped_matmul_swiglu_quant",
    "npu_grouped_matmul_swiglu_quant_v2",
    "npu_swiglu",
]


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``silu(a) * b`` for the two halves a, b of ``x`` along ``dim``."""
    gate, up = x.chunk(2, dim)
    return silu(gate) * up


@kernel("npu::npu_swiglu")
def npu_swiglu(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``silu(a) * b`` for the two halves a, b of the input along ``dim``, in float32, cast back.

    Definition: ``torch_npu.npu_swiglu``; ``aclnnSwiGlu``.
    """
    return swiglu(input.float(), dim).to(input.dtype)


@kernel("npu::npu_fast_gelu")
def npu_fast_gelu(input: torch.Tensor) -> torch.Tensor:
    """``x * sigmoid(1.702 x)``, in float32, cast back.

    Definition: ``torch_npu.npu_fast_gelu``; ``aclnnFastGelu`` writes it ``x / (1 + exp(-1.702 |x|)) * exp(0.851 (x - |x|))``.
    """
    x = input.float()
    return (x * torch.sigmoid(1.702 * x)).to(input.dtype)


def _silu_gate(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return silu(gate) * up


def _dequant_swiglu_quant(
    op: str,
    x: torch.Tensor,
    weight_scale: torch.Tensor | None,
    activation_scale: torch.Tensor | None,
    group_index: torch.Tensor | None,
    activate_left: bool,
    quant_mode: int,
    gated: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _silu_gate,
) -> tuple[torch.Tensor, torch.Tensor]:
    if quant_mode != 1:
        raise unsupported(op, "quant_mode", quant_mode)
    value = x.double()
    if weight_scale is not None:
        value = value * _row_scales(op, weight_scale.double(), group_index, len(value))
    if activation_scale is not None:
        value = value * activation_scale.double().reshape(-1, 1)
    left, right = value.chunk(2, -1)
    return quantize_per_token(gated(left, right) if activate_left else gated(right, left))


def _row_scales(op: str, scale: torch.Tensor, group_index: torch.Tensor | None, rows: int) -> torch.Tensor:
    """The weight scale of each row: one for all, or by expert from the counts in ``group_index``; rows behind them get 0."""
    if group_index is None:
        if scale.dim() == 2 and scale.shape[0] != 1:
            raise unsupported(op, "weight_scale", scale)
        return scale.reshape(1, -1)
    owner = torch.repeat_interleave(torch.arange(len(group_index)), group_index.long())
    out = torch.zeros(rows, scale.shape[-1], dtype=scale.dtype)
    out[: len(owner)] = scale.reshape(len(group_index), -1)[owner]
    return out


@kernel("npu::npu_dequant_swiglu_quant")
def npu_dequant_swiglu_quant(
    x: torch.Tensor,
    weight_scale: torch.Tensor | None = None,
    activation_scale: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``y = x * weight_scale * activation_scale``; ``silu`` of the left half (``activate_left``) or the right one times the other;
    then int8 per token (``quant_mode`` 1).

    Shapes: x int32 ``[M, 2N]``, weight_scale ``[2N]`` or ``[E, 2N]`` with the row counts of the experts in group_index ``[E]``,
    activation_scale ``[M]``; results int8 ``[M, N]`` and float32 ``[M]``.
    Definition: ``torch_npu.npu_dequant_swiglu_quant``; ``aclnnDequantSwigluQuant``.
    """
    op = "npu::npu_dequant_swiglu_quant"
    return _dequant_swiglu_quant(op, x, weight_scale, activation_scale, group_index, activate_left, quant_mode)


@kernel(
    "_C_ascend::npu_dequant_swiglu_quant",
    "(Tensor x, *, Tensor? weight_scale=None, Tensor? activation_scale=None, Tensor? bias=None, Tensor? quant_scale=None, "
    "Tensor? quant_offset=None, Tensor? group_index=None, bool activate_left=True, int quant_mode=0, int swiglu_mode=0, "
    "float clamp_limit=0.0, float glu_alpha=1.0, float glu_bias=0.0) -> (Tensor y, Tensor scale)",
)
def custom_dequant_swiglu_quant(
    x: torch.Tensor,
    weight_scale: torch.Tensor | None = None,
    activation_scale: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    activate_left: bool = True,
    quant_mode: int = 0,
    swiglu_mode: int = 0,
    clamp_limit: float = 0.0,
    glu_alpha: float = 1.0,
    glu_bias: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """vllm-ascend's own build of :func:`npu_dequant_swiglu_quant`, for which the plain SwiGLU is the default mode.

    With ``swiglu_mode`` 1 the activation of the halves a (activated) and b is
    ``min(a, limit) * sigmoid(alpha * min(a, limit)) * (clamp(b, -limit, limit) + bias)``; a limit of 0 clamps nothing.
    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp`` and ``csrc/moe/dequant_swiglu_quant/op_kernel``.
    """
    op = "_C_ascend::npu_dequant_swiglu_quant"
    if swiglu_mode not in (0, 1):
        raise unsupported(op, "swiglu_mode", swiglu_mode)
    if swiglu_mode == 0:
        for name, value, plain in (
            ("clamp_limit", clamp_limit, 0.0),
            ("glu_alpha", glu_alpha, 1.0),
            ("glu_bias", glu_bias, 0.0),
        ):
            if value != plain:
                raise unsupported(op, name, value)

    def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if clamp_limit > 0:
            gate, up = gate.clamp(max=clamp_limit), up.clamp(-clamp_limit, clamp_limit)
        return gate * torch.sigmoid(glu_alpha * gate) * (up + glu_bias)

    return _dequant_swiglu_quant(op, x, weight_scale, activation_scale, group_index, activate_left, quant_mode, gated)


def _grouped_swiglu_quant(
    op: str,
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    scale: Sequence[torch.Tensor],
    x_scale: torch.Tensor,
    group_list: torch.Tensor,
    group_list_type: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    experts = per_expert(weight)
    if x.dtype is not torch.int8 or experts[0].dtype is not torch.int8:
        raise unsupported(op, "weight", experts[0])
    bounds = group_bounds(op, group_list, group_list_type)
    return quantize_per_token(swiglu(grouped_product(x, experts, bounds, per_expert(scale), x_scale)))


@kernel("npu::npu_grouped_matmul_swiglu_quant")
def npu_grouped_matmul_swiglu_quant(
    x: torch.Tensor, weight: torch.Tensor, group_list: torch.Tensor, weight_scale: torch.Tensor, x_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Grouped int8 product, dequantized, SwiGLU, int8 per token: gate, up and the next quantization in one op.

    Shapes: x int8 ``[M, K]``, weight int8 ``[E, K, 2N]``, weight_scale ``[E, 2N]``, x_scale ``[M]``, group_list ``[E]`` running
    sums; results int8 ``[M, N]``, float32 ``[M]`` and an empty offset.
    Definition: ``torch_npu.npu_grouped_matmul_swiglu_quant``; ``aclnnGroupedMatmulSwigluQuant``.
    """
    op = "npu::npu_grouped_matmul_swiglu_quant"
    quantized, scale = _grouped_swiglu_quant(op, x, [weight], [weight_scale], x_scale, group_list, 0)
    return quantized, scale, torch.empty(0)


@kernel("npu::npu_grouped_matmul_swiglu_quant_v2")
def npu_grouped_matmul_swiglu_quant_v2(
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    weight_scale: Sequence[torch.Tensor],
    x_scale: torch.Tensor,
    group_list: torch.Tensor,
    group_list_type: int | None = 0,
    dequant_mode: int | None = 0,
    dequant_dtype: int | None = 6,
    quant_mode: int | None = 0,
    quant_dtype: int | None = 1,
    weight_scale_dtype: int | None = None,
    x_scale_dtype: int | None = None,
    x_dtype: int | None = None,
    weight_dtype: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`npu_grouped_matmul_swiglu_quant`, with lists of weights and scales and either form of ``group_list``.

    With ``dequant_mode`` and ``quant_mode`` 2 the operands and the result are MX, see :mod:`mx`: weight_scale
    ``[E, K / 64, 2N, 2]``, x_scale ``[M, K / 64, 2]``, results ``[M, N]`` (E2M1: ``[M, N / 2]``) and uint8 ``[M, N / 64, 2]``.
    Definition: ``torch_npu.npu_grouped_matmul_swiglu_quant_v2``; ``aclnnGroupedMatmulSwigluQuantV2``.
    """
    op = "npu::npu_grouped_matmul_swiglu_quant_v2"
    if (dequant_mode, quant_mode) == (2, 2):
        for name, dtype in (("weight_scale_dtype", weight_scale_dtype), ("x_scale_dtype", x_scale_dtype)):
            if not mx.is_mx_scale(dtype):
                raise unsupported(op, name, dtype)
        bounds = group_bounds(op, group_list, group_list_type)
        product = mx.grouped_mx_product(op, x, per_expert(weight), bounds, per_expert(weight_scale), x_scale)
        return mx.quantize_blocks(swiglu(product), mx.element(op, "quant_dtype", quant_dtype))
    for name, value, plain in (
        ("dequant_mode", dequant_mode, 0),
        ("dequant_dtype", dequant_dtype, 6),
        ("quant_mode", quant_mode, 0),
        ("quant_dtype", quant_dtype, 1),
        ("weight_scale_dtype", weight_scale_dtype, None),
        ("x_scale_dtype", x_scale_dtype, None),
        ("x_dtype", x_dtype, None),
        ("weight_dtype", weight_dtype, None),
    ):
        if value != plain:
            raise unsupported(op, name, value)
    return _grouped_swiglu_quant(op, x, weight, weight_scale, x_scale, group_list, group_list_type)


@kernel(
    "_C_ascend::grouped_matmul_swiglu_quant_weight_nz",
    "(Tensor x, Tensor weight, Tensor weight_scale, Tensor x_scale, Tensor group_list, *, Tensor? bias=None, "
    "Tensor? offset=None, float swiglu_limit=0.0) -> (Tensor output, Tensor output_scale, Tensor output_offset)",
)
def grouped_matmul_swiglu_quant_weight_nz(
    x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, x_scale: torch.Tensor, group_list: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """vllm-ascend's own build of :func:`npu_grouped_matmul_swiglu_quant` for weights in the NZ memory format.

    The format is a matter of storage only; tensors here stay in their logical order.
    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp``.
    """
    op = "_C_ascend::grouped_matmul_swiglu_quant_weight_nz"
    quantized, scale = _grouped_swiglu_quant(op, x, [weight], [weight_scale], x_scale, group_list, 0)
    return quantized, scale, torch.empty(0)


@kernel(
    "_C_ascend::grouped_matmul_swiglu_quant_v2",
    "(Tensor x, Tensor[] weight, Tensor[] weight_scale, Tensor x_scale, Tensor group_list, Tensor? smooth_scale=None, "
    "Tensor[]? weight_assist_matrix=None, Tensor? bias=None, int? dequant_mode=0, int? dequant_dtype=0, int? quant_mode=0, "
    "int? quant_dtype=0, bool transpose_weight=False, int group_list_type=0, int[2] tuning_config=[], float swiglu_limit=0.0) "
    "-> (Tensor output, Tensor output_scale)",
)
def custom_grouped_matmul_swiglu_quant_v2(
    x: torch.Tensor,
    weight: Sequence[torch.Tensor],
    weight_scale: Sequence[torch.Tensor],
    x_scale: torch.Tensor,
    group_list: torch.Tensor,
    weight_assist_matrix: Sequence[torch.Tensor] | None = None,
    dequant_mode: int | None = 0,
    group_list_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Grouped product, dequantized, SwiGLU, int8 per token; an int32 weight ``[E, K, 2N / 8]`` holds int4 values (W4A8).

    For W4A8 ``weight_assist_matrix`` ``[E, 2N]`` is the quantizer's ``scale_bias``, as in
    :func:`~ascend_hotfix.sim.kernels.matmul.w4a8_grouped_product`. Results int8 ``[M, N]`` and float32 ``[M]``.
    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp``; ``aclnnGroupedMatmulSwigluQuantWeightNzV2``.
    """
    op = "_C_ascend::grouped_matmul_swiglu_quant_v2"
    if dequant_mode != 0:
        raise unsupported(op, "dequant_mode", dequant_mode)
    if per_expert(weight)[0].dtype is torch.int32:
        if weight_assist_matrix is None or x.dtype is not torch.int8:
            raise unsupported(op, "weight_assist_matrix", weight_assist_matrix)
        bounds = group_bounds(op, group_list, group_list_type)
        product = w4a8_grouped_product(op, x, weight, bounds, weight_scale, x_scale, weight_assist_matrix)
        return quantize_per_token(swiglu(product))
    if weight_assist_matrix is not None:
        raise unsupported(op, "weight_assist_matrix", weight_assist_matrix[0])
    return _grouped_swiglu_quant(op, x, weight, weight_scale, x_scale, group_list, group_list_type)
