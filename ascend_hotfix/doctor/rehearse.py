"""One dry run, in the process that has upstream: target and draft are built, loaded and judged.

Nothing of the process that asks is used here (:mod:`ascend_hotfix.doctor.dryrun`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.doctor.checkpoint import Checkpoint, collector_paused, model_types, read_checkpoint
from ascend_hotfix.doctor.drafts import draft_tensors
from ascend_hotfix.doctor.findings import Collector, Finding, finding_data, worst_first
from ascend_hotfix.doctor.judge import judge
from ascend_hotfix.doctor.rehearsal import Part, observe
from ascend_hotfix.doctor.split import Split
from ascend_hotfix.doctor.standin import check as check_stand_ins
from ascend_hotfix.words import printable, text_of

__all__ = ["Rehearsal", "check", "rehearse"]


@dataclass
class Rehearsal:
    """Target and draft of one checkpoint, with what could not be done. ``drafted``: the draft's tensors."""

    checkpoint: Checkpoint
    drafted: set[str] = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    config: Any = None
    findings: list[Finding] = field(default_factory=list)


def rehearse(checkpoint: Checkpoint, split: Split | None = None, *, draft: bool = True) -> Rehearsal:
    """Dry-run *checkpoint* in this process, which has called ``lab.prepare()`` and has built no model yet."""
    with collector_paused():  # the model and what was seen of it are no garbage
        return _rehearse(checkpoint, split or Split(), draft)


def _rehearse(checkpoint: Checkpoint, split: Split, draft: bool) -> Rehearsal:
    from ascend_hotfix import scope
    from ascend_hotfix.sim import lab

    scope.reset()  # the case may have set what selects patches
    _import_worker()
    found = Rehearsal(checkpoint, draft_tensors(checkpoint.tensors, checkpoint.config))
    collector = Collector(stage="dry-run")
    apart = found.drafted
    arguments: dict[str, Any] = {}
    if split.tensor_parallel_size > 1:
        arguments = {"tensor_parallel_size": split.tensor_parallel_size, "distributed_executor_backend": "mp"}
        arguments["enable_expert_parallel"] = split.expert_parallel
        try:
            lab.start(lab.make_config(checkpoint.path))
            config = lab.make_config(checkpoint.path, **arguments)
        except MemoryError:
            raise
        except Exception as error:
            return _no_config(found, collector, error)
        _pretend(split)
        if split.expert_parallel:
            _prepare_experts(config)
    else:
        try:
            config = lab.make_config(checkpoint.path)
        except MemoryError:
            raise
        except Exception as error:
            return _no_config(found, collector, error)
    config_class = type(config.quant_config)
    drafting = None
    if draft and apart:
        try:
            drafting = lab.draft_config(checkpoint.path, **arguments)
        except Exception as error:
            check_stand_ins(error)
            collector.add("draft-unsupported", next(iter(apart)), place="draft", count=len(apart), error=_short(error))
    config = found.config = drafting or config
    speculative = getattr(config, "speculative_config", None)
    for model_config in (config.model_config, getattr(speculative, "draft_model_config", None)):
        for one in scope.model_types(getattr(model_config, "hf_config", None)):
            if one not in found.types:
                found.types.append(one)

    def build_target() -> Any:
        model = lab.build(config, device="meta")
        return model, lambda weights: lab.load(model, config, weights, device="meta")

    def build_draft() -> Any:
        model, own = lab.build_draft(config, device="meta")
        return model, lambda weights: lab.load(model, own, weights, device="meta")

    size = split.tensor_parallel_size
    found.parts = [observe("target", build_target, config_class, checkpoint.tensors, apart=apart, ranks=size)]
    if drafting is not None:
        found.parts.append(observe("draft", build_draft, config_class, checkpoint.tensors, ranks=size))
    for part in found.parts:
        taken = {t for other in found.parts if other is not part for t in other.landed}
        found.findings += judge(part, checkpoint.tensors, apart, taken)
    found.findings = worst_first([*collector.findings(), *found.findings])
    return found


