"""What the tests do in an upstream environment: build, load, compare. Each function runs in a child of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascend_hotfix import scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.sim import lab
from kinds import made

DATA = Path(__file__).resolve().parents[1] / "data" / "checkpoints"
UNWRITTEN = 7.0


def checkpoint(name: str, **config: Any) -> Path:
    """A copy of a genuine checkpoint, with *config* put into its config.json."""
    folder = Path(tempfile.mkdtemp(prefix="kinds-")) / name
    shutil.copytree(DATA / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


class Built:
    """A model built from *folder* and loaded with its tensors, and what our ledger says of it."""

    def __init__(
        self,
        folder: Path,
        tensors: dict[str, Any] | None = None,
        *,
        draft: bool = False,
        meta: bool = False,
        **engine: Any,
    ) -> None:
        import torch

        scope.reset()
        device = "meta" if meta else "cpu"
        self.config = (lab.draft_config if draft else lab.make_config)(folder, **engine)
        self.model = lab.build(self.config, device)
        if draft:
            self.model, self.config = lab.build_draft(self.config, device)
        if not meta:
            for parameter in self.model.parameters():
                with contextlib.suppress(RuntimeError):
                    parameter.data.fill_(UNWRITTEN if parameter.dtype.is_floating_point else 7)
        weights = lab.iter_weights(folder, device) if tensors is None else iter(list(tensors.items()))
        self.loaded = lab.load(self.model, self.config, weights, device)
        self.parameters: dict[str, torch.Tensor] = dict(self.model.named_parameters())

    def unwritten(self) -> list[str]:
        """Float parameters of which nothing was loaded."""
        return [
            name
            for name, parameter in self.parameters.items()
            if parameter.dtype.is_floating_point and bool((parameter.float() == UNWRITTEN).all())
        ]

    def is_at(self, name: str, tensor: Any) -> bool:
        """Does parameter *name* hold exactly *tensor* (in the parameter's dtype)?"""
        import torch

        parameter = self.parameters[name]
        return parameter.shape == tensor.shape and torch.equal(parameter.float(), tensor.to(parameter.dtype).float())


def hits() -> dict[str, int]:
    """``patch.fix`` -> hits of every fix that did something."""
    return LEDGER.used()


def stored(folder: Path) -> dict[str, Any]:
    """All tensors of a checkpoint by name."""
    return dict(lab.iter_weights(folder))


def relative(found: Any, wanted: Any) -> float:
    """Relative distance of two tensors."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


@contextlib.contextmanager
def pipeline_rank(rank: int, ranks: int) -> Iterator[None]:
    """Makes this process one rank of a pipeline, as far as layers are built and loaded."""
    from vllm.distributed import parallel_state

    group = parallel_state.get_pp_group()
    held = group.rank_in_group, group.world_size, group.ranks, group.rank
    group.rank_in_group, group.world_size, group.ranks, group.rank = rank, ranks, list(range(ranks)), rank
    try:
        yield
    finally:
        group.rank_in_group, group.world_size, group.ranks, group.rank = held


# --- genuine checkpoints -------------------------------------------------------------------------------------------


def unwritten(name: str, pattern: str, draft: bool = False) -> dict[str, Any]:
    """Which parameters with *pattern* in their name are left as memory held them, and the values of the others."""
    built = Built(checkpoint(name), draft=draft)
    names = [one for one in built.parameters if pattern in one]
    left = [one for one in built.unwritten() if pattern in one]
    return {
        "names": names,
        "left": left,
        "sum": sum(float(built.parameters[one].abs().sum()) for one in names),
        "hits": hits(),
    }


def smoothing_bias() -> dict[str, Any]:
    """qwen3-w8a8 (W8A8_MIX): are the biases there, in order, and what do the layers answer?"""
    import torch

    folder = checkpoint("qwen3-w8a8")
    tensors = stored(folder)
    built = Built(folder)
    at = "model.layers.0."
    answer: dict[str, Any] = {"hits": hits(), "in place": {}, "error": {}, "static": {}}
    lab.process_weights(built.model, built.config)
    layers = built.model.model.layers[0]
    fused = {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")}
    for path, parts in fused.items():
        module = layers.get_submodule(path)
        names = [f"{at}{path.rpartition('.')[0]}.{part}_proj" for part in parts]
        bias = torch.cat([tensors[f"{name}.bias"] for name in names])
        weight = torch.cat(
            [tensors[f"{name}.weight"].float() * tensors[f"{name}.weight_scale"].float() for name in names]
        )
        held = getattr(module, "bias", None)
        answer["in place"][path] = held is not None and torch.equal(held.float(), bias.to(held.dtype).float())
        step = float(tensors[f"{names[0]}.input_scale"])  # inputs that the static path was calibrated for
        x = (torch.randn(7, weight.shape[1], generator=torch.Generator().manual_seed(1)) * 25 * step).to(torch.bfloat16)
        wanted = x.float() @ weight.T + bias.float()
        for kind, consumer in (("error", False), ("static", True)):
            module.is_kv_consumer = consumer
            with lab.forward_context(built.config, 7):
                found = module(x)
            answer[kind][path] = relative(found[0] if isinstance(found, tuple) else found, wanted)
    return answer


def kv_scales(name: str) -> dict[str, Any]:
    """Are the per-channel KV scales of *name* in place, element by element?"""
    folder = checkpoint(name)
    tensors = stored(folder)
    built = Built(folder)
    right, wrong = [], []
    for tensor, value in tensors.items():
        if ".kv_cache_" in tensor:
            stem, _, leaf = tensor.rpartition("_proj.kv_cache_")
            parameter = f"{stem.rpartition('.')[0]}.attn.{stem[-1]}_cache_{leaf}"
            whole = built.parameters[parameter].numel() == value.numel()
            ok = whole and built.is_at(parameter, value.reshape(built.parameters[parameter].shape))
            (right if ok else wrong).append(parameter)
    return {"right": len(right), "wrong": wrong, "hits": hits()}


def hunyuan() -> dict[str, Any]:
    """hunyuan_v1_moe-w8a8: prefixes, the router's value, and the shared expert's answer."""
    import torch

    folder = checkpoint("hunyuan_v1_moe-w8a8_default", use_qk_norm=True)
    tensors = stored(folder)
    built = Built(folder)
    at = "model.layers.1.mlp."
    shared = built.model.model.layers[1].mlp.shared_mlp
    router = tensors[f"{at}gate.wg.weight"].float() * tensors[f"{at}gate.wg.weight_scale"].float()
    lab.process_weights(built.model, built.config)
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    with lab.forward_context(built.config, 7):
        found = shared(x)

    def value(part: str) -> Any:
        stem = f"{at}shared_mlp.{part}_proj"
        return tensors[f"{stem}.weight"].float() * tensors[f"{stem}.weight_scale"].float()

    gate, up = x.float() @ value("gate").T, x.float() @ value("up").T
    wanted = (torch.nn.functional.silu(gate) * up) @ value("down").T
    return {
        "prefixes": [shared.gate_up_proj.prefix, shared.down_proj.prefix],
        "router": relative(built.parameters[f"{at}gate.weight"], router),
        "shared": relative(found, wanted),
        "unwritten": [one for one in built.unwritten() if "gate" in one],
        "hits": hits(),
    }


def whole(name: str, draft: bool = False, **config: Any) -> dict[str, Any]:
    """Loads a genuine checkpoint; what is left unwritten, and what was done."""
    built = Built(checkpoint(name, **config), draft=draft)
    return {"unwritten": built.unwritten(), "hits": hits()}


def mixed_shards() -> dict[str, Any]:
    """qwen3_next-w8a8 on 0.11: in_proj holds a dequantized in_proj_qkvz and a float in_proj_ba."""
    import torch

    folder = checkpoint("qwen3_next-w8a8")
    tensors = stored(folder)
    built = Built(folder)
    found = {}
    for name in (one for one in tensors if one.endswith("in_proj_qkvz.weight")):
        stem = name.removesuffix("in_proj_qkvz.weight")
        value = tensors[name].float() * tensors[f"{stem}in_proj_qkvz.weight_scale"].float()
        wanted = torch.cat([value, tensors[f"{stem}in_proj_ba.weight"].float()])
        found[stem] = relative(built.parameters[f"{stem}in_proj.weight"], wanted)
    return {"errors": found, "hits": hits()}


# --- descriptions --------------------------------------------------------------------------------------------------


def _made(config: dict[str, Any], tensors: dict[str, Any], **files: Any) -> Path:
    return made.write(Path(tempfile.mkdtemp(prefix="kinds-")) / "made", config, tensors, **files)


def _schemes(built: Built) -> list[str]:
    return sorted(
        {str(parameter.dtype) for name, parameter in built.parameters.items() if name.endswith("_proj.weight")}
    )


def description_file(name: str, beside: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Qwen3 whose description is in *name*; with *beside* there is a default file with that content too."""
    tensors, description = made.quantized(made.dense())
    files = {"quant_model_description": beside} if beside else {}
    folder = _made(made.QWEN3, tensors, **{name.removesuffix(".json"): description}, **files)
    built = Built(folder)
    return {"dtypes": _schemes(built), "unwritten": built.unwritten(), "hits": hits()}


def description_in_config() -> dict[str, Any]:
    """config.json has a quantization_config that says nothing of any layer; the description file has it all."""
    tensors, description = made.quantized(made.dense())
    config = {**made.QWEN3, "quantization_config": {"quant_method": "ascend", "group_size": 0, "own": 1}}
    built = Built(_made(config, tensors, quant_model_description=description))
    held = built.config.quant_config.quant_description
    return {"dtypes": _schemes(built), "unwritten": built.unwritten(), "own": held.get("own"), "hits": hits()}


def r1_w4a8() -> dict[str, Any]:
    """DeepSeek-R1-W4A8 as the report has it: model_type deepseekv2, another file name, no group_size."""
    shapes = made.deepseek()
    tensors, description = made.quantized(shapes)
    config = {**made.DEEPSEEK_V3, "model_type": "deepseekv2", "quantization_config": {"fmt": "e4m3"}}
    folder = _made(config, tensors, quant_model_description_w8a8_dynamic=description)
    built = Built(folder)
    held = built.config.quant_config.quant_description
    return {
        "model_type": built.config.model_config.hf_config.model_type,
        "int8": str(built.parameters["model.layers.0.mlp.down_proj.weight"].dtype),
        "group_size": held.get("group_size"),
        "unwritten": built.unwritten(),
        "hits": hits(),
    }


def group_size(schemes: str) -> Any:
    """What the description says of group_size, where the file of a checkpoint of *schemes* does not."""
    scope.reset()
    tensors, description = made.quantized(made.deepseek())
    description = {key: schemes if value == "W8A8_DYNAMIC" else value for key, value in description.items()}
    config = lab.make_config(_made(made.DEEPSEEK_V3, tensors, quant_model_description=description))
    return config.quant_config.quant_description.get("group_size")


# --- KV cache ------------------------------------------------------------------------------------------------------


def _kv_methods(model: Any) -> dict[str, str]:
    return {
        name: type(module.quant_method).__name__
        for name, module in model.named_modules()
        if name.endswith(".attn") and getattr(module, "quant_method", None) is not None
    }


def kv_layer_without_scales() -> dict[str, Any]:
    """qwen3-w8a8c8 whose layer 1 has no KV scales."""
    folder = checkpoint("qwen3-w8a8c8")
    path = folder / "quant_model_description.json"
    lost = "model.layers.1."
    description = {
        k: v for k, v in json.loads(path.read_text()).items() if not (k.startswith(lost) and "kv_cache" in k)
    }
    path.write_text(json.dumps(description))
    tensors = {k: v for k, v in stored(folder).items() if not (k.startswith(lost) and "kv_cache" in k)}
    built = Built(folder, tensors)
    return {"methods": _kv_methods(built.model), "hits": hits()}


def kv_of_a_draft() -> dict[str, Any]:
    """qwen3_5-w8a8 with C8 scales described for layer 0 of the target and none for the MTP layer."""
    folder = checkpoint("qwen3_5-w8a8")
    path = folder / "quant_model_description.json"
    description = json.loads(path.read_text())
    scales = {
        f"model.language_model.layers.0.self_attn.{p}_proj.kv_cache_{q}": "C8"
        for p in "kv"
        for q in ("scale", "offset")
    }
    path.write_text(json.dumps({**description, "kv_cache_type": "C8", **scales}))
    built = Built(folder, draft=True)
    return {"methods": _kv_methods(built.model), "hits": hits()}


# --- drafts and pipelines ------------------------------------------------------------------------------------------


def detected_draft(name: str) -> dict[str, Any]:
    """A checkpoint served without --quantization, with its own MTP layers as the draft."""
    from vllm.model_executor.models.utils import get_draft_quant_config

    scope.reset()
    config = lab.draft_config(checkpoint(name), quantization=None)
    held = get_draft_quant_config(config)
    return {
        "target": config.model_config.quantization,
        "draft": config.speculative_config.draft_model_config.quantization,
        "described": len(getattr(held, "quant_description", None) or {}),
        "hits": hits(),
    }


def eagle_layers() -> dict[str, Any]:
    """The prefix of the first layer of an Eagle3 draft on rank 1 of 2, for a target of four layers."""
    scope.reset()
    target = _made({**made.QWEN3, "num_hidden_layers": 4}, made.floats(made.dense(layers=4)))
    config = made.text_config(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", num_hidden_layers=1, draft_vocab_size=made.VOCAB
    )
    draft = _made(config, {"unused": made.values("unused", (1, 1))})
    speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 1}
    vllm_config = lab.make_config(target, quantization=None, speculative_config=speculative)
    lab.build(vllm_config, "meta")
    vllm_config.parallel_config.pipeline_parallel_size, vllm_config.parallel_config.rank = 2, 1
    model = lab._initialize(vllm_config, "meta", model_config=vllm_config.speculative_config.draft_model_config)
    counted = vllm_config.model_config.get_num_layers(vllm_config.parallel_config)
    return {"prefix": model.model.layers[0].self_attn.attn.layer_name, "counted": counted, "hits": hits()}


