"""Import hooks of the simulation: what is put in place around the import of each upstream module.

The modules named in :data:`BEFORE`, :data:`AFTER` and :data:`VIRTUAL` are the whole list of places where the simulation touches
upstream. Nothing heavy is imported until one of them is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["AFTER", "BEFORE", "SERVER", "VIRTUAL", "install", "installed"]

Hook = Callable[[ModuleType], None]

_ANNOUNCED = "ASCEND_HOTFIX_SIM_ANNOUNCED"
_kept: list[Any] = []  # torch libraries must outlive the hook that made them


def _announce() -> None:
    """Say once per process tree, on stderr, that there is no NPU here."""
    if os.environ.get(_ANNOUNCED) != "1":
        os.environ[_ANNOUNCED] = "1"
        sys.stderr.write(
            "ascend-hotfix: the NPU is SIMULATED in this process (CPU reference kernels; not an NPU's numbers or speed)\n"
        )


def _before_torch_npu(module: ModuleType) -> None:
    from ascend_hotfix.sim import cann

    _announce()
    cann.preload()


def _before_torchvision(module: ModuleType) -> None:
    """The wheel on the package index is a CUDA build whose ``_C`` does not load here; these schemas are all its import needs."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def _after_torch_npu(module: ModuleType) -> None:
    from ascend_hotfix.sim import device, kernels

    device.install()
    kernels.register("npu")
    kernels.name_what_is_missing("npu")


def _after_torch_utils(module: ModuleType) -> None:
    from ascend_hotfix.sim import device

    if hasattr(module, "direct_register_custom_op"):
        device.custom_ops_on_cpu(module)


def _after_platform(module: ModuleType) -> None:
    from ascend_hotfix.sim import platform

    platform.install(module.NPUPlatform)


def _after_gated_delta_net(module: ModuleType) -> None:
    from ascend_hotfix.sim import layers

    layers.install_gated_delta_net(module)


def _after_layernorm(module: ModuleType) -> None:
    from ascend_hotfix.sim import layers

    layers.install_gated_norm(module)


def _after_attention(module: ModuleType) -> None:
    from ascend_hotfix.sim import layers

    layers.install_c8(module)


def _after_indexer(module: ModuleType) -> None:
    from ascend_hotfix.sim import layers

    layers.install_indexer(module)


def _after_ops(module: ModuleType) -> None:
    from ascend_hotfix.sim import kernels

    kernels.register("vllm")


def _fill_extension(module: ModuleType) -> None:
    """Stands in for vllm-ascend's compiled extension: defines its ops that have a reference kernel."""
    from ascend_hotfix.sim import kernels

    kernels.register("_C_ascend")
    kernels.name_what_is_missing("_C_ascend")


def _fill_nothing(module: ModuleType) -> None:
    pass


def _fill_missing(module: ModuleType) -> None:
    """A package of NPU binaries that is imported but must not be called: each of its names raises when it is."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{module.__name__}.{name}")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def _fill_torchair(module: ModuleType) -> None:
    _fill_missing(module)
    module.FinalizeGraphEngine = lambda: None  # type: ignore[attr-defined]  # called at exit; nothing was started


def _missing(name: str) -> type:
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        from ascend_hotfix.sim.kernels import missing

        raise NotImplementedError(missing(name))

    class Meta(type):
        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return _missing(f"{name}.{attribute}")

    return Meta(name.rpartition(".")[2], (), {"__new__": __new__})


BEFORE: dict[str, Hook] = {
    "torch_npu": _before_torch_npu,
    "torchvision": _before_torchvision,
}

AFTER: dict[str, Hook] = {
    "torch_npu": _after_torch_npu,
    "vllm.utils": _after_torch_utils,  # 0.11
    "vllm.utils.torch_utils": _after_torch_utils,
    "vllm_ascend.ops": _after_ops,
}

SERVER: dict[str, Hook] = {
    "vllm_ascend.platform": _after_platform,
    "vllm_ascend.ops.gdn": _after_gated_delta_net,
    "vllm_ascend.ops.layernorm": _after_layernorm,
    "vllm_ascend.attention.attention_v1": _after_attention,
    "vllm_ascend.attention.indexer": _after_indexer,
}
"""What the server needs on top of :data:`AFTER`."""

VIRTUAL: dict[str, Hook] = {
    # vllm-ascend's C++ extension; the wheels of the older releases ship a library that needs a whole CANN.
    "vllm_ascend.vllm_ascend_C": _fill_extension,
    # Adds shape functions to every op of that extension, those without a reference kernel included.
    "vllm_ascend.meta_registration": _fill_nothing,
    # NPU kernel package that vllm-ascend 0.30 imports at module level.
    "fla_npu": _fill_missing,
    "fla_npu.ops": _fill_missing,
    "fla_npu.ops.ascendc": _fill_missing,
    # The graph engine binding inside torch_npu needs further CANN symbols; vllm-ascend 0.11 imports it.
    "torchair.core._torchair": _fill_torchair,
}


class _VirtualLoader(importlib.abc.Loader):
    def __init__(self, fill: Hook) -> None:
        self._fill = fill

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the watched modules with the finders behind it and runs the hooks around their execution."""

    def __init__(self) -> None:
        self._busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in VIRTUAL:
            return importlib.machinery.ModuleSpec(fullname, _VirtualLoader(VIRTUAL[fullname]), is_package=True)
        if fullname in self._busy or not (fullname in BEFORE or fullname in AFTER):
            return None
        self._busy.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            _run_hooks_around(spec.loader, BEFORE.get(fullname), AFTER.get(fullname))
        return spec


def _run_hooks_around(loader: Any, before: Hook | None, after: Hook | None) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if before is not None:
            before(module)
        execute(module)
        if after is not None:
            after(module)

    loader.exec_module = exec_module


_finder: _Finder | None = None


def installed() -> bool:
    """Whether the simulation's hooks are in place in this process."""
    return _finder is not None


def install(*, platform: bool) -> None:
    """Put the hooks in place; idempotent.

    ``platform=True`` also replaces the device half of ``NPUPlatform`` (to run vLLM's own server and workers); the lab leaves it
    as it is, builds and runs layers itself, and works on every release.
    """
    global _finder
    os.environ.setdefault(
        "TORCH_DEVICE_BACKEND_AUTOLOAD", "0"
    )  # torch must not import torch_npu before the hooks can act
    for name, hook in SERVER.items():
        if platform:
            AFTER[name] = hook
        else:
            AFTER.pop(name, None)
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
