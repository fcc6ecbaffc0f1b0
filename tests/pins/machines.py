"""Environments with what the releases ask for, each once with a complete stand-in for CANN and once with none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import complete
import pytest

from ascend_hotfix.doctor.dryrun import APART, Split, run_split
from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.sim import envs, matrix
from ascend_hotfix.sim.pool import Zygote

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CHECKPOINTS = ROOT / "tests" / "data" / "checkpoints"
PINS = [
    pytest.param(pins.pair, marks=[] if pins.pair in matrix.CI_PINNED else [pytest.mark.longer])
    for pins in matrix.PINNED
]


@dataclass(frozen=True)
class Machine:
    """One environment and what of CANN it finds."""

    pair: str
    python: Path
    cann: Path

    def environment(self, mode: str, **more: str) -> dict[str, str]:
        """The variables of a process: ``none``, CANN on the loader's ``path``, or below its ``home``."""
        held = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "ATB_", "LD_"))}
        if mode == "path":
            held["LD_LIBRARY_PATH"] = str(self.cann / "lib64")
        if mode == "home":
            held["ASCEND_HOME_PATH"] = str(self.cann)
        return held | more

    def run(self, *command: str, mode: str = "none", **more: str) -> subprocess.CompletedProcess[str]:
        """A command of the environment's ``bin``."""
        program, *arguments = command
        done = [str(self.python.parent / program), *arguments]
        return subprocess.run(
            done, env=self.environment(mode, **more), capture_output=True, text=True, check=False, timeout=900
        )


@pytest.fixture(scope="session", params=PINS)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    python = envs.python(request.param)
    where = "import importlib.util as u, os; print(*(os.path.dirname(u.find_spec(n).origin) for n in ('torch_npu', 'torch')))"
    done = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    package, torch = map(Path, done.stdout.split())
    cann = tmp_path_factory.mktemp("cann")
    (cann / "lib64").mkdir()
    complete.build(package, torch, cann / "lib64")
    return Machine(request.param, python, cann)


def pair_of(machine: Machine) -> str:
    """What tests/patches calls the pair: 0.18-pins."""
    return f"{machine.pair.rsplit('.', 1)[0]}-pins"


def start(machine: Machine, mode: str, calls: Path, *, arm: bool, env: Mapping[str, str]) -> Zygote:
    """A process that has upstream imported, with what *mode* gives of CANN."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(machine.environment(mode, CANN_CALLS=str(calls)))
    try:
        return Zygote(machine.python, path=[ROOT, HERE, HERE.parent / "patches"], arm=arm, kernels=False, env=env)
    finally:
        os.environ.clear()
        os.environ.update(before)


class Upstream:
    """The doctor's forked process on one machine."""

    def __init__(self, machine: Machine, mode: str, calls: Path) -> None:
        self.machine, self.mode, self.calls = machine, mode, calls
        self.zygote = start(machine, mode, calls, arm=True, env=APART)

    def check(self, checkpoint: Path | str, models: str = "all") -> list[Finding]:
        """The findings of a dry run with the patches that *models* selects."""
        return run_split(self.zygote, str(CHECKPOINTS / checkpoint), Split(), {"ASCEND_HOTFIX_MODELS": models})


@pytest.fixture(scope="session", params=["none", "path"])
def upstream(
    request: pytest.FixtureRequest, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upstream]:
    held = Upstream(machine, request.param, tmp_path_factory.mktemp("calls") / "calls")
    yield held
    held.zygote.close()


class Cells:
    """Loads checkpoints on one machine, with CANN on the loader's path."""

    def __init__(self, machine: Machine, calls: Path) -> None:
        self.pair = pair_of(machine)
        self.zygote = start(machine, "path", calls, arm=False, env={"ASCEND_HOTFIX_MODELS": "none"})

    def run(self, pair: str, **arguments: Any) -> dict[str, Any]:
        """What ``inside.runner:run`` of tests/patches answers."""
        result: dict[str, Any] = self.zygote.call("inside.runner:run", timeout=600, **arguments)
        return result


@pytest.fixture(scope="session")
def cells(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    held = Cells(machine, tmp_path_factory.mktemp("calls") / "calls")
    yield held
    held.zygote.close()
