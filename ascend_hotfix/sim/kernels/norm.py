"""RMS normalization and its fused forms."""

from __future__ import annotations

import torch

from ascend_hotfix.sim.kernels.registry import kernel

__all__ = ["npu_add_rms_norm", "npu_add_rms_norm_bias", "npu_gemma_rms_norm", "npu_rms_norm", "rms_norm"]


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    """``x * r * gamma`` in the dtype of ``x`` and ``r = 1 / sqrt(mean(x**2) + epsilon)`` in float32, over the last
    dimension.
    """
    value = x.float()
    reciprocal = (value.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()
    return (value * reciprocal * gamma.float()).to(x.dtype), reciprocal


@kernel("npu::npu_rms_norm")
def npu_rms_norm(input: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """``x / sqrt(mean(x**2) + epsilon) * gamma`` over the last dimension, and the reciprocal root.

    Definition: ``torch_npu.npu_rms_norm``; ``aclnnRmsNorm``.
    """
    return rms_norm(input, gamma, epsilon)


@kernel("npu::npu_add_rms_norm")
def npu_add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`npu_rms_norm` of ``x1 + x2``; the sum (the new residual) is the third result.

    Definition: ``torch_npu.npu_add_rms_norm``; ``aclnnAddRmsNorm``.
    """
    total = x1 + x2
    normed, reciprocal = rms_norm(total, gamma, epsilon)
    return normed, reciprocal, total


@kernel(
    "_C_ascend::npu_add_rms_norm_bias",
    "(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-6) -> (Tensor y, Tensor rstd, Tensor x)",
)
def npu_add_rms_norm_bias(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`npu_add_rms_norm` with ``beta`` added to the normalized value (the bias that smoothing leaves in a
    checkpoint).

    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp`` and the operator's page in its ``csrc`` folder.
    """
    total = x1 + x2
    normed, reciprocal = rms_norm(total, gamma, epsilon)
    if beta is not None:
        normed = (normed.float() + beta.float()).to(normed.dtype)
    return normed, reciprocal, total


@kernel(
    "_C_ascend::npu_gemma_rms_norm",
    "(Tensor x, Tensor gamma, float epsilon=1e-6) -> (Tensor y, Tensor rstd)",
)
def npu_gemma_rms_norm(
    x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`npu_rms_norm` with ``1 + gamma``, as Gemma and Qwen3.5 store it.

    Definition: ``aclnnGemmaRmsNorm``; the schema in vllm-ascend ``csrc/torch_binding.cpp``.
    """
    return rms_norm(x, 1.0 + gamma.float(), epsilon)
