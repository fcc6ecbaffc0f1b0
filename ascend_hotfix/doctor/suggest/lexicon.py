"""Naming conventions of decoder layers: what well-known code bases call one role.

Facts, not code. They are read off the tables that translate between these conventions: ``gguf.tensor_mapping`` (of
llama.cpp) and ``transformers.conversion_mapping``; where another source is named, the model code there. Conventions
contradict each other: ``w1`` is the gate for Llama and the up projection for the first Qwen. So one is taken for all
siblings or for none, see :mod:`ascend_hotfix.doctor.suggest.assign`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CONVENTIONS", "LEAVES", "Convention"]

Roles = tuple[str, ...]


class Convention(NamedTuple):
    """A *name* for it, and the last segment of a module's name to the roles that it has there."""

    name: str
    roles: Mapping[str, Roles]


def _roles(**roles: str) -> dict[str, Roles]:
    """``segment="role"`` or ``segment="role role"`` where it depends on the part of the layer."""
    return {segment: tuple(told.split()) for segment, told in roles.items()}


_LLAMA_MLP = _roles(w1="gate", w2="down", w3="up")
_LN = _roles(ln_1="attn_norm", ln_2="ffn_norm", ln_f="final_norm", wte="embed", lm_head="head")
_MLA = _roles(
    q_a_proj="q_a",
    q_b_proj="q_b",
    kv_a_proj_with_mqa="kv_a",
    kv_b_proj="kv_b",
    q_a_layernorm="q_a_norm",
    kv_a_layernorm="kv_a_norm",
)
_DRAFT = _roles(enorm="embed_norm", hnorm="hidden_norm", eh_proj="draft_fc")

