"""Checkpoints for the move of vLLM's expert parameters below ``routed_experts`` (vllm#41184)."""

from __future__ import annotations

from typing import Any

import lab as plain

HIDDEN, INTER, EXPERTS, VOCAB = 64, 32, 4, 128
ADOPTED: dict[str, tuple[tuple[str, str], ...]] = {
    "step3_text": (),
    "qwen3_vl_moe": (),
    "step3p5": (("Step3p5Model", "load_weights"),),
    "aria": (("AriaTextModel", "load_weights"),),
    "gpt_oss": (("GptOssModel", "_load_weights_other"), ("GptOssModel", "load_weights")),
    "qwen3_5": (("Qwen3_5Model", "load_weights"),),
}


def _adopt(module: str, loader: str) -> None:
    if loader:
        plain.adopt(module, loader, ADOPTED[module])


def _result(model: Any) -> dict[str, Any]:
    return {"digests": plain.digests(model), "unwritten": plain.unwritten(model)}


def _stacked(gate: str, up: str, down: str) -> Any:
    """Expert tensors that hold all experts, the gate and up projections apart (Step3)."""

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0]
        count, rows, columns = parameter.shape
        if ".w2_" in name:
            return {block + down: (count, rows, columns)}
        return {block + gate: (count, rows // 2, columns), block + up: (count, rows // 2, columns)}

    return experts


def dbrx(lab: plain.Lab) -> Any:
    """vllm#49004."""
    config = {
        "architectures": ["DbrxForCausalLM"],
        "model_type": "dbrx",
        "d_model": HIDDEN,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 128,
        "vocab_size": VOCAB,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {
            "ffn_hidden_size": INTER,
            "moe_num_experts": EXPERTS,
            "moe_top_k": 2,
            "ffn_act_fn": {"name": "silu"},
        },
    }

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0] + "experts.mlp."
        names = ("w2",) if ".w2_" in name else ("w1", "v1")
        return {block + one: (EXPERTS * INTER, HIDDEN) for one in names}

    model = lab.roundtrip(config, lambda built: plain.shard_names(built, {}, experts))
    return _result(model)


def step3_text(lab: plain.Lab, loader: str = "") -> Any:
    _adopt("step3_text", loader)
    config = {
        "architectures": ["Step3TextForCausalLM"],
        "model_type": "step3_text",
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_attention_groups": 1,
        "num_hidden_layers": 2,
        "max_seq_len": 128,
        "vocab_size": VOCAB,
        "moe_intermediate_size": INTER,
        "moe_num_experts": EXPERTS,
        "moe_top_k": 2,
        "max_position_embedding": 128,
        "share_expert_dim": 32,
        "share_q_dim": 32,
        "head_dim": 16,
        "moe_layers_enum": "1",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    experts = _stacked("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    rows = {"qkv_proj": (32, 16, 16)}
    return _result(lab.roundtrip(config, lambda built: plain.shard_names(built, experts=experts, rows=rows)))


STEP3P5 = {
    "architectures": ["Step3p5ForCausalLM"],
    "model_type": "step3p5",
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "num_hidden_layers": 2,
    "max_seq_len": 128,
    "max_position_embeddings": 128,
    "vocab_size": VOCAB,
    "use_moe": True,
    "moe_every_n_layer": 1,
    "moe_intermediate_size": INTER,
    "moe_num_experts": EXPERTS,
    "moe_top_k": 2,
    "share_expert_dim": 32,
    "head_dim": 16,
    "moe_layers_enum": "1",
    "use_head_wise_attn_gate": False,
    "rope_theta": 10000.0,
    "layer_types": ["full_attention", "full_attention", "full_attention"],
}


def step3p5(lab: plain.Lab, loader: str = "") -> Any:
    _adopt("step3p5", loader)
    return _result(lab.roundtrip(STEP3P5, _step3p5_names))


def _step3p5_names(built: Any) -> dict[str, Any]:
    experts = _stacked("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    found = plain.shard_names(built, experts=experts)
    return {name.replace(".moe.share_expert.", ".share_expert."): shape for name, shape in found.items()}


def qwen3_vl_moe(lab: plain.Lab, loader: str = "") -> Any:
    _adopt("qwen3_vl_moe", loader)
    config = {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "model_type": "qwen3_vl_moe",
        "text_config": {
            "model_type": "qwen3_vl_moe_text",
            "hidden_size": HIDDEN,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_hidden_layers": 2,
            "moe_intermediate_size": INTER,
            "num_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "vocab_size": VOCAB,
            "max_position_embeddings": 256,
            "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0},
            "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]},
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "patch_size": 2,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
            "in_channels": 3,
        },
    }

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0] + "experts."
        count, rows, columns = parameter.shape
        return {block + ("down_proj" if ".w2_" in name else "gate_up_proj"): (count, columns, rows)}

    def names(built: Any) -> dict[str, Any]:
        found = plain.shard_names(built, experts=experts)
        return {_qwen3_vl(name): shape for name, shape in found.items()}

    return _result(lab.roundtrip(config, names))


def _qwen3_vl(name: str) -> str:
    for ours, theirs in (
        ("language_model.lm_head.", "lm_head."),
        ("language_model.model.", "model.language_model."),
        ("visual.", "model.visual."),
    ):
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    return name


def aria(lab: plain.Lab, loader: str = "") -> Any:
    _adopt("aria", loader)
    config = {
        "architectures": ["AriaForConditionalGeneration"],
        "model_type": "aria",
        "projector_patch_to_query_dict": {"4": 4},
        "image_token_index": 9,
        "text_config": {
            "model_type": "aria_text",
            "hidden_size": HIDDEN,
            "intermediate_size": INTER,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_hidden_layers": 2,
            "moe_num_experts": EXPERTS,
            "moe_topk": 2,
            "moe_num_shared_experts": 1,
            "vocab_size": VOCAB,
            "max_position_embeddings": 128,
        },
        "vision_config": {
            "model_type": "idefics3_vision",
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 8,
            "patch_size": 4,
        },
    }

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0] + "experts."
        count, rows, columns = parameter.shape
        return {block + ("fc2.weight" if ".w2_" in name else "fc1.weight"): (count, columns, rows)}

    def names(built: Any) -> dict[str, Any]:
        found = plain.shard_names(built, experts=experts)
        return {_aria(name): shape for name, shape in found.items()}

    return _result(lab.roundtrip(config, names))


def _aria(name: str) -> str:
    for ours, theirs in (("lm_head.", "language_model.lm_head."), ("language_model.", "language_model.model.")):
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    return name


GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_scaling": None,
}


def gpt_oss(lab: plain.Lab, loader: str = "") -> Any:
    """vllm#45830: gpt-oss in bf16, biases included."""
    _adopt("gpt_oss", loader)

    def experts(name: str, parameter: Any) -> dict[str, Any]:
        block = name.split("experts.")[0] + "experts."
        leaf = "down_proj" if ".w2_" in name else "gate_up_proj"
        if name.endswith("_bias"):
            return {f"{block}{leaf}_bias": tuple(parameter.shape)}
        count, rows, columns = parameter.shape
        return {block + leaf: (count, columns, rows)}

    def names(built: Any) -> dict[str, Any]:
        found = plain.shard_names(built, experts=experts)
        return {
            name.replace(".attn.", ".self_attn.").replace("model.embedding.", "model.embed_tokens."): shape
            for name, shape in found.items()
        }

    return _result(lab.roundtrip(GPT_OSS, names))


def gpt_oss_quark(lab: plain.Lab, loader: str = "") -> Any:
    """The biases of a Quark checkpoint, one for each expert (vllm PR #45067); only biases, as the CPU has no MXFP4 experts."""
    if loader:
        # 0.24 calls an attribute of the experts otherwise; that is not what the report is about
        edits = {"mlp.experts.quant_method": "mlp.experts._quant_method"}
        plain.adopt("gpt_oss", loader, (("GptOssModel", "_load_weights_quark"),), edits)
    lab.write(GPT_OSS, {"unused": (1,)})
    vllm_config = lab.config()
    model = lab.build(vllm_config)
    model.model.config.quantization_config = {"quant_method": "quark"}
    tensors = {}
    for name, parameter in model.named_parameters():
        if name.endswith(("w13_bias", "w2_bias")):
            block = name.split("experts.")[0] + "experts."
            part = "down_proj" if "w2_" in name else "gate_up_proj"
            for expert in range(EXPERTS):
                tensors[f"{block}{expert}.{part}.bias"] = plain.tensor(parameter.shape[1], seed=f"{name}{expert}")
    lab.load_into(model, vllm_config, tensors.items())
    return {"digests": {name: digest for name, digest in plain.digests(model).items() if name.endswith("_bias")}}


def llama4_scales(lab: plain.Lab, loader: str = "") -> Any:
    """Static scales of FP8 experts below ``feed_forward`` (vllm PR #45047); the test makes the parameter that FP8 makes."""
    import torch

    if loader:
        plain.adopt("llama4", loader, (("Llama4Model", "load_weights"),))
    config = {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "intermediate_size_mlp": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "use_qk_norm": False,
        "attention_chunk_size": 64,
        "rope_scaling": None,
    }
    lab.write(config, {"unused": (1,)})
    vllm_config = lab.config()
    model = lab.build(vllm_config)
    tensors = {}
    for name, module in list(model.named_modules()):
        if name.endswith("experts.routed_experts"):
            module.register_parameter("w2_input_scale", torch.nn.Parameter(torch.ones(EXPERTS), requires_grad=False))
            asked = name.removesuffix(".routed_experts") + ".w2_input_scale"
            tensors[asked] = plain.tensor(EXPERTS, seed=asked, dtype=torch.float32)
    lab.load_into(model, vllm_config, tensors.items())
    return {
        "digests": {name: digest for name, digest in plain.digests(model).items() if name.endswith("w2_input_scale")}
    }


def step3p5_mtp(lab: plain.Lab) -> Any:
    """Step3.5's draft, whose loader asks the old names to this day and compares what it wrote with all names it was given."""
    config = {
        **STEP3P5,
        "num_nextn_predict_layers": 1,
        "moe_layers_enum": "1,2",
        "layer_types": None,  # the config would cut it to the target's layers
    }
    lab.write(config, {"unused": (1,)})
    vllm_config = lab.config(speculative_config={"method": "mtp", "num_speculative_tokens": 1})
    lab.build(vllm_config)
    model = lab.build(vllm_config, model_config=vllm_config.speculative_config.draft_model_config)
    tensors = {}
    experts = _stacked("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    for name, shape in plain.shard_names(model, experts=experts).items():
        tensors[name.replace(".mtp_block.", ".")] = plain.tensor(*shape, seed=name)
    lab.load_into(model, vllm_config, tensors.items())
    return _result(model)
