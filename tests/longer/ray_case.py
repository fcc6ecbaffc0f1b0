"""Runs on a real Ray cluster of this machine, beside the real vLLM: ``ray_case.py tasks|workers|engine CASE.json``.

Prints one line, ``ANSWER`` and JSON, among what Ray and vLLM print. ``tasks``: a task and an actor for each set of variables,
as their ``runtime_env``. ``workers``: vLLM's own worker actors of both Ray executors, given their variables as vLLM gives them.
``engine``: a model served by vLLM's Ray executor on the simulated NPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def probe() -> dict[str, Any]:
    """What a process does with a model: is the build seam armed, what is selected, is a finding an error?"""
    import os

    import vllm.model_executor.models.utils as utils

    from ascend_hotfix import ledgerfiles, scope, toggles

    found = scope.catalog()
    return {
        "wrapped": type(utils.maybe_prefix).__name__ == "Wrapped",
        "off": found.off,
        "wanted": len(found.wanted()),
        "mine": "mine" in found.sources,
        "strict": toggles.strict(),
        "ledger": toggles.ledger(),
        "server": ledgerfiles.server(),
        "pid": os.getpid(),
        "catalog": found.digest(),
    }


def tasks(ray: Any, case: dict[str, Any]) -> Any:
    """``{"variables": [{...}, ...]}`` -> for each, what a task and what an actor of it say."""

    class Actor:
        def ask(self) -> dict[str, Any]:
            return probe()

    answers = []
    for variables in case["variables"]:
        options = {"runtime_env": {"env_vars": variables}}
        task = ray.remote(probe).options(**options).remote()
        actor = ray.remote(Actor).options(**options).remote()
        answers.append(ray.get([task, actor.ask.remote()]))
        ray.kill(actor)
    return answers


def workers(ray: Any, case: dict[str, Any]) -> Any:
    """``{"late": {...}, "taken away": [...]}`` -> what a worker of each executor says, variables set after vLLM was imported."""
    from vllm.ray.ray_env import get_env_vars_to_copy
    from vllm.v1.executor.ray_utils import RayWorkerWrapper

    os.environ.update(case.get("late", {}))
    for name in case.get("taken away", ()):
        os.environ.pop(name, None)
    copied = {name: os.environ[name] for name in get_env_vars_to_copy(destination="workers") if name in os.environ}
    first = ray.remote(RayWorkerWrapper).remote(rpc_rank=0)
    ray.get(first.execute_method.remote("update_environment_variables", [copied]))
    answers = {"RayDistributedExecutor": ray.get(first.execute_method.remote(_pickled(probe)))}
    ray.kill(first)
    try:
        from vllm.v1.executor.ray_executor_v2 import RayExecutorV2
    except ImportError:  # before 0.23
        return answers
    from types import SimpleNamespace

    config = SimpleNamespace(parallel_config=SimpleNamespace(ray_runtime_env=None, ray_workers_use_nsight=False))
    options = {"runtime_env": RayExecutorV2._build_runtime_env(config)}
    answers["RayExecutorV2"] = ray.get(ray.remote(probe).options(**options).remote())
    return answers


def _pickled(function: Any) -> bytes:
    import cloudpickle

    # With the worker for its argument, as vLLM calls what it is given.
    return bytes(cloudpickle.dumps(lambda worker: function()))


def engine(ray: Any, case: dict[str, Any]) -> Any:
    """``{"model": DIR, "late": {...}}`` -> the tokens of one answer, or the error of the load."""
    from vllm import LLM, SamplingParams

    from ascend_hotfix.sim import lab, standins

    os.environ.update(case.get("late", {}))
    standins.register()
    llm = LLM(
        str(standins.stage(Path(case["model"]), lab.installed_pair().vllm_ascend)),
        quantization="ascend",
        enforce_eager=True,
        max_model_len=128,
        gpu_memory_utilization=0.3,
        enable_prefix_caching=False,
        distributed_executor_backend="ray",
        skip_tokenizer_init=True,
    )
    sampling = SamplingParams(max_tokens=4, temperature=0, detokenize=False, ignore_eos=True)
    answers = llm.generate([{"prompt_token_ids": [5, 17, 42, 99]}], sampling, use_tqdm=False)
    return list(answers[0].outputs[0].token_ids)


def main() -> None:
    """Starts a cluster whose node has the variables of this process, and asks it."""
    import ray

    what, case = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    node = case.get("node", {})
    before = {name: os.environ.get(name) for name in node}
    os.environ.update(node)
    ray.init(num_cpus=4, resources={"NPU": 1}, include_dashboard=False, logging_level="ERROR")
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    print("ANSWER", json.dumps({"tasks": tasks, "workers": workers, "engine": engine}[what](ray, case)), flush=True)


if __name__ == "__main__":
    main()
