"""Weights that come in parts, on a real model: what is in the parameters, and what was said. Each runs in a child of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from ascend_hotfix import scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.sim import lab
from kinds import made
from kinds.inside import DATA, UNWRITTEN, checkpoint, hits

BIAS = "mlp.gate.e_score_correction_bias"


class Live:
    """The model of checkpoint *name*, and its tensors, with a router bias of its own in each layer that has a router."""

    def __init__(self, name: str, *, biases: bool = True, **engine: Any) -> None:
        import torch

        scope.reset()
        is_float = name.startswith("float/")
        folder = DATA.parent / name if is_float else checkpoint(name)
        self.config = lab.make_config(folder, **{**({"quantization": None} if is_float else {}), **engine})
        self.model = lab.build(self.config)
        self.tensors: dict[str, torch.Tensor] = {
            name: value for name, value in lab.iter_weights(folder) if not name.endswith(BIAS)
        }
        routers = [name.removesuffix("weight") for name in self.tensors if name.endswith("mlp.gate.weight")]
        self.biases = {f"{name}e_score_correction_bias": self._bias(name) for name in routers}
        if biases:
            self.tensors |= self.biases

    def _bias(self, name: str) -> Any:
        import torch

        rows = self.tensors[f"{name}weight"].shape[0]
        return (made.values(f"{name}bias", (rows,)).float() + 1).to(torch.bfloat16).float()

    def spoil(self) -> None:
        """Writes over all parameters, as memory that was thrown away would be."""
        for parameter in self.model.parameters():
            parameter.data.fill_(UNWRITTEN if parameter.dtype.is_floating_point else 7)

    def send(self, tensors: Iterable[tuple[str, Any]]) -> Any:
        """One call of ``load_weights``."""
        return lab.load(self.model, self.config, iter(list(tensors)))

    def process(self) -> None:
        lab.process_weights(self.model, self.config)

    def held(self) -> list[list[float]]:
        """The router's biases, by layer."""
        found = dict(self.model.named_parameters())
        return [value.float().flatten().tolist() for name, value in found.items() if name.endswith(BIAS)]

    def wanted(self) -> list[list[float]]:
        """Those of the checkpoint, of the layers that the model has."""
        have = {name for name, _ in self.model.named_parameters() if name.endswith(BIAS)}
        here = [value for name, value in self.biases.items() if name in have]
        return [value.float().flatten().tolist() for value in here]


