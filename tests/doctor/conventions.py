"""Naming conventions of the field, as renamings of genuine checkpoints: whole, and one group of names alone.

The names of layers, attention, MLP, norms and what is around the layers, as the named code bases write them; shards stay
apart, since a ModelSlim checkpoint has them so. Sources are those of ``ascend_hotfix.doctor.suggest.lexicon``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mutations import Rename, top
from writer import Spec

GROUPS = ("frame", "attention", "mlp", "norms")


@dataclass(frozen=True)
class Convention:
    """Segments and what they are called: ``layers`` and ``outer`` (whole heads of names) are the frame."""

    layers: str = ""
    outer: Mapping[str, str] = field(default_factory=dict)
    attention: Mapping[str, str] = field(default_factory=dict)
    mlp: Mapping[str, str] = field(default_factory=dict)
    norms: Mapping[str, str] = field(default_factory=dict)
    front: str | None = None
    """What stands for ``model``, or for what is around the layers of a wrapper; None: as it is."""
    before: str = ""
    """What is put in front of every name."""


CONVENTIONS: dict[str, Convention] = {
    "gpt2": Convention(
        layers="h",
        front="transformer",
        outer={"embed_tokens": "wte", "norm": "ln_f"},
        attention={"self_attn": "attn", "o_proj": "c_proj"},
        mlp={"up_proj": "c_fc", "down_proj": "c_proj"},
        norms={"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
    ),
    "llama": Convention(
        layers="layers",
        front="",
        outer={"embed_tokens": "tok_embeddings", "norm": "norm", "lm_head": "output"},
        attention={"self_attn": "attention", "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"},
        mlp={"mlp": "feed_forward", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
        norms={"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"},
    ),
    "neox": Convention(
        front="gpt_neox",
        outer={"embed_tokens": "embed_in", "norm": "final_layer_norm", "lm_head": "embed_out"},
        attention={"self_attn": "attention", "o_proj": "dense"},
        mlp={"up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
    ),
    "mixtral": Convention(
        mlp={"mlp": "block_sparse_moe", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    ),
    "megatron": Convention(
        front="decoder",
        outer={"embed_tokens": "word_embeddings", "norm": "final_layernorm", "lm_head": "output_layer"},
        attention={"self_attn": "self_attention", "o_proj": "linear_proj"},
        mlp={"up_proj": "linear_fc1", "down_proj": "linear_fc2", "gate": "router"},
        norms={"post_attention_layernorm": "pre_mlp_layernorm"},
    ),
    "falcon": Convention(
        layers="h",
        front="transformer",
        outer={"embed_tokens": "word_embeddings", "norm": "ln_f"},
        attention={"self_attn": "self_attention", "o_proj": "dense"},
        mlp={"up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
    ),
    "qwen1": Convention(
        layers="h",
        front="transformer",
        outer={"embed_tokens": "wte", "norm": "ln_f"},
        attention={"self_attn": "attn", "o_proj": "c_proj"},
        mlp={"gate_proj": "w2", "up_proj": "w1", "down_proj": "c_proj"},
        norms={"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
    ),
    "internlm2": Convention(
        outer={"embed_tokens": "tok_embeddings", "lm_head": "output"},
        attention={"self_attn": "attention", "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"},
        mlp={"mlp": "feed_forward", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
        norms={"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"},
    ),
    "wrapper": Convention(before="module"),
    "router": Convention(front="backbone", mlp={"gate": "router"}),
}


def parts_of(name: str) -> list[str]:
    """``whole``, and the groups that convention *name* has more than one of."""
    one = CONVENTIONS[name]
    held = {"frame": one.front is not None or bool(one.outer), "attention": one.attention, "mlp": one.mlp}
    held["norms"] = one.norms
    groups = [group for group in GROUPS if held[group]]
    return ["whole", *(groups if len(groups) > 1 else [])]


def renaming(spec: Spec, name: str, part: str = "whole") -> Rename:
    """The names of *spec* under convention *name*, or with one group of it."""
    one, front = CONVENTIONS[name], top(spec)
    groups = set(GROUPS) if part == "whole" else {part}
    inner: dict[str, str] = {}
    for group in ("attention", "mlp", "norms"):
        if group in groups:
            inner.update(getattr(one, group))
    layer = re.compile(rf"{re.escape(front)}\.layers\.(\d+)\.") if front else re.compile(r"layers\.(\d+)\.")
    heads = one.outer if "frame" in groups else {}

    def around(rest: str) -> str:
        """What is outside of the layers and the wrapper, or of the front."""
        if "frame" not in groups or one.front is None:
            return f"{front}.{rest}" if front else rest
        return f"{one.front}.{rest}" if one.front else rest

    def change(old: str) -> str:
        new = old
        if found := layer.match(old):
            inside = old[found.end() :].split(".")
            attention = inside[0] == "self_attn"
            told = {
                k: v
                for k, v in inner.items()
                if k not in ("gate",) or (len(inside) > 1 and inside[:2] == ["mlp", "gate"])
            }
            told = {k: v for k, v in told.items() if (k in one.attention) == attention or k in one.norms}
            layers = one.layers if one.layers and "frame" in groups else "layers"
            new = around(f"{layers}.{found[1]}.{'.'.join(told.get(s, s) for s in inside)}")
        elif (
            front and old.startswith(f"{front}.") and old.split(".")[len(front.split("."))] in ("embed_tokens", "norm")
        ):
            last = old[len(front) + 1 :].split(".")
            new = around(".".join([heads.get(last[0], last[0]), *last[1:]]))
        elif old.rpartition(".")[0].endswith("lm_head"):
            new = re.sub(r"\blm_head\b", heads.get("lm_head", "lm_head"), old)
        return f"{one.before}.{new}" if one.before and part == "whole" else new

    return change
