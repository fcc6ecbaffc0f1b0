"""Import hooks of the simulation: what is put in place around the import of each upstream module.

The modules named in :data:`BEFORE`, :data:`AFTER` and :data:`VIRTUAL` are the whole list of places where the simulation touches
upstream. Nothing heavy is imported until one of them is.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["AFTER", "BEFORE", "SERVER", "VIRTUAL", "install", "installed", "loads", "with_kernels"]

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

    if _kernels:
        _announce()
    cann.preload(_folder(module.__spec__), _folder(importlib.util.find_spec("torch")))


def _folder(spec: importlib.machinery.ModuleSpec | None) -> Path:
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed, which torch_npu needs", name="torch")
    return Path(spec.origin).parent


def _before_torchvision(module: ModuleType) -> None:
    """A build for another torch has a ``_C`` that does not load; these schemas are all that its import needs of it."""
    import torch

    if loads("torchvision"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def _after_torch_npu(module: ModuleType) -> None:
    from ascend_hotfix.sim import device

    device.install()
    if not _kernels:
        return
    from ascend_hotfix.sim import kernels

    kernels.register("npu")
    kernels.name_what_is_missing("npu")


def _after_torch_utils(module: ModuleType) -> None:
    from ascend_hotfix.sim import device

    if _kernels and hasattr(module, "direct_register_custom_op"):
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
    if not _kernels:
        return
    from ascend_hotfix.sim import kernels

    kernels.register("vllm")


def _fill_extension(module: ModuleType) -> None:
    """Stands in for vllm-ascend's compiled extension: defines its ops that have a reference kernel."""
    if not _kernels:
        return
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

    @contextlib.contextmanager
    def passing(self, fullname: str) -> Iterator[None]:
        """Leave ``fullname`` to the finders behind this one."""
        self._busy.add(fullname)
        try:
            yield
        finally:
            self._busy.discard(fullname)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._busy:
            return None
        if fullname in VIRTUAL and (_kernels or not loads(fullname)):
            return importlib.machinery.ModuleSpec(fullname, _VirtualLoader(VIRTUAL[fullname]), is_package=True)
        if not (fullname in BEFORE or fullname in AFTER):
            return None
        with self.passing(fullname):
            spec = importlib.util.find_spec(fullname)
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
_kernels = True


def loads(fullname: str) -> bool:
    """Whether the real module can be imported here. Tried in a fork: a library that does not fit may end the process."""
    child = os.fork()
    if child == 0:
        _import_and_exit(fullname)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _import_and_exit(fullname: str) -> None:
    """Never returns. The module may be half imported in this process, which is why it is looked for here."""
    code = 1
    try:
        signal.alarm(_IMPORT_SECONDS)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.modules.pop(fullname, None)
        with _finder.passing(fullname) if _finder is not None else contextlib.nullcontext():
            importlib.import_module(fullname)
        code = 0
    finally:
        os._exit(code)


_IMPORT_SECONDS = 120
"""After which a module that is tried counts as one that does not load."""


def installed() -> bool:
    """Whether the simulation's hooks are in place in this process."""
    return _finder is not None


def with_kernels() -> bool:
    """Whether reference kernels stand for the NPU's in this process."""
    return _kernels


def install(*, platform: bool, kernels: bool = True) -> None:
    """Put the hooks in place; idempotent.

    ``platform=True`` also replaces the device half of ``NPUPlatform`` (to run vLLM's own server and workers); the lab leaves it
    as it is, builds and runs layers itself, and works on every release. Without ``kernels`` no op is defined or given a
    kernel, and what loads here is left as it is: enough for the meta device.
    """
    global _finder, _kernels
    _kernels = kernels
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch must not import torch_npu before the hooks can act
    for name, hook in SERVER.items():
        if platform:
            AFTER[name] = hook
        else:
            AFTER.pop(name, None)
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
