"""Plain torch attention for the layers that vLLM's compiled CPU attention cannot run on the simulated NPU.

Three kinds of layers land here: multi-head latent attention with and without an indexer (DeepSeek, Kimi-K2, GLM-5),
the gated delta net of Qwen3-Next and Qwen3.5, and dense attention whose KV cache is int8 (C8). Everything around the
attention itself, the projections with their quantized weights above all, is vLLM's and vllm-ascend's own code.
Nothing here is fast: each request is computed on its own, in float32, from the paged cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder, MLAAttentionImpl, MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

__all__ = [
    "ReferenceC8Impl",
    "ReferenceMLABackend",
    "ReferenceMLAImpl",
    "ReferenceMetadata",
    "ReferenceMetadataBuilder",
    "gated_delta_net",
    "rotate",
]


@dataclass
class ReferenceMetadata:
    """One batch as the reference attention needs it.

    ``query_start`` has one entry more than there are requests; ``seq_lens`` counts cached plus new tokens of each
    request; ``block_table`` is ``[requests, blocks]``; ``slots`` gives each new token's place in the flattened cache.
    """

    num_actual_tokens: int
    query_start: list[int]
    seq_lens: list[int]
    block_table: torch.Tensor
    slots: torch.Tensor


class ReferenceMetadataBuilder(AttentionMetadataBuilder[ReferenceMetadata]):  # type: ignore[misc]
    """Turns vLLM's common metadata into :class:`ReferenceMetadata`; no reordering, no padding."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> ReferenceMetadata:
        m = common_attn_metadata
        return ReferenceMetadata(
            m.num_actual_tokens,
            m.query_start_loc_cpu.tolist(),
            m.seq_lens[: m.num_reqs].tolist(),
            m.block_table_tensor,
            m.slot_mapping[: m.num_actual_tokens].long(),
        )


