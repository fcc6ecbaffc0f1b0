"""The device half of vllm-ascend's ``NPUPlatform``, answered as vLLM's CPU platform does.

Its other half stays upstream's: the out-of-tree ops, the patch stack, the quantization methods and the checks of the
configuration. Only vLLM's own server and workers need this module.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["install"]

# A worker on the CPU shares its process group between CPU and NPU tensors; the dynamic MoE asks for the "npu" backend by name.
BACKENDS = "cpu:gloo,npu:gloo"

# The KV cache of the simulation when the user does not say: enough for a small model, small enough for a laptop.
KV_CACHE_BYTES = 256 << 20

_FROM_CPU_PLATFORM = (
    "get_device_name",
    "get_device_total_memory",
    "get_current_memory_usage",
    "set_device",
    "inference_mode",
    "is_pin_memory_available",
    "get_device_communicator_cls",
    "check_runner_kv_caches_multi_layer",
)


def install(platform: Any) -> None:
    """Replace the device half of ``platform`` (the class ``NPUPlatform``) in place."""
    from vllm.platforms.cpu import CpuPlatform

    platform.device_type = platform.device_name = "cpu"
    platform.dispatch_key = "CPU"
    platform.dist_backend = BACKENDS
    for name in _FROM_CPU_PLATFORM:
        setattr(platform, name, CpuPlatform.__dict__[name])
    platform.get_attn_backend_cls = _reference_for_latent_attention(CpuPlatform)
    platform.import_kernels = _import_both(CpuPlatform, platform.__dict__["import_kernels"].__func__)
    platform.check_and_update_config = _checked_for_cpu(platform.__dict__["check_and_update_config"].__func__)


def _reference_for_latent_attention(cpu_platform: Any) -> Any:
    """vLLM's compiled CPU attention, except for latent attention: its CPU kernel knows one head size and no indexer."""

    def get_attn_backend_cls(
        cls: Any, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        if attn_selector_config.use_mla:
            return "ascend_hotfix.sim.attention.ReferenceMLABackend"
        return str(cpu_platform.get_attn_backend_cls(selected_backend, attn_selector_config, num_heads))

    return classmethod(get_attn_backend_cls)


def _import_both(cpu_platform: Any, import_npu_kernels: Any) -> Any:
    def import_kernels(cls: Any) -> None:
        cpu_platform.import_kernels()
        import_npu_kernels(cls)

    return classmethod(import_kernels)


def _checked_for_cpu(check: Any) -> Any:
    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        _no_graphs(vllm_config)
        check(cls, vllm_config)
        _no_graphs(vllm_config)
        _on_cpu_workers(vllm_config)

    return classmethod(check_and_update_config)


def _no_graphs(vllm_config: Any) -> None:
    """There is no graph capture on the simulated device, whatever the flags say."""
    from vllm.config import CompilationMode
    from vllm.config.compilation import CUDAGraphMode

    if vllm_config.model_config is not None:
        vllm_config.model_config.enforce_eager = True
    compilation = vllm_config.compilation_config
    compilation.mode = CompilationMode.NONE
    compilation.cudagraph_mode = CUDAGraphMode.NONE
    compilation.cudagraph_capture_sizes = []


def _on_cpu_workers(vllm_config: Any) -> None:
    parallel = vllm_config.parallel_config
    if parallel.worker_cls.startswith("vllm_ascend."):
        parallel.worker_cls = "ascend_hotfix.sim.worker.SimulatedNPUWorker"
    parallel.disable_custom_all_reduce = True
    # The CPU worker binds its threads to cores: it must not share a process with the engine's scheduler.
    if parallel.distributed_executor_backend == "uni" and os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1":
        parallel.distributed_executor_backend = "mp"
    vllm_config.scheduler_config.async_scheduling = False
    if vllm_config.cache_config.kv_cache_memory_bytes is None:
        vllm_config.cache_config.kv_cache_memory_bytes = KV_CACHE_BYTES
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
