"""Mixture of experts: choosing experts, sorting tokens by expert and putting them back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ascend_hotfix.sim.kernels.mx import quantize_blocks
from ascend_hotfix.sim.kernels.quantize import quantize_per_token
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = [
    "npu_moe_finalize_routing",
    "npu_moe_gating_top_k",
    "npu_moe_gating_top_k_softmax",
    "npu_moe_init_routing_v2",
    "npu_moe_token_unpermute",
]


@kernel("npu::npu_moe_gating_top_k_softmax")
def npu_moe_gating_top_k_softmax(x: torch.Tensor, k: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The ``k`` largest of ``softmax(x)`` for each token, without renormalization.

    Shapes: x ``[T, E]``; results weights ``[T, k]``, experts int32 ``[T, k]`` and row numbers int32 ``[T, k]``, where
    entry (t, j) is ``j * T + t``.
    Definition: ``torch_npu.npu_moe_gating_top_k_softmax``; ``aclnnMoeGatingTopKSoftmax``.
    """
    weights, experts = x.float().softmax(-1).topk(k, -1)
    rows = torch.arange(len(x) * k, dtype=torch.int32).view(k, len(x)).t().contiguous()
    return weights.to(x.dtype), experts.to(torch.int32), rows


def _gating_top_k(
    op: str,
    x: torch.Tensor,
    k: int,
    bias: torch.Tensor | None,
    k_group: int,
    group_count: int,
    group_select_mode: int,
    renorm: int,
    norm_type: int,
    routed_scaling_factor: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if norm_type not in (0, 1):
        raise unsupported(op, "norm_type", norm_type)
    if group_select_mode not in (0, 1):
        raise unsupported(op, "group_select_mode", group_select_mode)
    if renorm not in (0, 1):
        raise unsupported(op, "renorm", renorm)
    scores = x.float().softmax(-1) if norm_type == 0 else x.float().sigmoid()
    ranked = scores if bias is None else scores + bias.float()
    if group_count > 1:
        ranked = _mask_groups(ranked, k_group, group_count, group_select_mode)
    experts = ranked.topk(k, -1)[1]
    weights = scores.gather(1, experts)
    if norm_type == 1 or renorm == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * routed_scaling_factor).to(x.dtype), experts.to(torch.int32), scores


def _mask_groups(ranked: torch.Tensor, k_group: int, group_count: int, group_select_mode: int) -> torch.Tensor:
    """Leave the ``k_group`` best groups of experts, by their best value (mode 0) or the sum of their two best (mode
    1).
    """
    groups = ranked.view(len(ranked), group_count, -1)
    value = groups.amax(-1) if group_select_mode == 0 else groups.topk(2, -1)[0].sum(-1)
    kept = torch.zeros_like(value, dtype=torch.bool).scatter_(1, value.topk(k_group, -1)[1], True)
    return ranked.masked_fill(~kept.repeat_interleave(groups.shape[-1], 1), float("-inf"))