def pipeline_kv_scales(rank: int) -> dict[str, Any]:
    """One of two pipeline ranks of a Qwen3-MoE with an INT8 KV cache."""
    import torch

    scope.reset()
    tensors, description = made.quantized(made.moe())
    description["kv_cache_type"] = "C8"
    for number in range(made.LAYERS):
        for part in "kv":
            stem = f"model.layers.{number}.self_attn.{part}_proj.kv_cache_"
            tensors |= {f"{stem}scale": torch.full((1,), 0.5), f"{stem}offset": torch.full((1,), float(number))}
            description |= {f"{stem}scale": "C8", f"{stem}offset": "C8"}
    folder = _made(made.QWEN3_MOE, tensors, quant_model_description=description)
    config = lab.make_config(folder)
    lab.start(config)
    with pipeline_rank(rank, 2):
        model = lab.build(config)
        lab.load(model, config, iter(list(tensors.items())))
    named = dict(model.named_parameters())
    at = f"model.layers.{rank}.self_attn.attn."
    return {
        "scale": named[f"{at}k_cache_scale"].flatten().tolist(),
        "offset": named[f"{at}v_cache_offset"].flatten().tolist(),
        "hits": hits(),
    }


# --- shared indexers -----------------------------------------------------------------------------------------------


def shared_indexer() -> dict[str, Any]:
    """glm_5-w8a8 as GLM-5.2: layer 1 has no indexer of its own. What does each layer choose?"""
    import torch
    from vllm_ascend.attention import sfa_v1

    folder = checkpoint("glm_5-w8a8", indexer_types=["full", "shared"])
    path, lost = folder / "quant_model_description.json", "model.layers.1.self_attn.indexer."
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if not k.startswith(lost)}))
    tensors = {k: v for k, v in stored(folder).items() if not k.startswith(lost)}
    calls: list[int] = []

    def choose(self: Any, *_: Any, **__: Any) -> Any:
        calls.append(id(self))
        return torch.tensor([len(calls)])

    sfa_v1.AscendSFAImpl.indexer_select_post_process = choose
    built = Built(folder, tensors)
    impls = [
        module.impl
        for _, module in built.model.named_modules()
        if type(getattr(module, "impl", None)).__name__ == "AscendSFAImpl"
    ]
    chosen = [[impl.indexer_select_post_process(x=None).tolist() for impl in impls] for _ in range(2)]
    left = [name for name in built.unwritten() if "layers.1.self_attn.indexer" in name]
    return {"chosen": chosen, "left": left, "hits": hits()}


