"""The parts of ``torch.npu`` that would open a device, answered for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["custom_ops_on_cpu", "install"]


class NullStream:
    """Stands in for an NPU stream or event: everything is already ordered on the CPU, so every call is a no-op."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    def __enter__(self) -> None:
        return None

    def __exit__(self, *args: object) -> None:
        return None


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def install() -> None:
    """Replace device selection, streams, ``Tensor.npu`` and the HCCL name of a group; run after ``torch_npu`` is
    imported.
    """
    torch: Any = import_module("torch")
    npu = torch.npu
    npu.current_device = lambda: torch.device("cpu")
    npu.set_device = _nothing
    npu.Stream = npu.Event = NullStream
    npu.stream = npu.current_stream = NullStream
    torch.Tensor.npu = lambda self, *args, **kwargs: self
    # Asked for by expert parallelism, as an opaque handle.
    torch.distributed.ProcessGroupGloo.get_hccl_comm_name = lambda self, *args: "simulated"
    # Groups made with the bare name "gloo" are asked for their "npu" backend; this is what the name stands for.
    capability = getattr(torch.distributed.Backend, "backend_capability", {}).get("gloo", [])
    if "npu" not in capability:
        capability.append("npu")
    torch.version.cann = _version_or_none(getattr(torch.version, "cann", None))


def _version_or_none(told: object) -> str | None:
    """CANN's version as torch_npu tells it. Without CANN some releases say an empty text, or "not known", which
    vllm-ascend cannot parse; None is what it takes for not known.
    """
    return told if isinstance(told, str) and told[:1].isdigit() else None


def custom_ops_on_cpu(module: Any) -> None:
    """Register the Python custom ops of vLLM and vllm-ascend for CPU tensors instead of ``PrivateUse1``.

    ``module`` is the one that defines vLLM's ``direct_register_custom_op``.
    """
    register = module.direct_register_custom_op

    def direct_register_custom_op(
        op_name: str,
        op_func: Callable[..., Any],
        mutates_args: list[str] | None = None,
        fake_impl: Callable[..., Any] | None = None,
        target_lib: Any = None,
        dispatch_key: str | None = None,
        tags: tuple[Any, ...] = (),
    ) -> None:
        register(op_name, op_func, mutates_args, fake_impl, target_lib, "CPU", tags)

    module.direct_register_custom_op = direct_register_custom_op
