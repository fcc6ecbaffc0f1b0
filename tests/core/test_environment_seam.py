"""The toggles that reach Ray's workers: as they are when the workers start, the kill switch too, outside the compile key."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from ascend_hotfix import finder, log, toggles
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.seams import environment, on_import
from ascend_hotfix.sim import envs, matrix

COPIER, EXECUTOR = "vllm.ray.ray_env", "vllm.v1.executor.ray_executor_v2"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.CARRIED:
        monkeypatch.setenv(name, "")  # is put back afterwards, whatever the seam does
        monkeypatch.delenv(name)
    LEDGER.entries.clear()
    LEDGER.findings.clear()


def module(name: str, **held: Any) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    made.__spec__._initializing = True  # type: ignore[attr-defined]  # as the finder tells of it
    vars(made).update(held)
    return made


def copier(name: str = COPIER) -> ModuleType:
    """As in every release: the caller's names beside vLLM's own, without those that are excluded."""

    def get_env_vars_to_copy(
        exclude_vars: Any = None, additional_vars: Any = None, destination: Any = None
    ) -> set[str]:
        return {"VLLM_A", *(additional_vars or ())} - {*(exclude_vars or ())}

    return module(name, get_env_vars_to_copy=get_env_vars_to_copy)


def executor(base: dict[str, Any] | None = None) -> ModuleType:
    class RayExecutorV2:
        def _build_runtime_env(self) -> dict[str, Any]:
            return {"env_vars": {"NOSET": "1"}} if base is None else base

    return module(EXECUTOR, RayExecutorV2=RayExecutorV2)


@pytest.mark.parametrize("value", ["none", "0", "off", "all", ""])
def test_what_is_set_after_vllm_was_imported_travels_and_what_is_unset_too(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(toggles.MODELS, "none")
    armed, workers = copier(), executor()
    on_import(COPIER, armed)
    on_import(EXECUTOR, workers)
    monkeypatch.setenv(toggles.MODELS, value)
    monkeypatch.setenv(toggles.STRICT, "1")
    monkeypatch.delenv(toggles.STRICT)
    names = armed.get_env_vars_to_copy(exclude_vars={"X"}, additional_vars={"X", "Y"}, destination="workers")
    assert names == {"VLLM_A", "Y", *environment.CARRIED}
    copied = {name: os.environ[name] for name in names if name in os.environ}
    built = workers.RayExecutorV2()._build_runtime_env()["env_vars"]
    assert copied == {name: value if name == toggles.MODELS else "" for name in environment.CARRIED}
    assert built == {"NOSET": "1", **copied}


def test_what_the_user_excludes_or_sets_himself_is_left_to_him(monkeypatch: pytest.MonkeyPatch) -> None:
    armed = copier()
    environment.arm(COPIER, armed)
    assert toggles.LEDGER not in armed.get_env_vars_to_copy(exclude_vars={toggles.LEDGER})
    monkeypatch.setenv(toggles.LEDGER, "/mine")
    workers = executor({"env_vars": {toggles.LEDGER: "/theirs"}, "pip": []})
    environment.arm(EXECUTOR, workers)
    built = workers.RayExecutorV2()._build_runtime_env()
    assert built["env_vars"][toggles.LEDGER] == "/theirs" and built["pip"] == []


def test_arming_twice_is_arming_once_and_names_bound_before_are_armed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    armed = copier()
    late = module("vllm.late", get_env_vars_to_copy=armed.get_env_vars_to_copy)
    monkeypatch.setitem(__import__("sys").modules, "vllm.late", late)
    armed.__spec__._initializing = False  # type: ignore[union-attr]
    environment.arm(COPIER, armed)
    once = armed.get_env_vars_to_copy
    environment.arm(COPIER, armed)
    assert armed.get_env_vars_to_copy is once is late.get_env_vars_to_copy


@pytest.mark.parametrize(
    ("name", "held"),
    [
        (COPIER, {}),
        (COPIER, {"get_env_vars_to_copy": lambda: set()}),
        (EXECUTOR, {}),
        (EXECUTOR, {"RayExecutorV2": object}),
    ],
)
def test_a_place_that_has_moved_is_said_as_what_it_is(name: str, held: dict[str, Any]) -> None:
    environment.arm(name, module(name, **held))
    [finding] = LEDGER.findings
    assert f"{name}." in finding and "Ray workers may not be told of ASCEND_HOTFIX_MODELS" in finding
    assert list(LEDGER) == []  # no fix of any seam is said to be without its place


@pytest.mark.parametrize("place", [COPIER, EXECUTOR])
def test_a_relative_path_is_said_before_it_leads_elsewhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        if place == COPIER:
            armed = copier()
            environment.arm(place, armed)
            armed.get_env_vars_to_copy()
        else:
            armed = executor()
            environment.arm(place, armed)
            armed.RayExecutorV2()._build_runtime_env()

    monkeypatch.setenv(toggles.PATH, f"/root/of/all:patches/mine.py{os.pathsep}~/home")
    monkeypatch.setenv(toggles.LEDGER, "led:ger")
    monkeypatch.setattr(environment.ledgerfiles, "_server", "s")
    start()
    assert len(LEDGER.findings) == 2
    assert "'patches/mine.py' is a relative path. A Ray worker" in LEDGER.findings[0]
    assert os.path.abspath("patches/mine.py") in LEDGER.findings[0] and os.path.abspath("led:ger") in LEDGER.findings[1]
    monkeypatch.setenv(toggles.STRICT, "1")
    with pytest.raises(log.StrictError, match="relative path"):
        start()
    monkeypatch.setenv(toggles.MODELS, "none")
    start()  # nothing is read of it


def test_the_finder_watches_these_places() -> None:
    assert {COPIER, EXECUTOR} == finder.RAY


# On the real releases

PROBE = """
import json, os, sys
import vllm.ray.ray_env as ray_env
from vllm import envs
os.environ.update({"ASCEND_HOTFIX_LEDGER": "/late", "ASCEND_HOTFIX_STRICT": "1"})
names = ray_env.get_env_vars_to_copy(exclude_vars={"X"}, destination="a test")
key = envs.compute_hash() if hasattr(envs, "compute_hash") else str(sorted(envs.compile_factors()))
ours = sorted(name for name in sys.modules if name.partition(".")[0] in ("ascend_hotfix", "wrapt"))
print(json.dumps({"copied": {n: os.environ[n] for n in names if n in os.environ and "HOTFIX" in n}, "key": key,
    "ours": ours}))