# --- tensors -------------------------------------------------------------------------------------------------------


def _fused(tensors: dict[str, Any], parts: tuple[str, ...], fused: str) -> dict[str, Any]:
    """The tensors with the rows of *parts* put together, as a sharded export has them."""
    import torch

    found = dict(tensors)
    for name in list(tensors):
        if f".{parts[0]}." in name:
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            found[name.replace(f".{parts[0]}.", f".{fused}.")] = torch.cat([found.pop(one) for one in names])
    return found


def fused_already() -> dict[str, Any]:
    """A Qwen3 whose checkpoint has qkv_proj and gate_up_proj, compared with the parameters."""
    tensors, description = made.quantized(made.dense())
    fused = _fused(
        _fused(tensors, ("q_proj", "k_proj", "v_proj"), "qkv_proj"), ("gate_proj", "up_proj"), "gate_up_proj"
    )
    built = Built(_made(made.QWEN3, fused, quant_model_description=description), fused)
    return {"wrong": [name for name in fused if not built.is_at(name, fused[name])], "hits": hits()}


def experts_in_one_tensor() -> dict[str, Any]:
    """A float Qwen3-MoE whose experts come as Hugging Face's fused tensors."""
    import torch

    tensors = made.floats(made.moe())
    fused = {name: value for name, value in tensors.items() if ".experts." not in name}
    for number in range(made.LAYERS):
        at = f"model.layers.{number}.mlp.experts."
        each = [
            [tensors[f"{at}{e}.{part}_proj.weight"] for e in range(made.EXPERTS)] for part in ("gate", "up", "down")
        ]
        fused[f"{at}gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(each[0], each[1], strict=True)])
        fused[f"{at}down_proj"] = torch.stack(each[2])
    built = Built(_made(made.QWEN3_MOE, tensors), fused, quantization=None)
    wrong = []
    for name, parameter in built.parameters.items():
        at, _, leaf = name.replace(".routed_experts.", ".").rpartition(".w")
        if leaf in ("13_weight", "2_weight"):
            wanted = fused[f"{at}.{'gate_up_proj' if leaf == '13_weight' else 'down_proj'}"]
            if not torch.equal(parameter.float(), wanted.float()):
                wrong.append(name)
    return {"wrong": wrong, "unwritten": built.unwritten(), "hits": hits()}


def _as_fp8(folder: Path, scale: str = "weight_scale_inv", only: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """FP8 tensors in blocks of 128 with the names of a checkpoint, and the float values that they stand for."""
    import torch

    held = stored(folder)
    tensors, wanted = {}, {}
    for name, tensor in held.items():
        stem = name.removesuffix("weight")
        quantized = name.endswith(".weight") and tensor.dtype == torch.int8
        if only and only not in name:
            tensors[name] = tensor
        elif quantized or (only and name.endswith(".weight")):
            value = made.values(name, tuple(tensor.shape))
            blocks = torch.ones(-(-tensor.shape[0] // 128), -(-tensor.shape[1] // 128)) * 0.003
            spread = blocks.repeat_interleave(128, 0)[: tensor.shape[0]].repeat_interleave(128, 1)[:, : tensor.shape[1]]
            tensors[name] = (value / spread).to(torch.float8_e4m3fn)
            tensors[f"{stem}{scale}"] = blocks
            wanted[name] = tensors[name].float() * spread
        elif not any(name.startswith(f"{one.removesuffix('weight')}") for one in held if held[one].dtype == torch.int8):
            tensors[name] = tensor
    return tensors, wanted


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}


def block_fp8(name: str, config_says_so: bool = True, **config: Any) -> dict[str, Any]:
    """An FP8 checkpoint of the family of *name*, served without --quantization."""
    folder = checkpoint(name, **config, **({"quantization_config": FP8} if config_says_so else {}))
    (folder / "quant_model_description.json").unlink()
    tensors, wanted = _as_fp8(folder)
    built = Built(folder, tensors, quantization=None)
    errors = [relative(built.parameters[one], value) for one, value in wanted.items() if one in built.parameters]
    first = next(one for one in wanted if ".experts.0." in one and one.rsplit(".", 2)[1] in ("gate_proj", "w1"))
    number = first.split(".")[2]
    expert = next(p for one, p in built.parameters.items() if one.endswith("w13_weight") and f"layers.{number}." in one)
    errors.append(relative(expert[0][: wanted[first].shape[0]], wanted[first]))
    floats = {str(p.dtype) for p in built.parameters.values()}
    return {"compared": len(errors), "worst": max(errors), "dtypes": sorted(floats), "hits": hits()}


def fp8_wo_a(draft: bool) -> dict[str, Any]:
    """deepseek_v4-w8a8 whose wo_a comes as FP8 with a scale of blocks."""
    folder = checkpoint("deepseek_v4-w8a8")
    tensors, wanted = _as_fp8(folder, scale="scale", only=".wo_a.")
    built = Built(folder, tensors, draft=draft)
    found = {name: parameter for name, parameter in built.parameters.items() if name.endswith("wo_a.weight")}
    wanted = {name: value for name, value in wanted.items() if name.startswith("mtp." if draft else "layers.")}
    # the loader lays the matrix out by groups of heads: the same values, in another order
    pairs = [
        (found[a].flatten().sort()[0], wanted[b].flatten().sort()[0])
        for a, b in zip(sorted(found), sorted(wanted), strict=True)
    ]
    return {"worst": max(relative(a, b) for a, b in pairs), "layers": len(found), "hits": hits()}


# --- other quantization configs --------------------------------------------------------------------------------------


QUARK = {
    "quant_method": "quark",
    "export": {"kv_cache_group": [], "pack_method": "reorder"},
    "global_quant_config": {
        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, "is_dynamic": False},
        "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, "is_dynamic": True},
    },
    "layer_quant_config": {},
    "layer_type_quant_config": {},
    "algo_config": None,
}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            },
        }
    },
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "lm_head": False}
BASES = {"quark": QUARK, "moe_wna16": AWQ, "compressed-tensors": COMPRESSED}


