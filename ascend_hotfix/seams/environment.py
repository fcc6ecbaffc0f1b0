"""Ray's workers get our toggles as they are in the process that starts them, the kill switch too.

A Ray worker has the environment of its node, not of the driver. What vLLM copies to it is decided by
``vllm.ray.ray_env.get_env_vars_to_copy`` (every release from 0.11: names, whose values are then read from
``os.environ``), and from 0.23 on, in ``RayExecutorV2``, by everything that the node has not set itself. There the
toggles go into the ``runtime_env`` of the actors (``_build_runtime_env``), which overrules the node. Nothing is added to
``vllm.envs.environment_variables``: vLLM hashes what is listed there into the keys of its compile caches.

A toggle that is not set travels as an empty one, which says the same: else a worker would keep that of its node.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ascend_hotfix import ledgerfiles, log, toggles

__all__ = ["CARRIED", "arm", "place"]

CARRIED = (*toggles.ALL, toggles.SERVER)
COPIER = "get_env_vars_to_copy"
EXECUTOR = "RayExecutorV2"
BUILDER = "_build_runtime_env"


def arm(name: str, module: ModuleType) -> None:
    """Wraps what says, in *module*, which variables a Ray worker gets."""
    if name == "vllm.ray.ray_env":
        original = getattr(module, COPIER, None)
        done = _wrap(module, COPIER, _copied, f"{name}.{COPIER}", "exclude_vars", "additional_vars")
        if done and not getattr(module.__spec__, "_initializing", False):  # others may have bound it by name
            from ascend_hotfix.seams import hooking

            hooking.replace_everywhere(original, getattr(module, COPIER), COPIER)
    else:
        _wrap(getattr(module, EXECUTOR, None), BUILDER, _built, f"{name}.{EXECUTOR}.{BUILDER}")


def _wrap(owner: Any, attribute: str, around: Callable[..., Any], target: str, *parameters: str) -> bool:
    """Puts *around* around ``owner.attribute``, once. A plain function: where all is switched off, wrapt is not imported."""
    original = getattr(owner, attribute, None)
    if original is None or not _takes(original, parameters):
        _drifted(target)
        return False
    if getattr(original, "_ascend_hotfix", False):
        return False

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper._ascend_hotfix = True  # type: ignore[attr-defined]
    setattr(owner, attribute, wrapper)
    return True


def _takes(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    return set(parameters) <= set(inspect.signature(function).parameters)


def _drifted(target: str) -> None:
    shown = ", ".join(toggles.ALL)
    log.finding(
        f"{target} is not where it was in the releases we know, so Ray workers may not be told of {shown}; this matters "
        f"where vLLM starts Ray workers. Name these in VLLM_RAY_EXTRA_ENV_VARS_TO_COPY, or set them where the nodes start"
    )


def _copied(original: Callable[..., Any], exclude_vars: Any = None, additional_vars: Any = None, **rest: Any) -> Any:
    """The names that vLLM copies, ours beside those that its caller adds. What the user excludes stays out."""
    _prepare()
    return original(exclude_vars=exclude_vars, additional_vars={*(additional_vars or ()), *CARRIED}, **rest)


def _built(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The ``runtime_env`` of a worker with our toggles in it, save those that the user gives there himself."""
    _prepare()
    runtime_env = original(*args, **kwargs)
    runtime_env["env_vars"] = {**{name: os.environ[name] for name in CARRIED}, **(runtime_env.get("env_vars") or {})}
    return runtime_env


def _prepare() -> None:
    if toggles.ledger():
        ledgerfiles.server()
    for name in CARRIED:
        os.environ.setdefault(name, "")
    if toggles.switched_off():
        return
    folders = {toggles.PATH: os.environ[toggles.PATH].split(os.pathsep), toggles.LEDGER: [os.environ[toggles.LEDGER]]}
    for name, entries in folders.items():
        for entry in filter(None, map(str.strip, entries)):
            if not os.path.isabs(os.path.expanduser(entry)):
                log.finding(
                    f"{name}: {entry!r} is a relative path. A Ray worker, on this node or another one, begins it in a "
                    f"working folder of its own. Name it from the root, such as {os.path.abspath(entry)}, and have it on every node"
                )


def place() -> dict[str, int]:
    """Where this process is among the workers: its rank, how many there are, and its stage of the pipeline.

    What is not known yet is left out: before torch.distributed is set up, all of it.
    """
    found: dict[str, int] = {}
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    state = sys.modules.get("vllm.distributed.parallel_state")
    pipeline = getattr(state, "_PP", None)
    if pipeline is not None:
        found["pipeline_rank"] = pipeline.rank_in_group
    return found
