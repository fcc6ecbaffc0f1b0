"""Writes the tiny W8A8 checkpoint of compressed-tensors that the servers load. Runs in the environment: it needs torch.

``python checkpoint.py FOLDER right|moved|wrong-targets``. The values are the same in each: ``moved`` has another prefix
in the names of its tensors, ``wrong-targets`` in the list of layers that stay in float.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, INTER, HEADS, KV_HEADS, LAYERS, VOCAB = 128, 256, 4, 2, 2, 256
MOVED = "language_model.model."


def _linear(rows: int, columns: int, name: str, tensors: dict[str, torch.Tensor], *, quantized: bool) -> None:
    weight = torch.randn(rows, columns) / columns**0.5
    if not quantized:
        tensors[f"{name}.weight"] = weight.to(torch.bfloat16)
        return
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    tensors[f"{name}.weight"] = (weight / scale).round().to(torch.int8)
    tensors[f"{name}.weight_scale"] = scale.to(torch.float32)


def write(folder: Path, kind: str) -> None:
    """One checkpoint; a small Llama whose ``down_proj`` layers stay in float."""
    torch.manual_seed(7)
    tensors: dict[str, torch.Tensor] = {"model.embed_tokens.weight": torch.randn(VOCAB, HIDDEN).to(torch.bfloat16)}
    kv = HIDDEN // HEADS * KV_HEADS
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        for part, rows in (("q_proj", HIDDEN), ("k_proj", kv), ("v_proj", kv), ("o_proj", HIDDEN)):
            _linear(rows, HIDDEN, f"{layer}.self_attn.{part}", tensors, quantized=True)
        for part in ("gate_proj", "up_proj"):
            _linear(INTER, HIDDEN, f"{layer}.mlp.{part}", tensors, quantized=True)
        _linear(HIDDEN, INTER, f"{layer}.mlp.down_proj", tensors, quantized=False)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}.{norm}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors["model.norm.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors["lm_head.weight"] = torch.randn(VOCAB, HIDDEN).to(torch.bfloat16)
    listed = "backbone.model" if kind == "wrong-targets" else "model"
    if kind == "moved":
        tensors = {
            MOVED + name.removeprefix("model.") if name.startswith("model.") else name: value
            for name, value in tensors.items()
        }
    folder.mkdir(parents=True)
    save_file(tensors, str(folder / "model.safetensors"))
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    activations = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}},
            "ignore": ["lm_head", *(f"{listed}.layers.{n}.mlp.down_proj" for n in range(LAYERS))],
        },
    }
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
