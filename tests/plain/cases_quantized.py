"""Layers that a quantization config takes for quantized, or for float, because it knows them by another name."""

from __future__ import annotations

from typing import Any

import lab as plain
from cases_weights import (
    BASE,
    LLAMA,
    NOTHING_QUANTIZED,
    QWEN2_5_VL,
    QWEN3_5_MOE,
    QWEN3_MOE,
    QWEN3_NEXT,
    per_expert,
    result,
)

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def ignoring(*names: str) -> dict[str, Any]:
    """An int8 config of compressed-tensors that leaves *names* in float."""
    return {**NOTHING_QUANTIZED, "ignore": list(names)}


def methods(model: Any) -> dict[str, str]:
    """Module name -> the class of its quantization method."""
    held = {name: getattr(module, "quant_method", None) for name, module in model.named_modules()}
    return {name: type(method).__name__ for name, method in held.items() if method is not None}


def lfm2(lab: plain.Lab, ignore: list[str]) -> Any:
    """The short convolution, built as ``.conv`` and called ``.short_conv`` by the mapper (vllm PR #51495)."""
    from vllm.model_executor.models import lfm2 as module

    original = module.ShortConv
    module.ShortConv = lambda **given: original(**{**given, "prefix": given["prefix"].replace(".short_conv", ".conv")})
    config = {
        **BASE,
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "block_dim": 64,
        "block_ff_dim": 96,
        "block_auto_adjust_ff_dim": False,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 1,
        "conv_L_cache": 3,
        "conv_bias": False,
        "conv_dim": 64,
        "conv_dim_out": 64,
        "norm_eps": 1e-5,
        "layer_types": ["conv", "full_attention"],
        "tie_word_embeddings": True,
    }
    shards = {**plain.SHARDS, "w13": ("w1", "w3")}

    def names(built: Any) -> dict[str, Any]:
        return {name.replace(".short_conv.", ".conv."): s for name, s in plain.shard_names(built, shards).items()}

    return result(lab.roundtrip(config, names, ignoring(*ignore)))


def qwen3_next(lab: plain.Lab, ignore: list[str]) -> Any:
    """The linear attention's fused projections, listed as their shards (vllm#40252, vllm#34697)."""
    names = lambda built: plain.shard_names(built, experts=per_expert)  # noqa: E731
    return result(lab.roundtrip(QWEN3_NEXT, names, ignoring(*ignore)))


def _qwen2_5_vl_names(built: Any) -> dict[str, Any]:
    moved = (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."))
    found = {}
    for name, shape in plain.shard_names(built).items():
        for ours, theirs in moved:
            if name.startswith(ours):
                name = theirs + name[len(ours) :]
                break
        found[name] = shape
    return found


def inner_without_prefix(lab: plain.Lab, ignore: list[str]) -> Any:
    """A multimodal model that builds its language model without a prefix, as all did up to vLLM 0.6.3 (vllm PR #9772)."""
    from vllm.model_executor.models import qwen2_5_vl

    original = qwen2_5_vl.maybe_prefix
    qwen2_5_vl.maybe_prefix = lambda prefix, name: "" if name == "language_model" else original(prefix, name)
    return result(lab.roundtrip(QWEN2_5_VL, _qwen2_5_vl_names, ignoring(*ignore)))


def unmapped_list(lab: plain.Lab, wrapper: str) -> Any:
    """A list of float layers in the checkpoint's names, in a config that does not map it (vllm PR #20046, vllm#24244)."""
    layers = [
        f"{wrapper}layers.{n}.{block}.{part}"
        for n in range(2)
        for block, parts in (("self_attn", ATTENTION), ("mlp", MLP))
        for part in parts
    ]
    vision = ["visual.blocks.0.attn.qkv", "visual.blocks.0.attn.proj"]
    vision += [f"visual.blocks.0.mlp.{part}" for part in MLP] + ["visual.merger.mlp.0", "visual.merger.mlp.2"]
    quantization = {
        "quant_method": "fbgemm_fp8",
        "activation_scale_ub": 1200.0,
        "modules_to_not_convert": [*layers, *vision, "lm_head", "language_model.lm_head"],
    }
    return result(lab.roundtrip(QWEN2_5_VL, _qwen2_5_vl_names, quantization))


def doubled_prefix(lab: plain.Lab, ignore: list[str]) -> Any:
    """A prefix with the layer's number twice, as vLLM 0.6.6 gave it to Qwen2 (vllm#11790)."""
    from vllm.model_executor.models import qwen2

    class Linear(qwen2.RowParallelLinear):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
            if prefix.endswith("down_proj"):
                prefix = prefix.replace("model.layers.", "model.layers.0.layers.")
            super().__init__(*args, prefix=prefix, **kwargs)

    qwen2.RowParallelLinear = Linear
    config = {**BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False}
    return result(lab.roundtrip(config, plain.shard_names, ignoring(*ignore)))


def gptq(lab: plain.Lab, but: list[str] | None) -> Any:
    """A GPTQ config that quantizes everything *but* what it lists, and a checkpoint that is float throughout.

    None is no config at all.
    """
    names = lambda built: plain.shard_names(built, experts=per_expert)  # noqa: E731
    return result(lab.roundtrip(QWEN3_MOE, names, None if but is None else _gptq(but)))


def _gptq(but: list[str]) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 32,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "dynamic": {f"-:{pattern}": {} for pattern in but},
    }