"""


def probe(pair: str, folder: Path, **env: str) -> dict[str, Any]:
    (folder / "probe.py").write_text(dedent(PROBE))
    kept = {name: value for name, value in os.environ.items() if "ASCEND_HOTFIX" not in name}
    done = subprocess.run(
        [str(envs.python(pair)), str(folder / "probe.py")],
        env={**kept, "ASCEND_HOTFIX_SIM": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, marks=() if pair == "0.30.0rc2" else pytest.mark.longer)
        for pair in (*matrix.CI, *matrix.PLAIN)
    ],
)
def test_on_the_real_release_the_workers_get_the_toggles_and_the_compile_key_does_not(
    pair: str, tmp_path: Path
) -> None:
    """``VLLM_PLUGINS`` leaves our plugin out: the kill switch travels all the same."""
    off = probe(pair, tmp_path, ASCEND_HOTFIX_MODELS="none", VLLM_PLUGINS="ascend")
    asked = {toggles.MODELS: "none", toggles.STRICT: "1", toggles.LEDGER: "/late", toggles.PATH: ""}
    assert {name: off["copied"].get(name) for name in asked} == asked
    assert [name for name in off["ours"] if name.startswith(("wrapt", "ascend_hotfix.scope"))] == []
    on = probe(pair, tmp_path, VLLM_PLUGINS="ascend")
    assert on["copied"][toggles.MODELS] == "" and on["key"] == off["key"]
    assert "HOTFIX" not in on["key"]
