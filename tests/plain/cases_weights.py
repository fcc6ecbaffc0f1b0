"""Checkpoints whose tensor names the release's loader does not take, or drops in silence."""

from __future__ import annotations

import re
from typing import Any

import lab as plain

HIDDEN, VOCAB = 64, 128
BASE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
MOE: dict[str, Any] = {
    **BASE,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "shared_expert_intermediate_size": 32,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **BASE}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **BASE}
QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **MOE}
LINEAR_ATTENTION = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
    "full_attention_interval": 2,
    "partial_rotary_factor": 0.25,
}
QWEN3_NEXT = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", **MOE, **LINEAR_ATTENTION}
QWEN3_5 = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        **BASE,
        **LINEAR_ATTENTION,
        "head_dim": 32,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
    "vision_config": {
        "model_type": "qwen3_5",
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "patch_size": 2,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [],
        "in_channels": 3,
    },
}
QWEN3_5_MOE = {
    **QWEN3_5,
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {**MOE, **QWEN3_5["text_config"], "model_type": "qwen3_5_moe_text"},
}
QWEN3_5_MOE["text_config"]["rope_parameters"] = QWEN3_5["text_config"]["rope_parameters"]
QWEN3_5_SHARDS = {
    **plain.SHARDS,
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
NOTHING_QUANTIZED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
    "ignore": ["re:.*"],
}
FP8_CACHE = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}


