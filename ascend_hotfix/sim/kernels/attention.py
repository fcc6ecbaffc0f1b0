"""Attention kernels that run outside vLLM's own attention backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = ["npu_fused_infer_attention_score"]


@kernel("npu::npu_fused_infer_attention_score")
def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``softmax(q k^T * scale) v`` without a mask for packed sequences: the form of the vision encoders.

    Shapes: q ``[T, H, D]``, k and v ``[S, H, D]`` (layout TND); the lengths are running sums. The second result
    (log-sum-exp) is empty. ``block_size`` describes a paged cache and has no effect: there is no block table.
    Definition: ``torch_npu.npu_fused_infer_attention_score``; ``aclnnFusedInferAttentionScoreV3``.
    """
    op = "npu::npu_fused_infer_attention_score"
    if input_layout != "TND":
        raise unsupported(op, "input_layout", input_layout)
    if num_key_value_heads not in (0, num_heads):
        raise unsupported(op, "num_key_value_heads", num_key_value_heads)
    if actual_seq_lengths is None or actual_seq_lengths_kv is None:
        raise unsupported(op, "actual_seq_lengths", None)
    out = torch.empty_like(query)
    start = start_kv = 0
    for end, end_kv in zip(actual_seq_lengths, actual_seq_lengths_kv, strict=True):
        q, k, v = (
            part.transpose(0, 1).float() for part in (query[start:end], key[start_kv:end_kv], value[start_kv:end_kv])
        )
        out[start:end] = scaled_dot_product_attention(q, k, v, scale=scale).transpose(0, 1).to(query.dtype)
        start, start_kv = end, end_kv
    return out, torch.empty(0)