def skipped(
    method: str,
    listed: list[str],
    asked: dict[str, str],
    model_type: str,
    mapper: str = "",
    fused: dict[str, list[str]] | None = None,
    stored: list[str] | None = None,
) -> dict[str, Any]:
    """Which of the *asked* prefixes (prefix -> ``linear`` or ``experts``) a config takes for layers that are not quantized.

    The config is upstream's own for *method*, with *listed* in its list; *mapper* is a ``module:Class`` of a model whose
    mapper vLLM applies to the config. *stored* are tensors that the checkpoint has in float.
    """
    import importlib

    from vllm.model_executor.layers.linear import ReplicatedLinear
    from vllm.model_executor.layers.quantization import get_quantization_config

    scope.reset()
    folder = _made(made.QWEN3_MOE, {name: made.values(name, (1, 1)) for name in stored or ["unused"]})
    vllm_config = lab.make_config(folder, quantization=None)
    model = lab.build(vllm_config, "meta")
    experts = next(module for _, module in model.named_modules() if hasattr(module, "w13_weight"))
    vllm_config.model_config.hf_config.model_type = model_type
    key = {"quark": "exclude", "moe_wna16": "modules_to_not_convert"}.get(method, "ignore")
    if method == "moe_wna16":  # it asks for a GPU when it is made, and for nothing of it here
        from vllm.platforms import current_platform
        from vllm.platforms.interface import DeviceCapability

        type(current_platform).get_device_capability = classmethod(lambda cls, device_id=0: DeviceCapability(8, 0))
    config = get_quantization_config(method).from_config({**BASES[method], key: listed})
    config.packed_modules_mapping = fused or {}
    if mapper:
        module, _, name = mapper.partition(":")
        config.apply_vllm_mapper(getattr(importlib.import_module(module), name).hf_to_vllm_mapper)
    from ascend_hotfix.seams import ignore

    found = {}
    with lab.running(vllm_config, "meta"):
        ignore.arm_config(config, scope.current())
        linear = ReplicatedLinear(64, 64, bias=False)
        for prefix, kind in asked.items():
            try:
                chosen = type(config.get_quant_method(experts if kind == "experts" else linear, prefix)).__name__
            except Exception as error:
                chosen = f"{type(error).__name__}: {error}"[:120]
            found[prefix] = chosen
    return {"chosen": found, "hits": hits()}


