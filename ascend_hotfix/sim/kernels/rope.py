"""Rotary position embedding, alone and fused with the split and norm of q, k, v."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ascend_hotfix.sim.kernels.norm import rms_norm
from ascend_hotfix.sim.kernels.registry import kernel, unsupported

__all__ = ["npu_mrope", "npu_rotary_mul", "qkv_rmsnorm_rope", "rotate", "split_qkv_tp_rmsnorm_rope"]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, neox: bool) -> torch.Tensor:
    """Rotate the pairs of ``x`` ``[T, heads, R]`` by angles given as ``cos``, ``sin`` ``[T, R/2]``.

    A pair is (i, i + R/2) with ``neox``, (2i, 2i + 1) without.
    """
    cos, sin, value = cos.float().unsqueeze(1), sin.float().unsqueeze(1), x.float()
    if neox:
        a, b = value.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
    a, b = value[..., ::2], value[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)


def _rotate_heads(x: torch.Tensor, head_size: int, cos: torch.Tensor, sin: torch.Tensor, neox: bool) -> torch.Tensor:
    """Rotate the first ``2 * cos.shape[-1]`` values of each head of ``x`` ``[T, heads * head_size]``."""
    heads = x.reshape(len(x), -1, head_size)
    width = 2 * cos.shape[-1]
    rotated = rotate(heads[..., :width], cos, sin, neox=neox)
    return torch.cat([rotated, heads[..., width:]], -1).reshape(x.shape)


@kernel("npu::npu_mrope")
def npu_mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str | None = "half",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embedding of q and k by ``cos_sin_cache[positions]``, ``half`` (neox) or ``interleave``; one section only.

    Shapes: positions ``[T]``, q ``[T, Hq * head_size]``, k ``[T, Hk * head_size]``, cache ``[P, R]`` with cos then sin.
    Definition: ``torch_npu.npu_mrope``; ``aclnnRopeWithSinCosCache``.
    """
    op = "npu::npu_mrope"
    if positions.dim() != 1 or any(mrope_section or ()):
        raise unsupported(op, "mrope_section", mrope_section)
    if rotary_mode not in ("half", "interleave"):
        raise unsupported(op, "rotary_mode", rotary_mode)
    cos, sin = cos_sin_cache[positions[: len(query)]].chunk(2, -1)
    neox = rotary_mode == "half"
    return _rotate_heads(query, head_size, cos, sin, neox), _rotate_heads(key, head_size, cos, sin, neox)