class ReferenceMLABackend(AttentionBackend):  # type: ignore[misc]
    """Latent attention of any head size; one latent row per token, cached as vLLM lays it out."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[Any]] = ["auto", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "SIM_REFERENCE_MLA"

    @staticmethod
    def get_impl_cls() -> type[ReferenceMLAImpl]:
        return ReferenceMLAImpl

    @staticmethod
    def get_builder_cls() -> type[ReferenceMetadataBuilder]:
        return ReferenceMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @classmethod
    def is_mla(cls) -> bool:
        return True


def rotate(x: torch.Tensor, cos_sin: torch.Tensor, neox: bool) -> torch.Tensor:
    """Rotary embedding of ``x`` ``[tokens, heads, rope]`` with ``cos_sin`` ``[tokens, rope]`` (cosines, then sines).

    ``neox`` pairs element i with i + rope/2, otherwise neighbours are paired (Su et al., RoFormer, 2021).
    """
    cos, sin = (t.unsqueeze(1) for t in cos_sin.float().chunk(2, -1))
    f = x.float()
    a, b = f.chunk(2, -1) if neox else (f[..., ::2], f[..., 1::2])
    pair = (a * cos - b * sin, b * cos + a * sin)
    return (torch.cat(pair, -1) if neox else torch.stack(pair, -1).flatten(-2)).to(x.dtype)


class ReferenceMLAImpl(MLAAttentionImpl[ReferenceMetadata]):  # type: ignore[misc]
    """Stands where ``AscendMLAImpl`` and ``AscendSFAImpl`` stand, and takes the same projections.

    With the latent row c and the rotated key r of every earlier token, W = ``kv_b_proj`` split into K and V per head:
    score(t, s) = scale * (q_nope(t) . K c(s) + q_pe(t) . r(s)), causal, softmax over s, output = sum p * (V c(s)).
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.) With an indexer, only its top-k positions take part: index score
    = sum_h w_h * relu(q_h . k(s)) (DeepSeek-V3.2, section 2.1). As upstream, ``kv_b_proj`` must be a float layer.
    """

    can_return_lse_for_decode = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        **mla: Any,
    ) -> None:
        for name, value in (
            ("alibi_slopes", alibi_slopes),
            ("sliding_window", sliding_window),
            ("logits_soft_cap", logits_soft_cap),
            ("kv_sharing_target_layer_name", kv_sharing_target_layer_name),
        ):
            if value is not None:
                raise NotImplementedError(f"reference MLA: argument {name} is not implemented")
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, float(scale), num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_lora_rank: int = mla["kv_lora_rank"]
        self.q_lora_rank: int | None = mla["q_lora_rank"]
        self.nope: int = mla["qk_nope_head_dim"]
        self.rope: int = mla["qk_rope_head_dim"]
        self.v_head_dim: int = mla["v_head_dim"]
        self.modules = mla
        self.indexer: Any = mla.get("indexer")
        if mla.get("skip_topk"):
            raise NotImplementedError(
                "reference MLA: argument skip_topk (top-k indices shared between layers) is not implemented"
            )
        self._index_keys: torch.Tensor | None = None

    def forward_mqa(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("reference MLA: forward_mqa is not used, the layer calls forward")

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.modules["kv_b_proj"].weight.dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise NotImplementedError("reference MLA: a quantized kv_b_proj is not implemented (nor is it upstream)")

    def _rotary(self, positions: torch.Tensor) -> torch.Tensor | None:
        rope = self.modules.get("rotary_emb")
        if rope is None and self.modules.get("use_mla_rope", True):
            raise NotImplementedError("reference MLA: rotary_emb is missing")
        return None if rope is None else rope.cos_sin_cache[positions]

    def _project(
        self, hidden: torch.Tensor, cos_sin: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the query latent, the rotated queries ``[tokens, heads, nope + rope]`` and the latent cache rows."""
        m = self.modules
        if self.q_lora_rank is not None:
            q_c, kv = m["fused_qkv_a_proj"](hidden)[0].split([self.q_lora_rank, self.kv_lora_rank + self.rope], -1)
            q_c = m["q_a_layernorm"](q_c.contiguous())
            q = m["q_b_proj"](q_c)[0]
        else:
            q_c, kv = hidden, m["kv_a_proj_with_mqa"](hidden)[0]
            q = m["q_proj"](hidden)[0]
        q = q.view(-1, self.num_heads, self.nope + self.rope)
        latent, k_pe = kv.split([self.kv_lora_rank, self.rope], -1)
        latent = m["kv_a_layernorm"](latent.contiguous())
        if cos_sin is not None and self.rope:
            neox = m["rotary_emb"].is_neox_style
            q = torch.cat([q[..., : self.nope], rotate(q[..., self.nope :], cos_sin, neox)], -1)
            k_pe = rotate(k_pe.unsqueeze(1), cos_sin, neox).squeeze(1)
        return q_c, q, torch.cat([latent, k_pe], -1)

    def _index(
        self, hidden: torch.Tensor, q_c: torch.Tensor, cos_sin: torch.Tensor, meta: ReferenceMetadata, slots: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The indexer's queries ``[tokens, heads, dim]`` and head weights ``[tokens, heads]``; stores its keys."""
        ix = self.indexer
        backend = ix.impl
        dim = ix.head_dim
        key_weight = ix.wk_weights_proj(hidden)[0]
        key, weight = ix.k_norm(key_weight[:, :dim]), key_weight[:, dim:]
        query = ix.wq_b(q_c)[0].view(-1, ix.n_head, dim)
        neox = backend.is_rope_neox_style
        key = torch.cat([rotate(key[:, None, : self.rope], cos_sin, neox).squeeze(1), key[:, self.rope :]], -1)
        query = torch.cat([rotate(query[..., : self.rope], cos_sin, neox), query[..., self.rope :]], -1)
        if self._index_keys is None or len(self._index_keys) != slots:
            self._index_keys = torch.zeros(slots, dim, dtype=key.dtype)
        self._index_keys[meta.slots] = key
        return query.float(), weight.float() * (ix.n_head**-0.5 * ix.softmax_scale)

    def _attend(
        self, q: torch.Tensor, rows: torch.Tensor, allowed: torch.Tensor, kv_weight: torch.Tensor
    ) -> torch.Tensor:
        """``q`` ``[new, heads, nope + rope]``, latent ``rows`` ``[all, lora + rope]``, ``allowed`` ``[new, all]``."""
        latent, k_pe = rows.float().split([self.kv_lora_rank, self.rope], -1)
        key, value = torch.einsum("sl,lhd->shd", latent, kv_weight).split([self.nope, self.v_head_dim], -1)
        q_nope, q_pe = q.float().split([self.nope, self.rope], -1)
        score = torch.einsum("thd,shd->hts", q_nope, key) + torch.einsum("thd,sd->hts", q_pe, k_pe)
        score = (score * self.scale).masked_fill(~allowed, float("-inf"))
        return torch.einsum("hts,shd->thd", score.softmax(-1), value)

    def forward(
        self,
        layer_name: str,
        hidden_states: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: ReferenceMetadata | None,
        output: torch.Tensor,
    ) -> torch.Tensor:
        if attn_metadata is None:
            return output.fill_(0)
        meta, n = attn_metadata, attn_metadata.num_actual_tokens
        hidden = hidden_states[:n].contiguous()
        position = [
            torch.arange(s - (e - b), s) for b, e, s in zip(meta.query_start, meta.query_start[1:], meta.seq_lens)
        ]
        cos_sin = self._rotary(torch.cat(position))
        q_c, q, rows = self._project(hidden, cos_sin)
        block = kv_cache.shape[1]
        kv_cache[meta.slots // block, meta.slots % block] = rows.to(kv_cache.dtype)
        index = None
        if self.indexer is not None:
            assert cos_sin is not None
            index = self._index(hidden, q_c, cos_sin, meta, kv_cache.shape[0] * block)
        kv_weight = self.modules["kv_b_proj"].weight.float().T.reshape(self.kv_lora_rank, self.num_heads, -1)
        heads = torch.zeros(output.shape[0], self.num_heads, self.v_head_dim, dtype=hidden.dtype)
        for r, (a, b, length) in enumerate(zip(meta.query_start, meta.query_start[1:], meta.seq_lens)):
            where = torch.arange(length)
            blocks = meta.block_table[r].long()[where // block]
            allowed = where[None, :] <= position[r][:, None]
            if index is not None:
                allowed = self._select(index[0][a:b], index[1][a:b], blocks * block + where % block, allowed)
            heads[a:b] = self._attend(q[a:b], kv_cache[blocks, where % block], allowed, kv_weight).to(heads.dtype)
        flat = heads.flatten(1)
        gate = self.modules.get("g_proj")
        if gate is not None:
            flat = flat * torch.sigmoid(gate(hidden_states.contiguous())[0])
        output[...] = self.modules["o_proj"](flat)[0]
        return output

    def _select(
        self, query: torch.Tensor, weight: torch.Tensor, slots: torch.Tensor, allowed: torch.Tensor
    ) -> torch.Tensor:
        """Keeps the indexer's best ``topk_tokens`` of the causal positions."""
        assert self._index_keys is not None
        score = torch.einsum("thd,sd->ths", query, self._index_keys[slots].float()).relu()
        total = torch.einsum("ths,th->ts", score, weight).masked_fill(~allowed, float("-inf"))
        best = total.topk(min(self.indexer.topk_tokens, total.shape[-1]), -1)[1]
        return torch.zeros_like(allowed).scatter_(1, best, True) & allowed


class ReferenceC8Impl(CPUAttentionBackendImpl):  # type: ignore[misc]
    """Dense attention over an int8 KV cache with one scale and offset per channel (C8).

    Write: q = clamp(round(x / scale + offset), -128, 127). Read: q * scale, the offset is not used, as in
    ``vllm_ascend.attention.attention_v1.AscendC8AttentionBackendImpl`` (its cache is symmetric). A prompt that starts
    in this step attends to its own unquantized keys and values; everything else reads the cache.
    """

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("reference C8 attention: output quantization is not implemented")
        if attn_metadata is None:
            return output.fill_(0)
        if self.alibi_slopes is not None or self.sliding_window != -1 or self.logits_soft_cap or self.sinks is not None:
            raise NotImplementedError("reference C8 attention: alibi, window, soft cap and sinks are not implemented")
        n = attn_metadata.num_actual_tokens
        shape = (1, self.num_kv_heads, self.head_size)
        scale = {c: self._shard(getattr(layer, f"{c}_cache_scale")).view(shape) for c in "kv"}
        offset = {c: self._shard(getattr(layer, f"{c}_cache_offset")).view(shape) for c in "kv"}
        cache = layer.__dict__.setdefault("_sim_c8_cache", {})
        block = kv_cache.shape[2]
        slots = attn_metadata.slot_mapping[:n].long()
        for c, new in (("k", key), ("v", value)):
            if c not in cache:
                cache[c] = torch.zeros(kv_cache.shape[0] * block, *shape[1:], dtype=torch.int8)
            quantized = (new[:n].view(n, *shape[1:]) * (1.0 / scale[c]) + offset[c]).round().clamp(-128, 127)
            cache[c][slots] = quantized.to(torch.int8)
        start = attn_metadata.query_start_loc.tolist()
        for r, length in enumerate(attn_metadata.seq_lens.tolist()):
            a, b = start[r], start[r + 1]
            where = torch.arange(length)
            rows = attn_metadata.block_table[r].long()[where // block] * block + where % block
            if length == b - a and length > 1:
                k, v = key[a:b].view(-1, *shape[1:]).float(), value[a:b].view(-1, *shape[1:]).float()
            else:
                k, v = (cache[c][rows].float() * scale[c].float() for c in "kv")
            q = query[a:b].view(b - a, self.num_heads, self.head_size).float()
            mask = where[None, :] <= torch.arange(length - (b - a), length)[:, None]
            attended = F.scaled_dot_product_attention(
                *(t.transpose(0, 1) for t in (q, k, v)), attn_mask=mask, scale=self.scale, enable_gqa=True
            )
            output[a:b] = attended.transpose(0, 1).reshape(output[a:b].shape).to(output.dtype)
        return output

    def _shard(self, scale: torch.Tensor) -> torch.Tensor:
        """This rank's heads of a scale written for all KV heads."""
        from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

        flat, mine = scale.data.flatten(), self.num_kv_heads * self.head_size
        if flat.numel() in (1, mine):
            return flat.expand(mine)
        first = (
            get_tensor_model_parallel_rank()
            * (flat.numel() // self.head_size)
            // get_tensor_model_parallel_world_size()
        )
        return flat.view(-1, self.head_size)[first : first + self.num_kv_heads].flatten()


def _causal_conv(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Depthwise causal convolution of ``x`` ``[tokens, dim]`` after ``state`` ``[width - 1, dim]``, then SiLU."""
    y = F.conv1d(torch.cat([state, x]).T[None], weight, bias, groups=weight.shape[0])[0].T
    return F.silu(y)


def _unit_length(x: torch.Tensor) -> torch.Tensor:
    """``x / sqrt(sum(x^2) + 1e-6)`` over the last dimension: the epsilon is added, and small keys come out shorter than 1.

    Definition: ``l2norm`` of flash-linear-attention, and of transformers' Qwen3-Next.
    """
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def gated_delta_net(
    layer: Any, mixed_qkv: torch.Tensor, b: torch.Tensor, a: torch.Tensor, core_attn_out: torch.Tensor
) -> None:
    """The core of a Qwen gated delta net layer, one token after the other; replaces ``_forward_core``.

    With state S ``[v_dim, k_dim]`` per value head, decay g = exp(-exp(A_log) * softplus(a + dt_bias)) and
    beta = sigmoid(b), q and k of unit length: S <- g * S; S <- S + beta * (v - S k) k^T; o = S q / sqrt(k_dim)
    (Gated Delta Networks, arXiv 2412.06464, equation 10; transformers' ``torch_recurrent_gated_delta_rule``).
    Before it, q, k and v pass a causal convolution with SiLU. ``core_attn_out`` is ``[tokens, v_heads, v_dim]``, written
    in place.
    """
    from vllm.forward_context import get_forward_context

    metadata = get_forward_context().attn_metadata
    if metadata is None:
        return
    meta = metadata[layer.prefix]
    if meta.spec_sequence_masks is not None:
        raise NotImplementedError("reference gated delta net: speculative decoding is not implemented")
    conv_state, ssm_state = layer.kv_cache[0], layer.kv_cache[1]
    weight = layer.conv1d.weight.float()
    start, states = meta.non_spec_query_start_loc.tolist(), meta.non_spec_state_indices_tensor.tolist()
    known = [True] * len(states) if meta.has_initial_state is None else meta.has_initial_state.tolist()
    k_heads, v_heads = layer.num_k_heads // layer.tp_size, layer.num_v_heads // layer.tp_size
    for r in range(len(start) - 1):
        rows = slice(start[r], start[r + 1])
        if rows.start == rows.stop:
            continue
        slot, x = states[r], mixed_qkv[rows].float()
        past = conv_state[slot].float() * known[r]
        width = weight.shape[-1] - 1
        bias = None if layer.conv1d.bias is None else layer.conv1d.bias.float()
        mixed = _causal_conv(x, past[:width], weight, bias).to(mixed_qkv.dtype).float()
        conv_state[slot][:width] = torch.cat([past[:width], x])[-width:].to(conv_state.dtype)
        q, k, v = mixed.split([k_heads * layer.head_k_dim, k_heads * layer.head_k_dim, v_heads * layer.head_v_dim], -1)
        q, k = (_unit_length(t.view(len(x), k_heads, -1)).repeat_interleave(v_heads // k_heads, 1) for t in (q, k))
        v = v.view(len(x), v_heads, -1)
        decay = (-layer.A_log.float().exp() * F.softplus(a[rows].float() + layer.dt_bias.float())).exp()
        beta = b[rows].float().sigmoid()
        state = ssm_state[slot].float() * known[r]
        for t in range(len(x)):
            state = state * decay[t][:, None, None]
            delta = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", state, k[t]))
            state = state + torch.einsum("hv,hk->hvk", delta, k[t])
            core_attn_out[rows.start + t] = torch.einsum("hvk,hk->hv", state, q[t]) * layer.head_k_dim**-0.5
        ssm_state[slot] = state.to(ssm_state.dtype)
