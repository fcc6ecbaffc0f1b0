"""Stands for the NPU-only half of some of vllm-ascend's layers when vLLM's server runs on the simulated NPU.

vllm-ascend 0.30 drives its gated delta net with Triton and NPU kernels and its C8 attention with NPU layouts. Here the class keeps
its name, its parameters and its projections; only the part between them is the reference code of
:mod:`ascend_hotfix.sim.attention`.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["install_c8", "install_gated_delta_net", "install_gated_norm", "install_indexer", "split_qkvzba"]


def install_gated_delta_net(module: Any) -> None:
    """Hook of ``vllm_ascend.ops.gdn``: the layer's core, its metadata and its split of the fused projections."""
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionBackend

    from ascend_hotfix.sim.attention import gated_delta_net

    layer = module.AscendGatedDeltaNetAttention
    layer._forward_core = gated_delta_net
    layer.get_attn_backend = lambda self: GDNAttentionBackend
    module.fused_qkvzba_split_reshape_cat = split_qkvzba


def install_gated_norm(module: Any) -> None:
    """Hook of ``vllm_ascend.ops.layernorm``: the gated norm by vLLM's own formula instead of a Triton kernel."""
    module.AscendRMSNormGated.forward_oot = module.RMSNormGated.forward_native


def install_c8(module: Any) -> None:
    """Hook of ``vllm_ascend.attention.attention_v1``: the class that a layer with an int8 KV cache is given."""
    from ascend_hotfix.sim.attention import ReferenceC8Impl

    module.AscendC8AttentionBackendImpl = ReferenceC8Impl


def install_indexer(module: Any) -> None:
    """Hook of ``vllm_ascend.attention.indexer``: the indexer's keys are kept by the reference attention, so plain metadata do."""
    from ascend_hotfix.sim.attention import ReferenceMetadataBuilder

    module.AscendSFAIndexerBackend.get_builder_cls = staticmethod(lambda: ReferenceMetadataBuilder)


def split_qkvzba(
    mixed_qkvz: torch.Tensor, mixed_ba: torch.Tensor, k_heads: int, v_heads: int, k_dim: int, v_dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sorts Qwen3-Next's projections, which are interleaved by key head, into q|k|v, z, b and a.

    ``mixed_qkvz`` is ``[tokens, k_heads * (2 k_dim + 2 r v_dim)]`` and ``mixed_ba`` ``[tokens, k_heads * 2 r]`` with
    r = v_heads / k_heads value heads per key head; the order in each head is q, k, v, z and b, a. Results:
    ``[tokens, 2 k_heads k_dim + v_heads v_dim]``, ``[tokens, v_heads, v_dim]``, twice ``[tokens, v_heads]``.
    Source: ``fix_query_key_value_ordering`` of ``Qwen3NextGatedDeltaNet`` in transformers.
    """
    tokens, r = len(mixed_qkvz), v_heads // k_heads
    q, k, v, z = mixed_qkvz.view(tokens, k_heads, -1).split([k_dim, k_dim, r * v_dim, r * v_dim], -1)
    b, a = mixed_ba.view(tokens, k_heads, -1).split([r, r], -1)
    qkv = torch.cat([part.reshape(tokens, -1) for part in (q, k, v)], -1)
    return qkv, z.reshape(tokens, v_heads, v_dim), b.reshape(tokens, v_heads), a.reshape(tokens, v_heads)
