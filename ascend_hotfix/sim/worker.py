"""vLLM's CPU worker, prepared the way vllm-ascend's ``NPUWorker`` prepares itself; used by the simulated NPU only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

# All are imported before vllm-ascend patches vLLM's KV cache binding, so that the runner keeps vLLM's own.
from vllm.v1.worker import cpu_worker, gpu_model_runner
from vllm.v1.worker import utils as worker_utils

__all__ = ["SimulatedNPUWorker"]


class SimulatedNPUWorker(cpu_worker.CPUWorker):  # type: ignore[misc]
    """A CPU worker that runs vllm-ascend's layers, quantization methods and custom ops."""

    def __init__(
        self,
        vllm_config: Any,
        local_rank: int,
        rank: int,
        distributed_init_method: str,
        is_driver_worker: bool = False,
        **kwargs: Any,
    ) -> None:
        _prepare_as_npu_worker(vllm_config)
        super().__init__(
            vllm_config, local_rank, rank, distributed_init_method, is_driver_worker=is_driver_worker, **kwargs
        )
        _unsupport_second_weight_loader()

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        return nullcontext()  # sleep mode has its allocator on NPU memory only

    def init_device(self) -> None:
        from vllm_ascend.ascend_forward_context import set_mc2_mask, set_mc2_tokens_capacity

        # Asked for by expert parallelism.
        set_mc2_tokens_capacity(self.vllm_config, self.scheduler_config.max_num_seqs, 1)
        set_mc2_mask(self.vllm_config, torch.device("cpu"))
        with _ascend_groups():
            super().init_device()
        _bridge_forward_context(self.model_runner)
        _share_rotary_tables(self.model_runner, self.vllm_config)


def _prepare_as_npu_worker(vllm_config: Any) -> None:
    from vllm_ascend import ops
    from vllm_ascend.ascend_config import init_ascend_config
    from vllm_ascend.utils import adapt_patch, enable_custom_op, register_ascend_customop

    bind_to_layers = worker_utils.bind_kv_cache_to_layers
    adapt_patch()
    worker_utils.bind_kv_cache_to_layers = bind_to_layers  # vllm-ascend's expects the tuples its own runner allocates
    enable_custom_op()
    ops.register_dummy_fusion_op()
    register_ascend_customop(vllm_config)
    init_ascend_config(vllm_config)


def _unsupport_second_weight_loader() -> None:
    """As ``NPUWorker`` does: unquantized layers take the first weight loader, which knows vllm-ascend's parameters."""
    from vllm.model_executor.layers.linear import WEIGHT_LOADER_V2_SUPPORTED

    if "UnquantizedLinearMethod" in WEIGHT_LOADER_V2_SUPPORTED:
        WEIGHT_LOADER_V2_SUPPORTED.remove("UnquantizedLinearMethod")


@contextmanager
def _ascend_groups() -> Iterator[None]:
    """Create vllm-ascend's process groups right after vLLM's."""
    init = cpu_worker.init_worker_distributed_environment

    def init_both(vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        from vllm_ascend.distributed.parallel_state import init_ascend_model_parallel

        init(vllm_config, *args, **kwargs)
        init_ascend_model_parallel(vllm_config.parallel_config)

    cpu_worker.init_worker_distributed_environment = init_both
    try:
        yield
    finally:
        cpu_worker.init_worker_distributed_environment = init


def _bridge_forward_context(runner: Any) -> None:
    """vLLM's runner opens ``set_forward_context``; vllm-ascend's layers need what ``set_ascend_forward_context`` adds to it."""
    from vllm.forward_context import get_forward_context
    from vllm_ascend.ascend_forward_context import set_ascend_forward_context

    @contextmanager
    def set_forward_context(
        attn_metadata: Any,
        vllm_config: Any,
        num_tokens: int | None = None,
        num_tokens_across_dp: Any = None,
        cudagraph_runtime_mode: Any = None,
        batch_descriptor: Any = None,
        ubatch_slices: Any = None,
        slot_mapping: Any = None,
        skip_compiled: bool = False,
        **kwargs: Any,
    ) -> Iterator[None]:
        mode = {} if cudagraph_runtime_mode is None else {"aclgraph_runtime_mode": cudagraph_runtime_mode}
        with set_ascend_forward_context(
            attn_metadata,
            vllm_config,
            num_tokens=num_tokens,
            num_tokens_across_dp=num_tokens_across_dp,
            batch_descriptor=batch_descriptor,
            model_instance=getattr(runner, "model", None),
            skip_compiled=skip_compiled,
            **mode,
        ):
            get_forward_context().slot_mapping = slot_mapping or {}
            yield

    gpu_model_runner.set_forward_context = set_forward_context


def _share_rotary_tables(runner: Any, vllm_config: Any) -> None:
    """As ``NPUModelRunner`` does: before each step the cosines and sines of its positions, which some patched models read."""
    from vllm_ascend.ops import rotary_embedding as rotary

    rotary.set_cos_and_sin(vllm_config, runner.max_num_reqs, 1, runner.dtype, torch.device("cpu"))
    forward = runner._model_forward

    def model_forward(input_ids: Any = None, positions: Any = None, *args: Any, **kwargs: Any) -> Any:
        # For a partial rotation the table is made for the whole head; the models concerned do not read it.
        cos, table = rotary._cos, rotary._cos_sin_cache
        fits = cos is not None and table is not None and cos.shape[-1] == table.shape[-1]
        if fits and positions is not None and positions.dim() == 1:
            rotary.update_cos_sin(positions)
        return forward(input_ids, positions, *args, **kwargs)

    runner._model_forward = model_forward