def per_expert(name: str, parameter: Any) -> dict[str, Any]:
    """Expert tensors one by one, as most checkpoints have them."""
    block = name.split("experts.")[0] + "experts."
    if not name.endswith("weight"):  # experts that a release quantizes whatever the list says; no scales for them
        return {}
    count, rows, columns = parameter.shape
    if ".w2_" in name:
        return {f"{block}{e}.down_proj.weight": (rows, columns) for e in range(count)}
    parts = ("gate_proj", "up_proj")
    return {f"{block}{e}.{part}.weight": (rows // 2, columns) for e in range(count) for part in parts}


def result(model: Any) -> dict[str, Any]:
    """What is compared between the ways of a case."""
    return {"digests": plain.digests(model), "unwritten": plain.unwritten(model)}


def _names(built: Any) -> dict[str, Any]:
    return plain.shard_names(built, experts=per_expert)


def _without_scale_names() -> None:
    """AutoWeightsLoader as vllm#54623 has it in 0.27.1: it maps no names of cache scales."""
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
    from vllm.model_executor.models.utils import WeightsMapper

    QuantizationConfig.get_cache_scale_mapper = staticmethod(WeightsMapper)


def kv_scales(lab: plain.Lab, family: str, layout: str) -> Any:
    """FP8 key-value scales under the names of an exporter: vllm#25047, vllm#31872, vllm#54623."""
    import torch

    config = {"qwen3_moe": QWEN3_MOE, "qwen3_next": QWEN3_NEXT, "qwen3_5": QWEN3_5}[family]
    if (
        family == "qwen3_5"
    ):  # its releases ask the processor for AVX-512 before they build an FP8 cache; nothing runs here
        from vllm.v1.attention.backends import cpu_attn

        cpu_attn._get_attn_isa = lambda *args, **kwargs: "vec"
        _without_scale_names()
    quantization = {**NOTHING_QUANTIZED, "kv_cache_scheme": FP8_CACHE}

    def names(built: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, shape in (qwen3_5_names if family == "qwen3_5" else _names)(built).items():
            scale = re.fullmatch(r"(.*\.self_attn)\.attn\.([kv])_scale", name)
            if scale is None:
                if not name.endswith(("q_scale", "prob_scale")):
                    found[name] = shape
                continue
            parent, kind = scale.groups()
            moved = {"modelopt": f"{parent}.{kind}_proj.{kind}_scale", "plain": f"{parent}.{kind}_scale", "vllm": name}
            found[moved[layout]] = plain.tensor(1, seed=name, dtype=torch.float32, positive=True)
        return found

    return result(lab.roundtrip({**config, "quantization_config": quantization}, names))


def qwen3_5_names(built: Any, experts: Any = per_expert) -> dict[str, Any]:
    """Checkpoint names of Qwen3.5: its own prefixes, and the linear attention's projections apart."""
    key = 2 * 2 * 16 + 4 * 16
    rows = {"in_proj_qkvz": (key, 4 * 16), "in_proj_ba": (4, 4)}
    found = plain.shard_names(built, QWEN3_5_SHARDS, experts, rows)
    moved = {}
    for name, shape in found.items():
        for ours, theirs in (
            ("language_model.lm_head.", "lm_head."),
            ("language_model.model.", "model.language_model."),
            ("visual.", "model.visual."),
        ):
            if name.startswith(ours):
                name = theirs + name[len(ours) :]
        moved[name] = shape
    return moved


def suffixes(lab: plain.Lab, model_type: str, exporter: str) -> Any:
    """Static scales under Mistral's names (vllm PR #41982, PR #32859); int8 in place of FP8, which the CPU cannot build."""
    import torch

    config = {**LLAMA, "model_type": model_type}
    group = dict(NOTHING_QUANTIZED["config_groups"]["group_0"])
    group["weights"] = {**group["weights"], "strategy": "tensor"}
    group["input_activations"] = {**group["input_activations"], "strategy": "tensor", "dynamic": False}
    quantization = {**NOTHING_QUANTIZED, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    names = plain.decoder()
    tensors: dict[str, Any] = {}
    weight_scale, input_scale = {
        "vllm": ("weight_scale", "input_scale"),
        "mistral": ("weight_scale_inv", "activation_scale"),
    }[exporter]
    for name, shape in names.items():
        module = name.rpartition(".")[0]
        if not module.endswith("_proj"):
            tensors[name] = shape
            continue
        tensors[name] = plain.tensor(*shape, seed=name, dtype=torch.int8)
        for leaf, held in ((weight_scale, "weight_scale"), (input_scale, "input_scale")):
            tensors[f"{module}.{leaf}"] = plain.tensor(1, seed=f"{module}.{held}", dtype=torch.float32, positive=True)
    lab.write({**config, "quantization_config": quantization}, tensors)
    return result(lab.load())


def mamba2(lab: plain.Lab, prefix: str) -> Any:
    """Mamba-Codestral, whose checkpoint says ``model.`` (vllm#31108)."""
    config = {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "vocab_size": VOCAB,
        "state_size": 16,
        "expand": 2,
        "n_groups": 1,
        "num_heads": 8,
        "head_dim": 16,
        "conv_kernel": 4,
        "intermediate_size": 2 * HIDDEN,
        "tie_word_embeddings": False,
    }

    def names(built: Any) -> dict[str, Any]:
        found = {}
        for name, shape in plain.shard_names(built, {}).items():
            name = name.replace("mixer.A", "mixer.A_log") if name.endswith("mixer.A") else name
            found[prefix + name.removeprefix("backbone.") if name.startswith("backbone.") else name] = shape
        return found

    return result(lab.roundtrip(config, names))


def embedding(lab: plain.Lab, prefix: str) -> Any:
    """Qwen3-Embedding, whose checkpoint has no ``model.`` (vllm#21614)."""
    config = {**QWEN3, "tie_word_embeddings": True}
    lab.write(config, plain.decoder(prefix, qk_norm=True, head=""))
    return result(lab.load())


def extra_tensors(lab: plain.Lab, family: str, extra: list[str]) -> Any:
    """Tensors that only a quantized layer would take, in a checkpoint whose layer is float."""
    import torch

    config, arguments = {
        "qwen3_moe": (QWEN3_MOE, {"experts": 4, "qk_norm": True}),
        "llama": (LLAMA, {}),
    }[family]
    tensors: dict[str, Any] = plain.decoder(**arguments)
    for name in extra:
        tensors[name] = plain.tensor(HIDDEN, seed=name, dtype=torch.int32 if name.endswith("g_idx") else torch.float32)
    lab.write(config, tensors)
    return result(lab.load())


def auto_round_experts(lab: plain.Lab, expert_first: bool) -> Any:
    """The expert's number after the projection (auto-round#1464); float in place of int4, which the CPU cannot build."""

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        found = {one: plain.Spec.of(shape, one) for one, shape in per_expert(name, parameter).items()}
        if expert_first:
            return found
        return {re.sub(r"experts\.(\d+)\.(\w+)", r"experts.\2.\1", one): shape for one, shape in found.items()}

    return result(lab.roundtrip(QWEN3_5_MOE, lambda built: qwen3_5_names(built, experts)))


def qwen3_5_loader(lab: plain.Lab, loader: str = "", fused: bool = True) -> Any:
    """The loader of another release with expert parallelism (vllm PR #44953, vllm#45002)."""
    if loader:
        plain.adopt("qwen3_5", loader, (("Qwen3_5Model", "load_weights"),))

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0] + "experts."
        return {block + ("down_proj" if ".w2_" in name else "gate_up_proj"): tuple(parameter.shape)}

    names = lambda built: qwen3_5_names(built, experts)  # noqa: E731
    return result(lab.roundtrip(QWEN3_5_MOE, names, enable_expert_parallel=True))


def weight_update(lab: plain.Lab, prefix: str) -> Any:
    """Weights handed over in memory, twice, by a trainer that keeps the wrapper's names (ROLL#500)."""
    text = dict(QWEN3_5["text_config"])
    config = {**text, "architectures": ["Qwen3_5ForCausalLM"]}
    lab.write(config, {"unused": (1,)})
    vllm_config = lab.config()
    model = lab.build(vllm_config)
    names = qwen3_5_names(model)
    reported = []
    for step in ("first", "second"):
        tensors = {
            name.replace("model.", prefix, 1) if name.startswith("model.") else name: plain.tensor(
                *shape, seed=step + name
            )
            for name, shape in names.items()
        }
        reported.append(sorted(lab.load_into(model, vllm_config, tensors.items())))
    return {**result(model), "reported": reported}


QWEN2_5_VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    **BASE,
    "head_dim": 16,
    "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 2, 2]},
    "vision_config": {
        "model_type": "qwen2_5_vl",
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "patch_size": 2,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "fullatt_block_indexes": [0],
        "window_size": 8,
    },
}


def qwen2_5_vl(lab: plain.Lab, saved_by: str) -> Any:
    """A checkpoint saved by transformers 4.52 on a vLLM whose mapper does not know its names yet (vLLM 0.8.5 to 0.9.0)."""
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration as Model
    from vllm.model_executor.models.utils import WeightsMapper

    # The mapper as the report has it; that of 0.11 knows both layouts.
    Model.hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={"lm_head.": "language_model.lm_head.", "model.": "language_model.model."}
    )
    moved = {
        "4.51": (("language_model.model.", "model."), ("language_model.lm_head.", "lm_head.")),
        "4.52": (
            ("language_model.model.", "model.language_model."),
            ("language_model.lm_head.", "lm_head."),
            ("visual.", "model.visual."),
        ),
    }[saved_by]
    shards = {**plain.SHARDS, "visual-qkv": ()}

    def names(built: Any) -> dict[str, Any]:
        found = {}
        for name, shape in plain.shard_names(built, shards).items():
            for ours, theirs in moved:
                if name.startswith(ours):
                    name = theirs + name[len(ours) :]
                    break
            found[name] = shape
        return found

    return result(lab.roundtrip(QWEN2_5_VL, names))