def _no_config(found: Rehearsal, collector: Collector, error: Exception) -> Rehearsal:
    check_stand_ins(error)
    types = ", ".join(model_types(found.checkpoint.config)) or "without model_type"
    collector.add("model-refused", types, place="config.json", error=_short(error))
    found.findings = collector.findings()
    return found


def _short(error: Exception) -> str:
    """The part of an error that says something: pydantic wraps the reason in three lines."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    told = next(
        (line for line in lines if line.startswith(("Value error,", "Assertion failed,"))), lines[0] if lines else ""
    )
    if told.endswith(":") and told is not lines[-1]:  # the reason has a line of its own
        told += " " + lines[lines.index(told) + 1]
    told = told.partition(" [type=")[0].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return printable(f"{type(error).__name__}: {told[:300]}")


def _import_worker() -> None:
    """What a worker imports before it builds a model: some of vllm-ascend's patches take hold only then."""
    import contextlib
    import importlib

    with contextlib.suppress(Exception):  # parts of it need a device; what matters was imported before they fail
        importlib.import_module("vllm_ascend.worker.model_runner_v1")


def _pretend(split: Split) -> None:
    """Tells the process groups that they are one rank of several. Nothing is communicated when a model is built.

    The groups of expert parallelism span the ranks of tensor parallelism, whether experts are parallel or not: 0.11 takes
    the width of ``w2_scale_bias`` from them.
    """
    import importlib

    for name in ("vllm.distributed.parallel_state", "vllm_ascend.distributed.parallel_state"):
        state = importlib.import_module(name)
        for attribute in ("_TP", "_EP", "_MC2"):
            group = getattr(state, attribute, None)
            if group is not None:
                group.world_size, group.rank_in_group = split.tensor_parallel_size, split.rank
                group.ranks = list(range(split.tensor_parallel_size))


EXPERT_MAPS = (
    "determine_expert_map",
    "get_compressed_expert_map",
    "determine_default_expert_map",
    "determine_default_log2phy_map",
    "generate_log2phy_map",
    "init_eplb_config",
    "_calculate_expert_maps",
)
"""Functions of upstream, over the releases, that compute which rank holds which expert."""


def _prepare_experts(vllm_config: Any) -> None:
    """What expert parallel needs of the model runner, and maps of experts that have values.

    On the meta device nobody could tell whose an expert is.
    """
    import contextlib
    import functools
    import importlib

    from ascend_hotfix.sim import lab

    def on_cpu(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with lab.on_device("cpu"):
                return function(*args, **kwargs)

        return wrapper

    context = importlib.import_module("vllm_ascend.ascend_forward_context")
    if hasattr(context, "set_mc2_tokens_capacity"):
        with contextlib.suppress(Exception):  # another signature: then this release's build does not read it
            context.set_mc2_tokens_capacity(vllm_config, 1, 1)
    for name, module in list(sys.modules.items()):
        if not name.startswith(("vllm.model_executor.layers.fused_moe", "vllm_ascend.")):
            continue
        for holder in (module, getattr(module, "ExpertMapManager", None)):
            for function in EXPERT_MAPS:
                found = vars(holder).get(function) if holder is not None else None
                if callable(found):
                    setattr(holder, function, on_cpu(found))


def check(
    model_dir: str, tensor_parallel_size: int = 1, expert_parallel: bool = False, rank: int = 0, draft: bool = True
) -> dict[str, Any]:
    """A case for the zygote: :func:`rehearse`, as plain data."""
    from ascend_hotfix.ledger import LEDGER

    found = rehearse(read_checkpoint(model_dir), Split(tensor_parallel_size, expert_parallel, rank), draft=draft)
    return {
        "fixes": LEDGER.used(),
        "findings": [finding_data(one) for one in found.findings],
        "parts": [
            {"role": p.role, "model_class": p.model_class, "parameters": len(p.parameters), "landed": len(p.landed)}
            for p in found.parts
        ],
    }