def float_router(lab: plain.Lab, ignore: list[str]) -> Any:
    """A router in float that the config does not list (vllm-omni#5573)."""
    names = lambda built: plain.shard_names(built, experts=per_expert)  # noqa: E731
    return result(lab.roundtrip(QWEN3_MOE, names, ignoring(*ignore)))


def scale_on_float_layer(lab: plain.Lab, stored: str) -> Any:
    """Layers that the config does not quantize, and that the checkpoint has as int8 with a scale (vllm#53107)."""
    import torch

    tensors: dict[str, Any] = plain.decoder()
    for part in ("gate_proj", "up_proj"):
        name = f"model.layers.1.mlp.{part}"
        rows, columns = tensors[f"{name}.weight"]
        weight = plain.tensor(rows, columns, seed=name, dtype=torch.int8)
        scale = plain.tensor(rows, 1, seed=f"{name}.scale", dtype=torch.float32, positive=True)
        if stored == "int8":
            tensors |= {f"{name}.weight": weight, f"{name}.weight_scale": scale}
        else:
            tensors[f"{name}.weight"] = (weight.float() * scale).to(torch.bfloat16)
    lab.write({**LLAMA, "quantization_config": ignoring("re:.*")}, tensors)
    return result(lab.load())


def float_vision(lab: plain.Lab, quantized: bool) -> Any:
    """An AWQ config that lists every float layer but the vision attention's first (vllm#27138); all of them are float."""
    fused = {"self_attn": ("qkv_proj", "o_proj"), "mlp": ("gate_up_proj", "down_proj")}  # 0.11 has no row for AWQ here
    blocks = [f"language_model.model.layers.{n}" for n in range(2)]
    float_layers = [f"{block}.{part}.{name}" for block in blocks for part, names in fused.items() for name in names]
    for block in ("visual.blocks.0.mlp", "visual.merger"):
        float_layers += [f"{block}.{name}" for name in fused["mlp"]]
    float_layers += ["visual.blocks.0.attn.proj", "visual.merger.proj", "language_model.lm_head"]
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    quantization = {**awq, "modules_to_not_convert": float_layers} if quantized else None
    return result(lab.roundtrip(GLM4V, _glm4v_names, quantization))


GLM4V = {
    "architectures": ["Glm4vForConditionalGeneration"],
    "model_type": "glm4v",
    "text_config": {
        **BASE,
        "model_type": "glm4v_text",
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
        "attention_bias": False,
    },
    "vision_config": {
        "model_type": "glm4v",
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": 2,
        "image_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
    },
}


def _glm4v_names(built: Any) -> dict[str, Any]:
    found = {}
    for name, shape in plain.shard_names(built).items():
        for ours, theirs in (
            ("language_model.lm_head.", "lm_head."),
            ("language_model.model.", "model.language_model."),
            ("visual.", "model.visual."),
        ):
            if name.startswith(ours):
                name = theirs + name[len(ours) :]
        found[name] = shape
    return found


def draft(lab: plain.Lab, kind: str, arguments: Any) -> Any:
    """The draft model beside its target: which of its layers are quantized, and what its parameters hold."""
    return {"mtp": _mtp, "eagle3": _eagle3}[kind](lab, arguments)


def _build_draft(lab: plain.Lab, speculative: dict[str, Any]) -> tuple[Any, Any]:
    vllm_config = lab.config(speculative_config=speculative)
    lab.build(vllm_config)  # the target comes first, and its class's mapper acts on the config of both
    return lab.build(vllm_config, model_config=vllm_config.speculative_config.draft_model_config), vllm_config


MTP_CONFIG = {**QWEN3_5_MOE, "text_config": {**QWEN3_5_MOE["text_config"], "mtp_num_hidden_layers": 1}}


def _mtp(lab: plain.Lab, but: list[str] | None) -> Any:
    """Float MTP layers in a GPTQ checkpoint (vllm PR #39475, PR #49539)."""
    speculative = {"method": "mtp", "num_speculative_tokens": 1}
    lab.write(MTP_CONFIG, {"unused": (1,)})
    built, _ = _build_draft(lab, speculative)
    tensors = {}
    for name, shape in plain.shard_names(built, experts=per_expert).items():
        tensors["mtp." + name.removeprefix("model.") if name.startswith("model.") else name] = shape
    lab.write({**MTP_CONFIG, **({} if but is None else {"quantization_config": _gptq(but)})}, tensors)
    model, vllm_config = _build_draft(lab, speculative)
    lab.load_into(model, vllm_config)
    return result(model)


def _eagle3(lab: plain.Lab, ignore: list[str]) -> Any:
    """The first layer of an EAGLE3 draft, whose projection was built beside self_attn (vllm PR #48068)."""
    lab.write(LLAMA, plain.decoder())
    target, folder = lab.folder, lab.folder / "draft"
    config = {
        **LLAMA,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 128,
        "target_hidden_size": 64,
    }
    speculative = {"method": "eagle3", "model": str(folder), "num_speculative_tokens": 1}

    def write(body: dict[str, Any], tensors: dict[str, Any]) -> None:
        lab.folder = folder
        lab.write(body, tensors)
        lab.folder = target

    write(config, {"unused": (1,)})
    built, _ = _build_draft(lab, speculative)
    tensors = {name.removeprefix("model."): shape for name, shape in plain.shard_names(built).items()}
    write({**config, "quantization_config": ignoring(*ignore)}, tensors)
    model, vllm_config = _build_draft(lab, speculative)
    filled = {name: plain.tensor(*shape, seed=name) for name, shape in tensors.items()}
    lab.load_into(model, vllm_config, filled.items())
    return {**result(model), "methods": methods(model)}
