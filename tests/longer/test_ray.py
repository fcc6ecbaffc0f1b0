"""On a real Ray cluster of this machine: tasks and actors of one's own, vLLM's worker actors, and vLLM's Ray executor."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix import cli
from ascend_hotfix.sim import demo, envs
from ascend_hotfix.sim.cache import entry
from ascend_hotfix.sim.server import PAIR

pytestmark = pytest.mark.longer

CASE = Path(__file__).with_name("ray_case.py")
REQUIREMENT = "ray>=2.48"
PATCH = """
from ascend_hotfix.records import Fix, ModelPatch, Prefix
PATCH = ModelPatch(model_types=("tiny",), fixes=(Fix(id="a", why="w", refs=("r",), lookup=(Prefix("a", "b"),)),))
"""
# The simulated platform is for the pair that serves; elsewhere vLLM runs as on a machine with a CPU alone.
HIDDEN = str(CASE.parents[1] / "serve_plain" / "hidden")
PLAIN = {"ASCEND_HOTFIX_SIM": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "VLLM_PLUGINS": "", "PYTHONPATH": HIDDEN}
SIMULATED = {"ASCEND_HOTFIX_SIM": "1"}
MODELS, PATH, STRICT, LEDGER = (f"ASCEND_HOTFIX_{name}" for name in ("MODELS", "PATH", "STRICT", "LEDGER"))


def with_ray(pair: str) -> Path:
    """The interpreter of an environment with Ray in front of that of *pair*. Fails the test where Ray cannot be installed."""
    view = envs.build(pair)

    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=True)
        [site] = directory.glob("lib/python3*/site-packages")
        [seen] = view.glob("lib/python3*/site-packages")
        (site / "zz_view.pth").write_text(f"import site; site.addsitedir({str(seen)!r})\n")
        command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (site / "ray").is_dir(), (
            f"{REQUIREMENT} cannot be installed, so nothing is shown here:\n{done.stderr[-3000:]}"
        )

    return entry(f"ray-{view.name}", fill) / "bin" / "python"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    def run(pair: str, what: str, case: dict[str, Any], timeout: float = 1200, **env: str) -> Any:
        (tmp_path / "case.json").write_text(json.dumps(case))
        kept = {name: value for name, value in os.environ.items() if "ASCEND_HOTFIX" not in name}
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        patient = {"RAY_raylet_start_wait_time_s": "900", "RAY_worker_register_timeout_seconds": "900"}
        done = subprocess.run(
            [str(with_ray(pair)), str(CASE), what, str(tmp_path / "case.json")],
            env={**kept, **quiet, **patient, **(SIMULATED if pair == PAIR else PLAIN), **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        run.log = done.stdout + done.stderr  # type: ignore[attr-defined]
        answers = [line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        return json.loads(answers[0]) if done.returncode == 0 else done.returncode

    return run


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(PATCH)
    return file


def test_a_task_and_an_actor_that_import_vllm_do_what_their_variables_say(
    run: Callable[..., Any], mine: Path, tmp_path: Path
) -> None:
    variables: list[dict[str, str]] = [{}, {MODELS: "none"}, {STRICT: "1"}, {PATH: str(mine)}, {LEDGER: str(tmp_path)}]
    answers = run("0.18.0", "tasks", {"variables": variables})
    assert isinstance(answers, list), run.log[-3000:]  # type: ignore[attr-defined]
    for asked, both in zip(variables, answers, strict=True):
        for said in both:
            off = MODELS in asked
            assert (said["wrapped"], said["off"], said["wanted"] > 0) == (not off, off, not off), asked
            assert (said["mine"], said["strict"]) == (PATH in asked, STRICT in asked)
            assert said["ledger"] == asked.get(LEDGER, "")


@pytest.mark.parametrize("pair", ["0.18.0", PAIR])
@pytest.mark.parametrize("value", ["none", "tiny"])
def test_workers_of_vllm_have_the_toggles_of_the_driver_as_they_are_when_they_start(
    pair: str, value: str, run: Callable[..., Any], mine: Path, tmp_path: Path
) -> None:
    """Set after vLLM was imported, against a node that says otherwise, and one that the driver has not."""
    late = {MODELS: value, PATH: str(mine), LEDGER: str(tmp_path / "ledgers")}
    case = {"node": {MODELS: "all", STRICT: "1", LEDGER: "/elsewhere"}, "late": late, "taken away": [STRICT]}
    answers = run(pair, "workers", case)
    assert isinstance(answers, dict), run.log[-3000:]  # type: ignore[attr-defined]
    assert set(answers) == {"RayDistributedExecutor", *(["RayExecutorV2"] if pair == PAIR else [])}
    for said in answers.values():
        assert (said["off"], said["mine"], said["wanted"]) == (
            (True, False, 0) if value == "none" else (False, True, 1)
        )
        assert (said["strict"], said["ledger"]) == (False, late[LEDGER])
    assert len({said["server"] for said in answers.values()}) == 1


def test_a_switch_that_the_node_has_does_not_stay_where_the_driver_has_none(run: Callable[..., Any]) -> None:
    answers = run(PAIR, "workers", {"node": {MODELS: "none"}})
    assert isinstance(answers, dict), run.log[-3000:]  # type: ignore[attr-defined]
    assert [(said["off"], said["wanted"] > 0) for said in answers.values()] == [(False, True)] * 2


@pytest.mark.parametrize("executor", ["1", "0"], ids=["RayExecutorV2", "RayDistributedExecutor"])
def test_vllms_ray_executor_loads_with_the_patch_and_not_with_the_kill_switch(
    executor: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    """A checkpoint that only a patch loads, on the simulated NPU: the workers of a switched-off driver are stock."""
    demo.move_names(demo.CHECKPOINT, tmp_path / "model")
    (tmp_path / "moved_names.py").write_text(demo.PATCH)
    case = {"model": str(tmp_path / "model")}
    env = {PATH: str(tmp_path / "moved_names.py"), "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": executor}
    if executor == "1":  # of the other one, only what the workers load is asked here
        tokens = run(PAIR, "engine", case, **env, **{LEDGER: str(tmp_path / "on")})
        assert isinstance(tokens, list) and len(tokens) == 4, run.log[-3000:]  # type: ignore[attr-defined]
        assert cli.main(["status", "--ledger", str(tmp_path / "on")]) == 0
    code = run(PAIR, "engine", {**case, "late": {MODELS: "none"}}, **env)
    assert isinstance(code, int) and code != 0
    assert "KeyError: 'model.layers.0.self_attn.q_proj.weight'" in run.log  # type: ignore[attr-defined]