CONVENTIONS: tuple[Convention, ...] = (
    Convention(
        "transformers",
        {
            **_roles(
                q_proj="q",
                k_proj="k",
                v_proj="v",
                qkv_proj="qkv",
                o_proj="o",
                gate_proj="gate",
                up_proj="up",
                down_proj="down",
                gate_up_proj="gate_up",
                q_norm="q_norm",
                k_norm="k_norm",
                input_layernorm="attn_norm",
                post_attention_layernorm="ffn_norm",
                norm="final_norm",
                embed_tokens="embed",
                lm_head="head",
                gate="router",
                shared_expert_gate="shared_gate",
            ),
            **_MLA,
            **_DRAFT,
        },
    ),
    Convention(
        "Llama (original), Mixtral, InternLM2",
        {
            **_LLAMA_MLP,
            **_roles(
                wq="q",
                wk="k",
                wv="v",
                wqkv="qkv",
                wo="o",
                attention_norm="attn_norm",
                ffn_norm="ffn_norm",
                norm="final_norm",
                tok_embeddings="embed",
                output="head",
                gate="router",
            ),
        },
    ),
    Convention(
        "DeepSeek (original)",  # inference/model.py of DeepSeek-V3 and V3.2
        {
            **_LLAMA_MLP,
            **_roles(
                wq="q",
                wq_a="q_a",
                wq_b="q_b",
                wkv_a="kv_a",
                wkv_b="kv_b",
                wo="o",
                q_norm="q_a_norm",
                kv_norm="kv_a_norm",
                attn_norm="attn_norm",
                ffn_norm="ffn_norm",
                norm="final_norm",
                embed="embed",
                head="head",
                gate="router",
            ),
        },
    ),
    Convention("GPT-2", {**_LN, **_roles(c_attn="qkv", c_proj="o down", c_fc="up")}),
    Convention("Qwen (first)", {**_LN, **_roles(c_attn="qkv", c_proj="o down", w1="up", w2="gate")}),
    Convention("EXAONE 3", {**_LN, **_roles(out_proj="o", c_fc_0="gate", c_fc_1="up", c_proj="down")}),
    Convention("Refact", {**_LN, **_roles(q="q", kv="kv", c_proj="o down", linear_1="gate", linear_3="up")}),
    Convention("GPT-J", {**_LN, **_roles(q_proj="q", k_proj="k", v_proj="v", out_proj="o", fc_in="up", fc_out="down")}),
    Convention(
        "GPT-NeoX",
        _roles(
            query_key_value="qkv",
            dense="o",
            dense_h_to_4h="up",
            dense_4h_to_h="down",
            input_layernorm="attn_norm",
            post_attention_layernorm="ffn_norm",
            final_layer_norm="final_norm",
            embed_in="embed",
            embed_out="head",
        ),
    ),
    Convention(
        "Falcon, BLOOM, Persimmon, Bailing",
        _roles(
            query_key_value="qkv",
            dense="o",
            dense_h_to_4h="up",
            dense_4h_to_h="down",
            input_layernorm="attn_norm",
            post_attention_layernorm="ffn_norm",
            ln_f="final_norm",
            final_layernorm="final_norm",
            word_embeddings="embed",
            lm_head="head",
        ),
    ),
    Convention(
        "Megatron",
        _roles(
            query_key_value="qkv",
            linear_qkv="qkv",
            dense="o",
            linear_proj="o",
            dense_h_to_4h="up gate_up",
            linear_fc1="up gate_up",
            dense_4h_to_h="down",
            linear_fc2="down",
            linear_q_proj="q",
            linear_q_down_proj="q_a",
            linear_q_up_proj="q_b",
            linear_kv_down_proj="kv_a",
            linear_kv_up_proj="kv_b",
            q_layernorm="q_norm q_a_norm",
            k_layernorm="k_norm",
            kv_layernorm="kv_a_norm",
            input_layernorm="attn_norm",
            pre_mlp_layernorm="ffn_norm",
            post_attention_layernorm="ffn_norm",
            final_layernorm="final_norm",
            final_norm="final_norm",
            word_embeddings="embed",
            output_layer="head",
            router="router",
        ),
    ),
    Convention(
        "MPT, DBRX",
        _roles(
            Wqkv="qkv",
            out_proj="o",
            up_proj="up",
            down_proj="down",
            w1="gate",
            v1="up",
            w2="down",
            norm_1="attn_norm",
            norm_2="ffn_norm",
            norm_f="final_norm",
            wte="embed",
        ),
    ),
    Convention(
        "OPT, Phi",
        _roles(
            q_proj="q",
            k_proj="k",
            v_proj="v",
            out_proj="o",
            dense="o",
            fc1="up",
            fc2="down",
            self_attn_layer_norm="attn_norm",
            final_layer_norm="ffn_norm",
        ),
    ),
    Convention(
        "BERT, DistilBERT",
        _roles(query="q", key="k", value="v", q_lin="q", k_lin="k", v_lin="v", out_lin="o", lin1="up", lin2="down"),
    ),
    Convention(
        "Grok",
        _roles(
            query="q",
            key="k",
            value="v",
            linear="o gate",
            linear_v="up",
            linear_1="down",
            rms_norm="attn_norm final_norm",
            rms_norm_2="ffn_norm",
            in_out_embed="embed",
            router="router",
        ),
    ),
    Convention("SmallThinker", _roles(up="up", gate="gate router", down="down", primary_router="router")),
    Convention("Yi (first), RWKV", _roles(ln1="attn_norm", ln2="ffn_norm")),
    Convention(
        "Hunyuan",
        _roles(query_layernorm="q_norm", key_layernorm="k_norm", wg="router"),
    ),
    Convention(
        "OLMo, LLaDA",
        _roles(
            q_proj="q",
            k_proj="k",
            v_proj="v",
            att_proj="qkv",
            attn_out="o",
            ff_proj="gate",
            up_proj="up",
            ff_out="down head",
            attn_norm="attn_norm",
            ff_norm="ffn_norm",
            ln_f="final_norm",
            wte="embed",
        ),
    ),
    Convention(
        "Mamba",
        _roles(norm="attn_norm", norm_f="final_norm", embedding="embed", embeddings="embed", lm_head="head"),
    ),
)
"""The sources are those of the module; ``transformers`` is what most checkpoints and vLLM's loaders have today."""


LEAVES: tuple[frozenset[str], ...] = (
    frozenset({"weight_scale", "scale", "scales", "weight_scales", "w_scale"}),
    frozenset({"weight_offset", "offset", "weight_zero_point", "zero_point", "weight_offsets"}),
    frozenset({"input_scale", "input_scales", "act_scale", "activation_scale"}),
    frozenset({"input_offset", "input_zero_point", "act_offset", "activation_offset"}),
    frozenset({"deq_scale", "dequant_scale"}),
    frozenset({"quant_bias", "bias_int32"}),
    frozenset({"e_score_correction_bias", "expert_bias", "correction_bias", "router_bias", "e_score_correction"}),
    frozenset({"A_log", "a_log"}),
    frozenset({"dt_bias", "dt_proj_bias"}),
)
"""Leaves of one meaning: what is stored beside a weight, and what a router or a scan adds. No scale is taken for its inverse."""