def buckets(tensors: dict[str, Any], count: int) -> Iterator[list[tuple[str, Any]]]:
    """*tensors* in *count* parts, in their order."""
    items = list(tensors.items())
    size = -(-len(items) // count)
    for start in range(0, len(items), size):
        yield items[start : start + size]


def again(
    name: str,
    ways: Sequence[str],
    first: str = "whole",
    biases: bool = True,
    report: str = "set",
    process: bool = True,
) -> dict[str, Any]:
    """Loads checkpoint *name* and sends its weights again, in each of *ways*: ``buckets``, ``norm`` (one tensor), ``one by one``.

    *first*: how it is loaded first. ``whole`` as vLLM's loader does; ``buckets`` in 20 calls before it is processed; ``dummy``
    with random numbers. *report*: what load_weights returns, ``set`` or ``None``, as some classes do. *process*: is the model
    processed in between, as in a server?
    """
    os.environ["ASCEND_HOTFIX_STRICT"] = "1"
    live = Live(name, biases=biases)
    if report == "None":
        _without_report(type(live.model))
    live.spoil()
    if first == "whole":
        live.send(live.tensors.items())
    elif first == "buckets":
        for bucket in buckets(live.tensors, 20):
            live.send(bucket)
    else:
        _dummy(live)
    if process:
        live.process()
    after_first = live.held()
    for way in ways:
        parts = {
            "buckets": lambda: buckets(live.tensors, 20),
            "norm": lambda: [[(one, value) for one, value in live.tensors.items() if one.endswith("norm.weight")][:1]],
            "one by one": lambda: ([item] for item in live.tensors.items() if ".experts." not in item[0]),
        }[way]
        for part in parts():
            live.send(_fitting(part) if process else part)
    return {
        "right": live.held() == live.wanted(),
        "zero": not any(map(any, live.held())),
        "first": after_first == live.wanted(),
        "layers": len(live.wanted()),
        "findings": list(LEDGER.findings),
        "hits": hits(),
    }


def _fitting(part: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """What can be sent of *part*: a processed layer takes no tensors in the form of the checkpoint, in any release."""
    return [(name, value) for name, value in part if name.endswith(("norm.weight", BIAS, "embed_tokens.weight"))]


def _without_report(cls: type) -> None:
    held = cls.load_weights

    def load_weights(self: Any, weights: Any) -> None:
        held(self, weights)

    cls.load_weights = load_weights  # type: ignore[attr-defined]


def _dummy(live: Live) -> None:
    from vllm.model_executor.model_loader import weight_utils

    with lab.running(live.config):
        try:
            weight_utils.initialize_dummy_weights(live.model, live.config.model_config)
        except TypeError:
            weight_utils.initialize_dummy_weights(live.model)


def reloaded(name: str, biases: bool, first: str = "whole", parts: int = 1) -> dict[str, Any]:
    """Loads *name*, then once more between the two ends of vLLM's layerwise reload, in *parts* calls, as weight transfer does it."""
    from vllm.model_executor.model_loader import reload

    os.environ["ASCEND_HOTFIX_STRICT"] = "1"
    live = Live(name, biases=biases)
    if first == "dummy":
        _dummy(live)
    else:
        live.send(live.tensors.items())
    live.process()
    with lab.running(live.config):
        reload.initialize_layerwise_reload(live.model)
        for bucket in buckets(live.tensors, parts):
            live.send(bucket)
        during = list(LEDGER.findings)
        reload.finalize_layerwise_reload(live.model, live.config.model_config)
    return _answer(live, during)


def slept(name: str, biases: bool, **engine: Any) -> dict[str, Any]:
    """Loads *name*, sleeps at level 2 and wakes by the release's own worker, then gets the weights in buckets.

    The memory pool is simulated: sleep writes over every parameter.
    """
    import torch

    os.environ.update(ASCEND_HOTFIX_STRICT="1", VLLM_ASCEND_ENABLE_NZ="0")
    sys.modules.setdefault("acl", ModuleType("acl"))
    sys.modules.setdefault("acl.rt", ModuleType("acl.rt")).memcpy = None  # type: ignore[attr-defined]
    there = importlib.util.find_spec("vllm_ascend.worker.worker") is not None
    module = importlib.import_module(f"vllm_ascend.worker.{'worker' if there else 'worker_v1'}")
    live = Live(name, biases=biases, **engine)

    class Pool:
        def sleep(self, offload_tags: tuple[str, ...]) -> None:
            if "weights" not in offload_tags:
                live.spoil()

        def wake_up(self, tags: list[str] | None = None) -> None:
            pass

    module.CaMemAllocator = SimpleNamespace(get_instance=Pool)  # type: ignore[attr-defined]
    torch.npu.mem_get_info = lambda: (1 << 30, 1 << 31)  # type: ignore[attr-defined]
    live.send(live.tensors.items())
    live.process()
    worker = object.__new__(module.NPUWorker)
    worker.model_runner, worker.vllm_config = SimpleNamespace(model=live.model), live.config
    worker._sleep_saved_buffers = {}
    worker.sleep(level=2)
    lost = live.held()
    worker.wake_up(tags=["kv_cache"])
    early = live.held()
    worker.wake_up(tags=["weights"])
    for bucket in buckets(live.tensors, 20):
        live.send(_fitting(bucket))
    return {**_answer(live, []), "lost": lost != live.wanted(), "early": early == lost}


def _answer(live: Live, during: list[str]) -> dict[str, Any]:
    return {
        "right": live.held() == live.wanted(),
        "zero": not any(map(any, live.held())),
        "layers": len(live.held()),
        "during": during,
        "findings": list(LEDGER.findings),
        "hits": hits(),
    }