def split_experts() -> dict[str, Any]:
    """Which method compressed-tensors gives to experts where it targets Linear, as vllm-ascend between 0.24 and PR #12665.

    Those builds give the scheme of Linear to a class FusedMoE, which vLLM has no longer, and take None for a target.
    """
    import importlib

    from vllm.model_executor.layers.quantization import get_quantization_config

    module = importlib.import_module("vllm_ascend.quantization.configs.compressed_tensors_config")
    found_target = module.find_matched_target

    def find(**asked: Any) -> str:
        target = found_target(**asked)
        if target is None:
            raise KeyError(target)
        return target

    module.find_matched_target = find
    module.AscendCompressedTensorsConfig._add_fused_moe_to_target_scheme_map = lambda self: (
        self.target_scheme_map.update(FusedMoE=self.target_scheme_map["Linear"])
    )
    scope.reset()
    scope.versions().update({"vllm-ascend": "0.25.1rc1"})
    vllm_config = lab.make_config(_made(made.QWEN3_MOE, {"unused": made.values("unused", (1, 1))}), quantization=None)
    model = lab.build(vllm_config, "meta")
    experts = next(layer for layer in model.modules() if hasattr(layer, "w13_weight"))
    config = get_quantization_config("compressed-tensors").from_config({**COMPRESSED, "ignore": ["lm_head"]})
    from ascend_hotfix.seams import ignore

    with lab.running(vllm_config, "meta"):
        ignore.arm_config(config, scope.current())
        chosen = config.get_quant_method(experts, EXPERTS)
    return {"chosen": type(chosen).__name__, "scheme": type(chosen.quant_method).__name__, "hits": hits()}


