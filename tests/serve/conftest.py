"""What the tests of the server share: the environment, the references, the runs in one process, and one server per family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from families import EXACT, FAMILIES, FURTHER, Lab

from ascend_hotfix.sim.server import PAIR, Server


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    from ascend_hotfix.sim import envs

    found = envs.build(PAIR)
    lab = Lab(found / "bin" / "python", found / "bin" / "vllm", tmp_path_factory.mktemp("serve"))
    changes = [(family.name, family.completed_by) for family in FAMILIES if family.completed_by]
    changes += [(family.name, change) for family in FAMILIES for change in family.controls]
    lab.script(
        "variants.py",
        [
            {"source": str(lab.checkpoint(n)), "target": str(lab.checkpoint(n, change)), "change": change}
            for n, change in changes
        ],
    )
    return lab


@pytest.fixture(scope="session")
def references(lab: Lab) -> Callable[[str], dict[str, Any]]:
    """Fake-quant log-probabilities of a checkpoint; all are computed by one process."""
    sighted = {family.name for family in FAMILIES if family.sees_images}
    jobs: list[dict[str, Any]] = [
        {
            "directory": str(lab.checkpoint(name)),
            "out": str(lab.work / f"{name}.reference.json"),
            "with_image": name in sighted,
        }
        for name in dict.fromkeys((*(family.name for family in FAMILIES), *FURTHER, *EXACT))
    ]
    jobs.append(
        {
            "directory": str(lab.checkpoint("qwen3-w8a8")),
            "out": str(lab.work / "qwen3-w8a8.reference.json"),
        }
    )
    jobs.append(
        {
            "directory": str(lab.checkpoint("qwen3-w8a8")),
            "out": str(lab.work / "qwen3-w8a8-without-bias.reference.json"),
            "drop_linear_bias": True,
        }
    )
    lab.script("reference.py", jobs)
    return lambda name: lab.results("reference", name)


@pytest.fixture(scope="session")
def engine(lab: Lab) -> Callable[[str], dict[str, Any]]:
    """Log-probabilities from vLLM's engine in one process: the controls (``checkpoint.change``) and :data:`FURTHER`."""
    runs = {name: lab.checkpoint(name) for name in (*FURTHER, "qwen3-w8a8")}
    runs |= {
        f"{family.name}.{change}": lab.checkpoint(family.name, change)
        for family in FAMILIES
        for change in family.controls
    }
    lab.script(
        "engine.py",
        [
            {"directory": str(directory), "quantization": "ascend", "out": str(lab.work / f"{name}.engine.json")}
            for name, directory in runs.items()
        ],
    )
    return lambda name: lab.results("engine", name)


@pytest.fixture(scope="session")
def in_float32(lab: Lab) -> Callable[[str], dict[str, Any]]:
    """Log-probabilities of a checkpoint of :data:`EXACT` from vLLM's engine with activations in float32."""

    @functools.cache
    def run(name: str) -> dict[str, Any]:
        out = lab.work / f"{name}.float32.json"
        job = {"directory": str(lab.checkpoint(name)), "quantization": "ascend", "float32": True, "out": str(out)}
        lab.script("engine.py", [job])
        return lab.results("float32", name)

    return run


@pytest.fixture(scope="session")
def start(lab: Lab) -> Iterator[Callable[..., Server]]:
    """Starts a server for a checkpoint and waits until it is ready."""
    running: list[Server] = []

    def start(directory: Path, *options: str) -> Server:
        log = lab.work / f"server{len(running)}.log"
        server = Server(
            [lab.vllm],
            directory,
            *(
                "--quantization",
                "ascend",
                "--max-model-len",
                "128",
                "--served-model-name",
                "tiny",
                "--max-logprobs",
                "-1",
            ),
            *options,
            log=log,
            env={"ASCEND_HOTFIX_MODELS": "none"},
        )
        running.append(server)
        server.wait_ready()
        return server

    yield start
    for server in running:
        server.kill()
