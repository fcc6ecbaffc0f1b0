"""Runs inside an upstream environment: how far the quantized layers of a checkpoint are from its float source.

Each layer is compared at its own input: q, k, v of the norm and ``qkv_proj`` against the float norm and matmuls,
``o_proj`` at inputs that fill its calibrated range, the MoE block (whose weights are not smoothed) at the float
norm's output. ModelSlim's smoothing scales the channels of v and undoes that in ``o_proj``; the factors are the ratio
of the two v, and cancel. 4-bit experts are compared one projection at a time: the other two of the reference are the
checkpoint's own weights, dequantized, for three 4-bit errors in a row would hide a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ascend_hotfix.sim import lab

TOKENS = 64
LOUD = 8
"""How much the input of the experts is raised: near zero silu is linear, and swapping gate and up would hardly show."""


def _zero_quant_bias(name: str, tensor: Tensor, experts: int) -> tuple[str, Tensor]:
    return name, torch.zeros_like(tensor) if name.endswith(".quant_bias") else tensor


def _double_attention_scale(name: str, tensor: Tensor, experts: int) -> tuple[str, Tensor]:
    wrong = ".self_attn." in name and name.endswith((".deq_scale", "_proj.weight_scale"))
    return name, tensor * 2 if wrong else tensor


def _double_expert_scale(name: str, tensor: Tensor, experts: int) -> tuple[str, Tensor]:
    return name, tensor * 2 if name.endswith((".down_proj.weight_scale", ".down_proj.scale_bias")) else tensor


def _swap_gate_up(name: str, tensor: Tensor, experts: int) -> tuple[str, Tensor]:
    swapped = name.replace("gate_proj", "#").replace("up_proj", "gate_proj").replace("#", "up_proj")
    return (swapped if ".experts." in name else name), tensor


def _permute_experts(name: str, tensor: Tensor, experts: int) -> tuple[str, Tensor]:
    head, found, tail = name.partition(".experts.")
    if not found:
        return name, tensor
    expert, _, leaf = tail.partition(".")
    return f"{head}.experts.{(int(expert) + 1) % experts}.{leaf}", tensor


FAULTS = {
    "quant_bias zeroed": _zero_quant_bias,
    "attention scale doubled": _double_attention_scale,
    "expert scale doubled": _double_expert_scale,
    "gate and up swapped": _swap_gate_up,
    "experts permuted": _permute_experts,
}


def errors(checkpoint: str, source: str, fault: str | None = None) -> dict[str, Any]:
    """Relative errors ``|y - y_float| / |y_float|`` of the parts of each layer, with the schemes that made them.

    ``fault``: a key of :data:`FAULTS`, done to the checkpoint's tensors on their way into ``load_weights``.
    """
    config = lab.make_config(checkpoint)
    model = lab.build(config)
    sizes = config.model_config.hf_text_config
    lab.load(model, config, _faulty(lab.iter_weights(checkpoint), fault, sizes.num_experts))
    lab.process_weights(model, config)
    quantized = dict(lab.iter_weights(checkpoint))
    floats = {name: tensor.float() for name, tensor in lab.iter_weights(source)}
    described = json.loads((Path(checkpoint) / "quant_model_description.json").read_text())
    found: dict[str, float] = {}
    with lab.forward_context(config, TOKENS):
        for number, layer in enumerate(model.model.layers):
            of_layer = {
                **_attention(layer, number, sizes, floats, quantized),
                **_moe(layer, number, sizes, floats, quantized),
            }
            found.update({f"{number}.{part}": error for part, error in of_layer.items()})
    return {
        "errors": found,
        "schemes": {
            part: described[f"model.layers.{part.split('.')[0]}.{_NAMED[part.split('.')[1]]}.weight"] for part in found
        },
    }


_NAMED = {
    **dict.fromkeys(("q", "k", "v"), "self_attn.q_proj"),
    "o": "self_attn.o_proj",
    **dict.fromkeys(("moe", "gate", "up", "down"), "mlp.experts.0.gate_proj"),
}


def _faulty(weights: Iterator[tuple[str, Tensor]], fault: str | None, experts: int) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in weights:
        yield FAULTS[fault](name, tensor, experts) if fault else (name, tensor)


def _hidden(seed: int, width: int) -> Tensor:
    """Uniform, because a static scale is calibrated on data with few outliers and clips the tail of a normal one."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(TOKENS, width, generator=generator) * 2 - 1).to(torch.bfloat16)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    value = x.float()
    return value * (value.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def _relative(value: Tensor, reference: Tensor) -> float:
    return float((value.float() - reference).norm() / reference.norm())


def _only(output: Any) -> Tensor:
    """A linear layer gives its output, or a pair of it and a bias that is not added yet."""
    return output[0] if isinstance(output, tuple) else output


def _attention(
    layer: Any, number: int, sizes: Any, floats: dict[str, Tensor], quantized: dict[str, Tensor]
) -> dict[str, float]:
    names = f"model.layers.{number}."
    hidden = _hidden(number, sizes.hidden_size)
    normed = _norm(hidden, floats[f"{names}input_layernorm.weight"], sizes.rms_norm_eps)
    expected = {shard: normed @ floats[f"{names}self_attn.{shard}_proj.weight"].T for shard in "qkv"}
    qkv = _only(layer.self_attn.qkv_proj(_only(layer.input_layernorm(hidden)))).float()
    got = dict(zip("qkv", qkv.split([part.shape[-1] for part in expected.values()], -1), strict=True))
    smoothing = (expected["v"] * got["v"]).sum(0) / got["v"].pow(2).sum(0)
    got["v"] = got["v"] * smoothing
    errors = {shard: _relative(got[shard], expected[shard]) for shard in "qkv"}
    errors["o"] = _output_projection(layer, f"{names}self_attn.o_proj.", smoothing, sizes, floats, quantized)
    return errors


def _output_projection(
    layer: Any, names: str, smoothing: Tensor, sizes: Any, floats: dict[str, Tensor], quantized: dict[str, Tensor]
) -> float:
    weight = floats[f"{names}weight"]
    x = torch.rand(TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(1)) * 255 - 128
    if f"{names}input_scale" in quantized:
        x = (x - quantized[f"{names}input_offset"].float()) * quantized[f"{names}input_scale"].float()
    x = x.to(torch.bfloat16)
    factor = smoothing.reshape(sizes.num_key_value_heads, sizes.head_dim)
    factor = factor.repeat_interleave(sizes.num_attention_heads // sizes.num_key_value_heads, 0).reshape(-1)
    return _relative(_only(layer.self_attn.o_proj(x)), (x.float() * factor) @ weight.T)


def _moe(
    layer: Any, number: int, sizes: Any, floats: dict[str, Tensor], quantized: dict[str, Tensor]
) -> dict[str, float]:
    names = f"model.layers.{number}."
    hidden = _hidden(100 + number, sizes.hidden_size)
    normed = _norm(hidden, floats[f"{names}post_attention_layernorm.weight"], sizes.rms_norm_eps)
    x = (normed * LOUD).to(torch.bfloat16)
    out = _only(layer.mlp(x))
    experts = {name: tensor for name, tensor in floats.items() if name.startswith(f"{names}mlp.")}
    if f"{names}mlp.experts.0.gate_proj.scale_bias" not in quantized:
        return {"moe": _relative(out, _float_moe(x.float(), f"{names}mlp.", sizes, experts))}
    own = {name: _dequantized(name, quantized) for name in experts if ".experts." in name}
    errors = {}
    for part in ("gate", "up", "down"):
        mixed = {**experts, **{name: tensor for name, tensor in own.items() if f".{part}_proj." not in name}}
        errors[part] = _relative(out, _float_moe(x.float(), f"{names}mlp.", sizes, mixed))
    return errors


def _dequantized(name: str, quantized: dict[str, Tensor]) -> Tensor:
    """A W4A8 weight: bytes ``[out / 2, in]`` with row 2i in the low and 2i + 1 in the high half, times a scale per
    row.
    """
    pair = quantized[name].to(torch.int16) & 0xFF
    rows = torch.stack([pair & 0xF, pair >> 4], 1).reshape(-1, pair.shape[1])
    return torch.where(rows > 7, rows - 16, rows).float() * quantized[f"{name}_scale"].float()


def _float_moe(x: Tensor, names: str, sizes: Any, floats: dict[str, Tensor]) -> Tensor:
    scores = (x @ floats[f"{names}gate.weight"].T).softmax(-1)
    weights, chosen = scores.topk(sizes.num_experts_per_tok, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for expert in range(sizes.num_experts):
        gate, up, down = (floats[f"{names}experts.{expert}.{leaf}_proj.weight"] for leaf in ("gate", "up", "down"))
        value = (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
        out += value * (weights * (chosen == expert)).sum(-1, keepdim=True)
    return out