EXPERTS = "model.layers.1.mlp.experts"


def vision_layer(part: str) -> dict[str, Any]:
    """A vision part of Molmo below vision_backbone, with a config that lists its layers as float."""
    import types

    import torch
    from vllm.model_executor.layers.quantization import get_quantization_config
    from vllm.model_executor.models import molmo

    from ascend_hotfix.seams import layers

    scope.reset()
    vllm_config = lab.make_config(_made(made.QWEN3, {"unused": made.values("unused", (1, 1))}), quantization=None)
    lab.start(vllm_config)
    vision = {"image_emb_dim": 64, "image_mlp_dim": 128, "image_mlp_activations": "quick_gelu"}
    config = types.SimpleNamespace(**vision, hidden_size=64, intermediate_size=256)
    quantization = get_quantization_config("compressed-tensors").from_config(
        {**COMPRESSED, "ignore": ["re:vision_backbone.*"]}
    )
    with lab.running(vllm_config, "cpu"), torch.device("cpu"):
        if part == "ViTMLP":
            built = molmo.ViTMLP(config, quant_config=quantization)
        else:
            built = molmo.ImageProjectorMLP(config, input_dim=64, quant_config=quantization)
        model = torch.nn.Module()
        model.vision_backbone = torch.nn.Module()
        model.vision_backbone.part = built
        vllm_config.model_config.hf_config.model_type = "molmo"
        layers.adjust(model, scope.of_config(vllm_config), quantization)
    named = dict(model.named_parameters())
    weights = [name for name in named if name.endswith(".weight")]
    return {
        "names": sorted(name.rpartition(".")[2] for name in named),
        "dtypes": sorted({str(named[name].dtype) for name in weights}),
        "hits": hits(),
    }