@kernel("npu::npu_moe_gating_top_k")
def npu_moe_gating_top_k(
    x: torch.Tensor,
    k: int,
    bias: torch.Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores by softmax (``norm_type`` 0) or sigmoid (1); the best ``k`` experts of the best ``k_group`` of
    ``group_count`` groups, ranked by score + bias; their scores without the bias, divided by their sum for sigmoid or
    ``renorm`` 1, times the factor.

    Shapes: x ``[T, E]``, bias ``[E]``; results weights ``[T, k]``, experts int32 ``[T, k]``, scores float32 ``[T, E]``.
    Definition: ``torch_npu.npu_moe_gating_top_k``; ``aclnnMoeGatingTopK``.
    """
    op = "npu::npu_moe_gating_top_k"
    return _gating_top_k(
        op, x, k, bias, k_group, group_count, group_select_mode, renorm, norm_type, routed_scaling_factor, eps
    )


@kernel(
    "_C_ascend::moe_gating_top_k",
    "(Tensor x, int k, int k_group, int group_count, int group_select_mode, int renorm, int norm_type, bool out_flag, "
    "float routed_scaling_factor, float eps, Tensor? bias_opt=None) -> (Tensor, Tensor, Tensor)",
)
def custom_moe_gating_top_k(
    x: torch.Tensor,
    k: int,
    k_group: int,
    group_count: int,
    group_select_mode: int,
    renorm: int,
    norm_type: int,
    out_flag: bool,
    routed_scaling_factor: float,
    eps: float,
    bias_opt: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """vllm-ascend's own build of :func:`npu_moe_gating_top_k`.

    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp``.
    """
    op = "_C_ascend::moe_gating_top_k"
    return _gating_top_k(
        op, x, k, bias_opt, k_group, group_count, group_select_mode, renorm, norm_type, routed_scaling_factor, eps
    )


def _init_routing(
    op: str,
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    scale: torch.Tensor | None,
    expert_num: int,
    active_expert_range: Sequence[int],
    expert_tokens_num_type: int,
    quant_mode: int,
    row_idx_type: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    if quant_mode not in (-1, 1, 3):
        raise unsupported(op, "quant_mode", quant_mode)
    if expert_tokens_num_type not in (0, 1):
        raise unsupported(op, "expert_tokens_num_type", expert_tokens_num_type)
    if row_idx_type not in (0, 1):
        raise unsupported(op, "row_idx_type", row_idx_type)
    if quant_mode != -1 and scale is not None:
        raise unsupported(op, "scale", scale)
    first, last = active_expert_range or (0, expert_num)
    experts = expert_idx.reshape(-1).long()
    active = (experts >= first) & (experts < last)
    order = torch.argsort(torch.where(active, experts, torch.full_like(experts, last)), stable=True)
    source = order // expert_idx.shape[1]
    rows = order if row_idx_type == 1 else _destinations(order, int(active.sum()))
    counts = torch.bincount(experts[active] - first, minlength=last - first)
    expanded, scales = x[source], torch.zeros(len(order))
    if quant_mode == 1:
        expanded, scales = quantize_per_token(expanded.float())
    elif quant_mode == 3:
        expanded, blocks = quantize_blocks(expanded, "e4m3")
        scales = blocks.flatten(1)
    elif scale is not None:
        scales = scale.reshape(-1)[source].float()
    return expanded, rows.to(torch.int32), counts if expert_tokens_num_type == 1 else counts.cumsum(0), scales


def _destinations(order: torch.Tensor, active: int) -> torch.Tensor:
    """Where each source row went; -1 for the rows of experts that live elsewhere."""
    rows = torch.empty_like(order)
    rows[order] = torch.arange(len(order))
    return torch.where(rows < active, rows, torch.full_like(rows, -1))


@kernel("npu::npu_moe_init_routing_v2")
def npu_moe_init_routing_v2(
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    scale: torch.Tensor | None = None,
    active_num: int = -1,
    expert_num: int = -1,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Copy each token once for each of its experts and sort the copies by expert, stably; optionally quantize them
    per token.

    Shapes: x ``[T, K]``, expert_idx ``[T, k]``; results rows ``[T k, K]``, row numbers int32 ``[T k]``, tokens of
    each expert in ``active_expert_range`` (running sums for ``expert_tokens_num_type`` 0, counts for 1), scales
    float32 ``[T k]``. Row numbers lead from source to destination (``row_idx_type`` 0, -1 for experts outside the
    range) or back (1). ``quant_mode`` -1 passes ``scale`` through, 1 quantizes as ``npu_dynamic_quant``, 3 to MXFP8
    (E4M3) with uint8 scales ``[T k, K / 32]``, see :mod:`mx`. No token is dropped.
    Definition: ``torch_npu.npu_moe_init_routing_v2``; ``aclnnMoeInitRoutingV3``.
    """
    op = "npu::npu_moe_init_routing_v2"
    if active_num not in (-1, 0, expert_idx.numel()):
        raise unsupported(op, "active_num", active_num)
    return _init_routing(
        op, x, expert_idx, scale, expert_num, active_expert_range, expert_tokens_num_type, quant_mode, row_idx_type
    )


@kernel(
    "_C_ascend::npu_moe_init_routing_custom",
    "(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, int active_num=-1, "
    "int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, int expert_tokens_num_type=0, "
    "bool expert_tokens_num_flag=False, int quant_mode=0, int[2] active_expert_range=[], int row_idx_type=0) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def npu_moe_init_routing_custom(
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    scale: torch.Tensor | None = None,
    active_num: int = -1,
    expert_num: int = -1,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = 0,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """vllm-ascend's own build of :func:`npu_moe_init_routing_v2`.

    Definition: the schema in vllm-ascend ``csrc/torch_binding.cpp``.
    """
    op = "_C_ascend::npu_moe_init_routing_custom"
    if active_num not in (-1, 0, expert_idx.numel()):
        raise unsupported(op, "active_num", active_num)
    return _init_routing(
        op, x, expert_idx, scale, expert_num, active_expert_range, expert_tokens_num_type, quant_mode, row_idx_type
    )


def _gather_rows(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """float64 ``rows[index]``; an index of -1 gives a row of zeros (the expert lives on another rank)."""
    return rows.double()[index.clamp_min(0)] * (index >= 0).double().unsqueeze(-1)


@kernel("npu::npu_moe_token_unpermute")
def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor, sorted_indices: torch.Tensor, probs: torch.Tensor | None = None
) -> torch.Tensor:
    """``y[t] = sum over j of probs[t, j] * permuted_tokens[sorted_indices[t * k + j]]``, in float64, cast back.

    Shapes: tokens ``[T k, K]``, indices ``[T k]``, probs ``[T, k]`` (without it k is 1).
    Definition: ``torch_npu.npu_moe_token_unpermute``; ``aclnnMoeTokenUnpermute``.
    """
    k = 1 if probs is None else probs.shape[1]
    rows = _gather_rows(permuted_tokens, sorted_indices.long()).view(len(sorted_indices) // k, k, -1)
    if probs is not None:
        rows = rows * probs.double().unsqueeze(-1)
    return rows.sum(1).to(permuted_tokens.dtype)


@kernel("npu::npu_moe_finalize_routing")
def npu_moe_finalize_routing(
    expanded_permuted_rows: torch.Tensor,
    skip1: torch.Tensor | None,
    skip2: torch.Tensor | None,
    bias: torch.Tensor | None,
    scales: torch.Tensor | None,
    expanded_src_to_dst_row: torch.Tensor,
    export_for_source_row: torch.Tensor | None,
    drop_pad_mode: int | None = 0,
) -> torch.Tensor:
    """``y[t] = sum over j of scales[t, j] * rows[dst(t, j)]``, in float64, cast back.

    Shapes: rows ``[T k, K]``, scales ``[T, k]``, row numbers ``[T k]``: entry (t, j) is at ``j * T + t`` for
    ``drop_pad_mode`` 0, at ``t * k + j`` for 2.
    Definition: ``torch_npu.npu_moe_finalize_routing``; ``aclnnMoeFinalizeRoutingV2``.
    """
    op = "npu::npu_moe_finalize_routing"
    for name, value in (("skip1", skip1), ("skip2", skip2), ("bias", bias)):
        if value is not None:
            raise unsupported(op, name, value)
    if scales is None:
        raise unsupported(op, "scales", None)
    if drop_pad_mode not in (0, 2):
        raise unsupported(op, "drop_pad_mode", drop_pad_mode)
    tokens, k = scales.shape
    rows = _gather_rows(expanded_permuted_rows, expanded_src_to_dst_row.long())
    rows = rows.view(tokens, k, -1) if drop_pad_mode == 2 else rows.view(k, tokens, -1).transpose(0, 1)
    return (rows * scales.double().unsqueeze(-1)).sum(1).to(expanded_permuted_rows.dtype)