@kernel("npu::npu_rotary_mul")
def npu_rotary_mul(input: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half") -> torch.Tensor:
    """``x * r1 + rotated(x) * r2`` with r1 = cos, r2 = sin broadcast over the heads; ``half`` turns (a, b) into (-b, a),
    ``interleave`` does so for each neighbouring pair.

    Definition: ``torch_npu.npu_rotary_mul``; ``aclnnRotaryPositionEmbedding``.
    """
    value = input.float()
    if rotary_mode == "half":
        a, b = value.chunk(2, -1)
        turned = torch.cat([-b, a], -1)
    elif rotary_mode == "interleave":
        turned = torch.stack([-value[..., 1::2], value[..., ::2]], -1).flatten(-2)
    else:
        raise unsupported("npu::npu_rotary_mul", "rotary_mode", rotary_mode)
    return (value * r1.float() + turned * r2.float()).to(input.dtype)


def _merge_sections(table: torch.Tensor, sections: Sequence[int], interleaved: bool) -> torch.Tensor:
    """cos or sin ``[3, T, R/2]`` of the temporal, height and width positions merged to ``[T, R/2]``.

    Interleaved: height takes the columns 1, 4, 7, … and width 2, 5, 8, … below three times their section, time the rest.
    Else the columns of each section follow one another.
    """
    if not interleaved:
        return torch.cat([part[axis] for axis, part in enumerate(table.split(list(sections), -1))], -1)
    merged = table[0].clone()
    for axis in (1, 2):
        columns = slice(axis, 3 * sections[axis], 3)
        merged[..., columns] = table[axis, ..., columns]
    return merged


@kernel(
    "vllm::triton_split_qkv_rmsnorm_mrope",
    "(Tensor qkv, Tensor q_weight, Tensor k_weight, Tensor cos_sin, SymInt num_q_heads, SymInt num_kv_heads, SymInt head_size, "
    "float eps, SymInt[] mrope_section, bool is_interleaved, SymInt? rope_dim=None, Tensor? q_bias=None, Tensor? k_bias=None, "
    "bool has_gate=False) -> (Tensor, Tensor, Tensor, Tensor)",
)
def triton_split_qkv_rmsnorm_mrope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_size: int,
    eps: float,
    mrope_section: Sequence[int],
    is_interleaved: bool,
    rope_dim: int | None = None,
    q_bias: torch.Tensor | None = None,
    k_bias: torch.Tensor | None = None,
    has_gate: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split qkv ``[T, (Hq + 2 Hk) * D]``, normalize each head of q and k (with an optional bias), rotate them, keep v.

    ``cos_sin`` is ``[T, R]``, or ``[3, T, R]`` for three-axis positions merged by ``mrope_section``. The fourth result is the
    gate: with ``has_gate`` each head of q is followed by its gate (qkv is Hq heads wider), else it is empty.
    Definition: vllm-ascend registers this op with a Triton kernel where Triton works; the steps are those of vLLM's
    ``MRotaryEmbedding.forward_native`` after its q and k norms.
    """
    cos, sin = cos_sin.chunk(2, -1)
    if cos_sin.dim() == 3:
        cos, sin = (_merge_sections(table, mrope_section, is_interleaved) for table in (cos, sin))
    if rope_dim is not None and rope_dim != 2 * cos.shape[-1]:
        raise unsupported("vllm::triton_split_qkv_rmsnorm_mrope", "rope_dim", rope_dim)
    gates = num_q_heads if has_gate else 0
    query, key, value = qkv.split(
        [heads * head_size for heads in (num_q_heads + gates, num_kv_heads, num_kv_heads)], -1
    )
    gate = qkv.new_empty(len(qkv), 0)
    if has_gate:
        pairs = query.reshape(len(qkv), num_q_heads, 2, head_size)
        query, gate = (pairs[:, :, part].reshape(len(qkv), -1) for part in (0, 1))

    def prepare(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        normed = rms_norm(x.reshape(len(x), -1, head_size), weight, eps)[0]
        normed = normed if bias is None else normed + bias
        return _rotate_heads(normed.reshape(x.shape), head_size, cos, sin, True)

    return prepare(query, q_weight, q_bias), prepare(key, k_weight, k_bias), value.contiguous(), gate


@kernel(
    "vllm::split_qkv_tp_rmsnorm_rope",
    "(Tensor input, Tensor q_weight, Tensor k_weight, SymInt q_hidden_size, SymInt kv_hidden_size, SymInt head_dim, "
    "SymInt rotary_dim, float eps, SymInt tp_world, Tensor cos, Tensor sin) -> (Tensor, Tensor, Tensor)",
)
def split_qkv_tp_rmsnorm_rope(
    input: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    rotary_dim: int,
    eps: float,
    tp_world: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split this rank's qkv, normalize q and k over all heads of all ranks, rotate the first ``rotary_dim`` of each head, keep v.

    Shapes: input ``[T, Hq D + 2 Hk D]``, weights ``[Hq D]`` and ``[Hk D]``, cos and sin ``[T, rotary_dim]`` or half of it (the two
    halves are equal). The mean square is that of the whole head row, summed over the ``tp_world`` ranks.
    Definition: vllm-ascend's Triton kernel of the same name, for MiniMax-M2 (``MiniMaxText01RMSNormTP`` in vLLM).
    """
    rows = input.reshape(len(input), -1)
    query, key, value = rows.split([q_hidden_size, kv_hidden_size, kv_hidden_size], -1)
    square = torch.stack([part.float().pow(2).mean(-1) for part in (query, key)], -1)
    if tp_world > 1:
        from vllm.distributed import tensor_model_parallel_all_reduce

        square = tensor_model_parallel_all_reduce(square) / tp_world
    reciprocal = (square + eps).rsqrt()
    angles = [table.reshape(len(rows), -1)[:, : rotary_dim // 2] for table in (cos, sin)]

    def prepare(x: torch.Tensor, weight: torch.Tensor, column: int) -> torch.Tensor:
        normed = (x.float() * reciprocal[:, column, None] * weight.float()).to(x.dtype)
        return _rotate_heads(normed, head_dim, angles[0], angles[1], True)

    return prepare(query, q_weight, 0), prepare(key, k_weight, 1), value.contiguous()


@kernel(
    "vllm::qkv_rmsnorm_rope",
    "(Tensor input, Tensor cos_sin_cache, Tensor positions, Tensor q_weight, Tensor k_weight, SymInt q_hidden_size, "
    "SymInt kv_hidden_size, SymInt head_dim, float eps, Tensor? q_bias=None, Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)",
)
def qkv_rmsnorm_rope(
    input: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float,
    q_bias: torch.Tensor | None = None,
    k_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split qkv, normalize each head of q and k (with an optional bias), rotate them by ``cos_sin_cache[positions]``, keep v.

    Shapes: input ``[T, (Hq + 2 Hk) D]``, weights ``[D]``, cache ``[P, R]`` with cos then sin.
    Definition: vllm-ascend's Triton kernel of the same name; the steps are vLLM's q and k norm and neox rotary embedding.
    """
    cos, sin = cos_sin_cache[positions.flatten()].chunk(2, -1)
    query, key, value = input.split([q_hidden_size, kv_hidden_size, kv_hidden_size], -1)

    def prepare(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        normed = rms_norm(x.reshape(len(x), -1, head_dim), weight, eps)[0]
        normed = normed if bias is None else normed + bias
        return _rotate_heads(normed.reshape(x.shape), head_dim, cos, sin, True)

    return prepare(query, q_weight, q_bias), prepare(key, k_weight, k_bias), value.contiguous()