def expert_scales_of_rank(rank: int) -> dict[str, Any]:
    """qwen3_moe-w4a8 on one of two tensor-parallel ranks: is the rank's part of w2's scale_bias in place?"""
    import torch
    from vllm.distributed import parallel_state

    scope.reset()
    folder = checkpoint("qwen3_moe-w4a8")
    tensors = stored(folder)
    config = lab.make_config(folder)
    lab.start(config)
    for group in (parallel_state._TP, getattr(parallel_state, "_EP", None)):
        if group is not None:
            group.rank_in_group, group.world_size = rank, 2
    model = lab.build(config)
    experts = next(module for _, module in model.named_modules() if hasattr(module, "w2_scale_bias"))
    number = next(
        int(b) for name, module in model.named_modules() if module is experts for b in name.split(".") if b.isdigit()
    )
    at = f"model.layers.{number}.mlp.experts.0.down_proj.scale_bias"
    parameter = experts.w2_scale_bias
    experts.weight_loader(parameter, tensors[at], f"{at.rpartition('.experts')[0]}.experts.w2_scale_bias", "w2", 0)
    width = parameter.shape[-1]
    wanted = tensors[at][:, rank * width : (rank + 1) * width]
    return {"right": torch.equal(parameter[0].float(), wanted.float()), "width": width, "hits": hits()}


