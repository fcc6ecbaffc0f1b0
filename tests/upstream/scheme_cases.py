"""Runs inside an upstream environment: how far the layers of the further schemes are from what they stand for.

As in ``numerics_cases``: each layer at its own input, against the float source. A checkpoint whose embeddings are those
of the source turned by a rotation (QuaRot) is given turned inputs, and its outputs are turned back. MXFP8 and W8A16 have
no float source among the test data: there the weight is the checkpoint's own, dequantized here by the format's definition,
and what is measured is the quantization of the input (MXFP8) or the layout alone (W8A16).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from numerics_cases import LOUD, TOKENS, _hidden, _norm, _only, _relative
from torch import Tensor
from torch.nn.functional import silu

from ascend_hotfix.sim import lab
from ascend_hotfix.versions import fits

Weights = dict[str, Tensor]


def _double_scale(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Of q, k, gate and up: the outputs that are compared on their own."""
    of_layer = name.endswith((".weight_scale", ".deq_scale"))
    if not of_layer or not any(f".{part}_proj." in name for part in ("q", "k", "gate", "up")):
        return name, tensor
    return name, tensor + 1 if tensor.dtype is torch.uint8 else tensor * 2  # one more in an exponent is twice as much


def _zero_quant_bias(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    return name, torch.zeros_like(tensor) if name.endswith(".quant_bias") else tensor


def _swap_gate_up(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    return name.replace("gate_proj", "#").replace("up_proj", "gate_proj").replace("#", "up_proj"), tensor


def _permute_experts(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    head, found, tail = name.partition(".experts.")
    expert, _, leaf = tail.partition(".")
    return (f"{head}.experts.{(int(expert) + 1) % 4}.{leaf}" if found else name), tensor


def _quarter_cache_scale(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    return name, tensor / 4 if name.endswith(".kv_cache_scale") else tensor


def _swap_cache_scales(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    if not name.endswith((".kv_cache_scale", ".kv_cache_offset")):
        return name, tensor
    return name.replace("k_proj", "#").replace("v_proj", "k_proj").replace("#", "v_proj"), tensor


FAULTS = {
    "scale doubled": _double_scale,
    "quant_bias zeroed": _zero_quant_bias,
    "gate and up swapped": _swap_gate_up,
    "experts permuted": _permute_experts,
    "cache scale quartered": _quarter_cache_scale,
    "cache scales of k and v swapped": _swap_cache_scales,
}


class Subject:
    """A checkpoint built and loaded by upstream, with the weights it is compared with."""

    def __init__(self, checkpoint: str, source: str | None, fault: str | None) -> None:
        self.config = lab.make_config(checkpoint)
        self.model = lab.build(self.config)
        self.quantized: Weights = dict(lab.iter_weights(checkpoint))
        lab.load(self.model, self.config, self._given(fault))
        lab.process_weights(self.model, self.config)
        self.sizes = self.config.model_config.hf_text_config
        self.described = json.loads((Path(checkpoint) / "quant_model_description.json").read_text())
        self.names = "model.language_model." if hasattr(self.model, "language_model") else "model."
        self.model = getattr(self.model, "language_model", self.model).model
        self.floats = {n: t.float() for n, t in (lab.iter_weights(source) if source else self._dequantized())}
        self.turn = self._turn()

    def _given(self, fault: str | None) -> Iterator[tuple[str, Tensor]]:
        no_cache = fits(lab.installed_pair().vllm_ascend, "<0.14")  # has W8A8_MIX, but no C8 that takes these names
        for name, tensor in self.quantized.items():
            if not (no_cache and ".kv_cache_" in name):
                yield FAULTS[fault](name, tensor) if fault else (name, tensor)

    def _dequantized(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self.quantized.items():
            yield name, dequantized(name, self.quantized) if f"{name}_scale" in self.quantized else tensor

    def _turn(self) -> Tensor:
        """The rotation from the source's hidden states to the checkpoint's; mostly the identity."""
        name = f"{self.names}embed_tokens.weight"
        turn = torch.linalg.lstsq(self.floats[name], self.quantized[name].float()).solution
        exact = _relative(self.floats[name] @ turn, self.quantized[name].float())
        square = _relative(turn @ turn.T, torch.eye(len(turn)))
        assert exact < 0.01, f"the checkpoint is not made from this source: embeddings differ by {exact}"
        assert square < 0.02, f"the embeddings differ by more than a rotation: {square}"
        return turn

    def scheme(self, name: str) -> str:
        found: str = self.described[f"{name}.weight"]
        return found


def dequantized(name: str, quantized: Weights) -> Tensor:
    """float32 weight ``[N, K]``: E4M3 with an E8M0 byte for each 32 along K, or int8 less its offset by the row's scale."""
    value, scale = quantized[name].float(), quantized[f"{name}_scale"]
    if scale.dtype is torch.uint8:
        return value * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    offset = quantized[f"{name}_offset"].float()
    return (value - offset) * scale.float()


def errors(
    checkpoint: str,
    source: str | None = None,
    fault: str | None = None,
    consumer: bool = False,
    experts: bool = True,
) -> Any:
    """Relative errors by ``layer.part``, and the schemes of the parts. ``consumer``: the static half of W8A8_MIX. Without
    ``experts`` a MoE block is left out.
    """
    subject = Subject(checkpoint, source, fault)
    if consumer:
        for module in subject.model.modules():
            if hasattr(module, "is_kv_consumer"):
                module.is_kv_consumer = True
    found: dict[str, float] = {}
    schemes: dict[str, str] = {}
    with lab.forward_context(subject.config, TOKENS):
        for number, layer in enumerate(subject.model.layers):
            parts = _attention(subject, number, layer)
            if experts or f"{subject.names}layers.{number}.mlp.gate.weight" not in subject.floats:
                parts |= _mlp(subject, number, layer)
            for part, (error, name) in parts.items():
                found[f"{number}.{part}"] = error
                schemes[f"{number}.{part}"] = subject.scheme(name)
    return {"errors": found, "schemes": schemes}


def _input(subject: Subject, seed: int, norm: str) -> tuple[Tensor, Tensor]:
    """A hidden state for the checkpoint's layer, and the source's norm of it before it was turned."""
    hidden = _hidden(seed, subject.sizes.hidden_size)
    turned = hidden if _is_identity(subject.turn) else (hidden.float() @ subject.turn).to(hidden.dtype)
    return turned, _norm(hidden, subject.floats[norm], subject.sizes.rms_norm_eps)


def _is_identity(turn: Tensor) -> bool:
    return _relative(turn, torch.eye(len(turn))) < 0.01


def _attention(subject: Subject, number: int, layer: Any) -> dict[str, tuple[float, str]]:
    names = f"{subject.names}layers.{number}."
    hidden, normed = _input(subject, number, f"{names}input_layernorm.weight")
    expected = [normed @ subject.floats[f"{names}self_attn.{part}_proj.weight"].T for part in "qkv"]
    qkv = _only(layer.self_attn.qkv_proj(_only(layer.input_layernorm(hidden)))).float()
    got = qkv.split([part.shape[-1] for part in expected], -1)
    return {
        part: (_relative(value, wanted), f"{names}self_attn.{part}_proj")
        for part, value, wanted in zip("qk", got, expected)
    }


def _mlp(subject: Subject, number: int, layer: Any) -> dict[str, tuple[float, str]]:
    names = f"{subject.names}layers.{number}."
    hidden, normed = _input(subject, 100 + number, f"{names}post_attention_layernorm.weight")
    x = _only(layer.post_attention_layernorm(hidden))
    of_mlp = {name: tensor for name, tensor in subject.floats.items() if name.startswith(f"{names}mlp.")}
    if f"{names}mlp.gate.weight" in of_mlp:
        value = _only(layer.mlp((normed * LOUD).to(torch.bfloat16)))
        wanted = _experts((normed * LOUD).to(torch.bfloat16).float(), f"{names}mlp.", subject.sizes, of_mlp)
        return {"moe": (_relative(value, wanted), f"{names}mlp.experts.0.gate_proj")}
    gate, up, down = (of_mlp[f"{names}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    halves = _only(layer.mlp.gate_up_proj(x)).float().chunk(2, -1)
    whole = _only(layer.mlp(x)).float() @ subject.turn.T
    found = {"gate": (_relative(halves[0], normed @ gate.T), f"{names}mlp.gate_proj")}
    wanted = (silu(normed @ gate.T) * (normed @ up.T)) @ down.T
    return {**found, "mlp": (_relative(whole, wanted), f"{names}mlp.gate_proj")}


def _experts(x: Tensor, names: str, sizes: Any, floats: Weights) -> Tensor:
    weights, chosen = (x @ floats[f"{names}gate.weight"].T).softmax(-1).topk(sizes.num_experts_per_tok, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for expert in range(sizes.num_experts):
        gate, up, down = (floats[f"{names}experts.{expert}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        out += (silu(x @ gate.T) * (x @ up.T)) @ down.T * (weights * (chosen == expert)).sum(-1, keepdim=True)
    return out


def cache(checkpoint: str, source: str, fault: str | None = None) -> dict[str, float]:
    """Relative errors of k and v of each layer after the int8 KV cache, with the scales that upstream's layer holds."""
    subject = Subject(checkpoint, source, fault)
    found: dict[str, float] = {}
    with lab.forward_context(subject.config, TOKENS):
        for number, layer in enumerate(subject.model.layers):
            names = f"{subject.names}layers.{number}.self_attn."
            _, normed = _input(subject, number, f"{subject.names}layers.{number}.input_layernorm.weight")
            k, v = (normed @ subject.floats[f"{names}{part}_proj.weight"].T for part in "kv")
            heads = k.reshape(TOKENS, -1, subject.sizes.head_dim)
            k = _norm(heads, subject.floats[f"{names}k_norm.weight"], subject.sizes.rms_norm_eps).flatten(1)
            v = v / _smoothing(subject, layer, number, v)
            for part, value in (("k", k), ("v", v)):
                scale, offset = (
                    getattr(layer.self_attn.attn, f"{part}_cache_{leaf}").float().flatten()
                    for leaf in ("scale", "offset")
                )
                quantized = (value / scale + offset).round().clamp(-128, 127)
                found[f"{number}.{part}"] = _relative((quantized - offset) * scale, value)
    return found


def _smoothing(subject: Subject, layer: Any, number: int, wanted: Tensor) -> Tensor:
    """How much smaller than the source's each channel of the checkpoint's v is."""
    hidden, _ = _input(subject, number, f"{subject.names}layers.{number}.input_layernorm.weight")
    got = _only(layer.self_attn.qkv_proj(_only(layer.input_layernorm(hidden)))).float()[:, -wanted.shape[-1] :]
    return (wanted * got).sum(0) / got.pow(2).sum(0)


def weight_only(checkpoint: str, fault: str | None = None) -> dict[str, float]:
    """Relative errors of the W8A16 projections of a checkpoint whose experts upstream does not build, layer by layer."""
    from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear

    config = lab.make_config(checkpoint)
    quantized = dict(lab.iter_weights(checkpoint))
    sizes = config.model_config.hf_text_config
    config.quant_config.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    lab.start(config)
    found: dict[str, float] = {}
    for number in range(sizes.num_hidden_layers):
        prefix = f"model.layers.{number}.self_attn."
        with lab.running(config):
            heads = (sizes.head_dim, sizes.num_attention_heads, sizes.num_key_value_heads)
            qkv = QKVParallelLinear(
                sizes.hidden_size, *heads, bias=False, quant_config=config.quant_config, prefix=f"{prefix}qkv_proj"
            )
            width = sizes.num_attention_heads * sizes.head_dim
            out = RowParallelLinear(
                width, sizes.hidden_size, bias=False, quant_config=config.quant_config, prefix=f"{prefix}o_proj"
            )
        for layer, shards in ((qkv, "qkv"), (out, "o")):
            _load(layer, prefix, shards, quantized, fault)
            with lab.running(config):
                layer.quant_method.process_weights_after_loading(layer)
            wanted = torch.cat([dequantized(f"{prefix}{part}_proj.weight", quantized) for part in shards])
            x = _hidden(number, wanted.shape[1])
            with lab.forward_context(config, TOKENS):
                found[f"{number}.{shards}"] = _relative(_only(layer(x)), x.float() @ wanted.T)
    return found


def _load(layer: Any, prefix: str, shards: str, quantized: Weights, fault: str | None) -> None:
    for part in shards:
        for leaf in ("weight", "weight_scale", "weight_offset"):
            name = f"{prefix}{part}_proj.{leaf}"
            tensor = quantized[name]
            if fault and leaf == "weight_scale":
                tensor = tensor * 2
            parameter = getattr(layer, leaf)
            parameter.weight_loader(parameter, tensor, *([part] if len(shards) > 1 else []))
