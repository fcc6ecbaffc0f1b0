"""Made-up checkpoints with the names of public reports: config.json, description and tensors, small enough to load on a CPU.

Runs in an environment that has torch. Values depend on the tensor's name only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTER, VOCAB, EXPERTS, LAYERS = 64, 4, 2, 32, 128, 128, 4, 2
Tensors = dict[str, Any]


def values(name: str, shape: tuple[int, ...], scale: float = 0.08) -> Any:
    """A float32 tensor of *shape*, the same one for the same name."""
    import torch

    seed = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def text_config(**fields: Any) -> dict[str, Any]:
    """Fields that every decoder config has."""
    return {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTER,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **fields,
    }


def dense(prefix: str = "model.", layers: int = LAYERS, *, qk_norm: bool = True) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Qwen3-like decoder."""
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (VOCAB, HIDDEN)}
    for number in range(layers):
        shapes |= layer(f"{prefix}layers.{number}.", qk_norm=qk_norm)
    return {**shapes, f"{prefix}norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


def layer(at: str, *, qk_norm: bool = True, experts: int = 0) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one decoder layer; with *experts*, of one like Qwen3-MoE."""
    shapes: dict[str, tuple[int, ...]] = {
        f"{at}self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        f"{at}self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{at}self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{at}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{at}input_layernorm.weight": (HIDDEN,),
        f"{at}post_attention_layernorm.weight": (HIDDEN,),
    }
    if qk_norm:
        shapes |= {f"{at}self_attn.q_norm.weight": (HEAD_DIM,), f"{at}self_attn.k_norm.weight": (HEAD_DIM,)}
    if experts:
        shapes[f"{at}mlp.gate.weight"] = (experts, HIDDEN)
    for block in [f"{at}mlp.experts.{number}." for number in range(experts)] or [f"{at}mlp."]:
        shapes |= {f"{block}{part}_proj.weight": (INTER, HIDDEN) for part in ("gate", "up")}
        shapes[f"{block}down_proj.weight"] = (HIDDEN, INTER)
    return shapes


def moe(prefix: str = "model.", layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Qwen3-MoE."""
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (VOCAB, HIDDEN)}
    for number in range(layers):
        shapes |= layer(f"{prefix}layers.{number}.", experts=EXPERTS)
    return {**shapes, f"{prefix}norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


QWEN3 = text_config(architectures=["Qwen3ForCausalLM"], model_type="qwen3", attention_bias=False)
QWEN3_MOE = text_config(
    architectures=["Qwen3MoeForCausalLM"],
    model_type="qwen3_moe",
    attention_bias=False,
    num_experts=EXPERTS,
    num_experts_per_tok=2,
    moe_intermediate_size=INTER,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
DEEPSEEK = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "intermediate_size": INTER,
    "moe_intermediate_size": 32,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {**DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
INDEXER = {"index_topk": 64, "index_n_heads": 4, "index_head_dim": 48}


def deepseek(*, indexers: tuple[bool, ...] = (False, False)) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a DeepSeek-V3, with an indexer in the layers for which *indexers* says so."""
    c = DEEPSEEK
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    nope, rope, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
    for number, indexer in enumerate(indexers):
        at = f"model.layers.{number}."
        attn = f"{at}self_attn."
        shapes |= {
            f"{attn}q_a_proj.weight": (c["q_lora_rank"], HIDDEN),
            f"{attn}kv_a_proj_with_mqa.weight": (rank + rope, HIDDEN),
            f"{attn}q_b_proj.weight": (HEADS * (nope + rope), c["q_lora_rank"]),
            f"{attn}kv_b_proj.weight": (HEADS * (nope + c["v_head_dim"]), rank),
            f"{attn}o_proj.weight": (HIDDEN, HEADS * c["v_head_dim"]),
            f"{attn}q_a_layernorm.weight": (c["q_lora_rank"],),
            f"{attn}kv_a_layernorm.weight": (rank,),
            f"{at}input_layernorm.weight": (HIDDEN,),
            f"{at}post_attention_layernorm.weight": (HIDDEN,),
        }
        if indexer:
            width = INDEXER["index_head_dim"]
            shapes |= {
                f"{attn}indexer.wq_b.weight": (INDEXER["index_n_heads"] * width, c["q_lora_rank"]),
                f"{attn}indexer.wk.weight": (width, HIDDEN),
                f"{attn}indexer.k_norm.weight": (width,),
                f"{attn}indexer.k_norm.bias": (width,),
                f"{attn}indexer.weights_proj.weight": (INDEXER["index_n_heads"], HIDDEN),
            }
        if number < c["first_k_dense_replace"]:
            blocks = {"": INTER}
        else:
            shapes |= {f"{at}mlp.gate.weight": (EXPERTS, HIDDEN), f"{at}mlp.gate.e_score_correction_bias": (EXPERTS,)}
            blocks = {**{f"experts.{e}.": 32 for e in range(EXPERTS)}, "shared_experts.": 32}
        for block, width in blocks.items():
            shapes |= {f"{at}mlp.{block}{part}_proj.weight": (width, HIDDEN) for part in ("gate", "up")}
            shapes[f"{at}mlp.{block}down_proj.weight"] = (HIDDEN, width)
    return {**shapes, "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


FLOAT_PARTS = ("embed_tokens", "lm_head", "norm", "gate.weight", "kv_b_proj", "weights_proj", "bias")


def quantized(
    shapes: Mapping[str, tuple[int, ...]], scheme: str = "W8A8_DYNAMIC", keep: tuple[str, ...] = FLOAT_PARTS
) -> tuple[Tensors, dict[str, Any]]:
    """Tensors as ModelSlim writes them, and their description. Names with a part of *keep* stay float."""
    import torch

    tensors: Tensors = {}
    description: dict[str, Any] = {"model_quant_type": scheme, "version": "1.0.0"}
    for name, shape in shapes.items():
        value = values(name, shape) if len(shape) > 1 else values(name, shape) + 1.0
        if len(shape) < 2 or any(part in name for part in keep):
            tensors[name] = value.to(torch.bfloat16)
            description[name] = "FLOAT"
            continue
        stem = name.removesuffix("weight")
        scale = value.abs().amax(1, keepdim=True) / 127
        tensors[name] = (value / scale).round().clamp(-127, 127).to(torch.int8)
        tensors[f"{stem}weight_scale"] = scale.to(torch.bfloat16)
        tensors[f"{stem}weight_offset"] = torch.zeros_like(scale).to(torch.bfloat16)
        description |= {f"{stem}{leaf}": scheme for leaf in ("weight", "weight_scale", "weight_offset")}
    return tensors, description


def floats(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    """The same model, not quantized."""
    import torch

    return {
        name: (values(name, shape) if len(shape) > 1 else values(name, shape) + 1.0).to(torch.bfloat16)
        for name, shape in shapes.items()
    }


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors, **files: Mapping[str, Any]) -> Path:
    """Writes a checkpoint directory. *files* are further JSON files, ``__`` in a name for a dot."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text("{}")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(folder / "model.safetensors"))
    return folder