def pipeline_sinks(rank: int) -> dict[str, Any]:
    """One of two pipeline ranks of deepseek_v4-w8a8."""
    scope.reset()
    folder = checkpoint("deepseek_v4-w8a8")
    config = lab.make_config(folder)
    lab.start(config)
    with pipeline_rank(rank, 2):
        model = lab.build(config)
        lab.load(model, config, lab.iter_weights(folder))
    return {"sinks": [name for name, _ in model.named_parameters() if name.endswith("attn_sink")], "hits": hits()}


STEP = made.text_config(
    architectures=["Step3p5ForCausalLM"],
    model_type="step3p5",
    num_attention_groups=made.KV_HEADS,
    num_nextn_predict_layers=1,
    moe_layers_enum="1",
    moe_num_experts=4,
    moe_top_k=2,
    moe_intermediate_size=32,
    layer_types=["full_attention"] * 3,
    use_rope_layers=[],
)


def step_draft(prefix: str) -> dict[str, Any]:
    """The MTP draft of a Step-3.5 whose description has *prefix* before ``layers``."""
    scope.reset()
    shapes = {**made.dense(), **made.layer("model.layers.2.")}
    tensors, description = made.quantized(shapes)
    described = {key.replace("model.layers.", f"{prefix}layers.", 1): value for key, value in description.items()}
    config = lab.draft_config(_made(STEP, tensors, quant_model_description=described))
    lab.start(config)
    draft = lab._proposer_config(config)
    model = lab._initialize(draft, "meta", model_config=config.speculative_config.draft_model_config)
    block = model.model.layers["2"].mtp_block
    return {
        "dtypes": sorted({str(p.dtype) for name, p in block.named_parameters() if name.endswith("_proj.weight")}),
        "hits": hits(),
    }


def gemma_experts() -> dict[str, Any]:
    """A float Gemma4 whose experts are called moe.experts.N, as NVFP4 exports do; are they in place?"""
    import torch

    shapes = json.loads((DATA.parents[1] / "patches" / "shapes" / "gemma4.json").read_text())
    tensors = {
        name.replace(".experts.", ".moe.experts."): made.values(name, tuple(shape)).to(torch.bfloat16)
        for name, shape in shapes["tensors"].items()
    }
    built = Built(_made(shapes["config"], tensors), tensors, quantization=None)
    name = next(one for one in built.parameters if one.endswith("w13_weight"))
    at = name.rpartition("moe.")[0]
    wanted = torch.cat([tensors[f"{at}moe.experts.1.{part}_proj.weight"] for part in ("gate", "up")])
    return {"right": torch.equal(built.parameters[name][1].float(), wanted.float()), "hits": hits()}
