"""Real ``vllm serve`` of plain vLLM 0.30 on the CPU: what patches change, what the toggle and bad patches leave alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.server import PAIR, Server, ServerDied

HERE = Path(__file__).resolve().parent
OPTIONS = ("--skip-tokenizer-init", "--max-model-len", "64", "--enforce-eager", "--served-model-name", "tiny")
PLAIN = {
    "ASCEND_HOTFIX_SIM": "0",
    "PYTHONPATH": str(HERE / "hidden"),
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "VLLM_PLUGINS": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
PROMPTS = ([5, 17, 42, 99], [3, 200, 7], [250, 1, 1, 64, 31])

PATCH = """
from ascend_hotfix.records import {kind}, Fix, ModelPatch
PATCH = ModelPatch(
    model_types=("llama",),
    fixes=(Fix(id="fix", why="shown by a test", refs=("tests/serve_plain",), {rules}),),
    {more}
)
"""
MOVED = PATCH.format(kind="Prefix", rules='weights=(Prefix("language_model.model", "model"),)', more="")
BUILD = PATCH.format(kind="Prefix", rules='build=(Prefix("model", "backbone.model"),)', more="")


@pytest.fixture(scope="session")
def python() -> Path:
    return envs.python(PAIR)


@pytest.fixture(scope="session")
def checkpoint(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    for kind in ("right", "moved", "wrong-targets"):
        environ = {**os.environ, "ASCEND_HOTFIX_MODELS": "none", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [str(python), str(HERE / "checkpoint.py"), str(folder / kind), kind]
        subprocess.run(command, check=True, env=environ, timeout=600)
    return lambda kind: folder / kind


def tokens(server: Server) -> list[list[int]]:
    """Greedy tokens for each prompt; every answer is an HTTP 200, or this raises."""
    answers: list[list[int]] = []
    for prompt in PROMPTS:
        body: dict[str, Any] = {"model": "tiny", "prompt": list(prompt), "max_tokens": 8, "temperature": 0}
        body |= {"return_token_ids": True, "detokenize": False}
        choice = server.post("/v1/completions", body)["choices"][0]
        answers.append(choice["token_ids"])
    return answers


@pytest.fixture(scope="session")
def serve(
    python: Path, checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[list[list[int]], str]]:
    """Tokens and log of one server; each is started once."""
    logs = tmp_path_factory.mktemp("logs")
    held: dict[tuple[str, str, str], tuple[list[list[int]], str]] = {}

    def one(kind: str, models: str = "", path: str = "") -> tuple[list[list[int]], str]:
        key = (kind, models, path)
        if key not in held:
            log = logs / f"{len(held)}.log"
            environ = {**PLAIN, "ASCEND_HOTFIX_MODELS": models, "ASCEND_HOTFIX_PATH": path}
            with Server([python.parent / "vllm"], checkpoint(kind), *OPTIONS, log=log, env=environ) as server:
                server.wait_ready()
                answers = tokens(server)
                server.stop()
            held[key] = answers, log.read_text(errors="replace")
        return held[key]

    return one


@pytest.fixture(scope="session")
def right(serve: Callable[..., Any]) -> list[list[int]]:
    answers: list[list[int]] = serve("right", "none")[0]
    return answers


def test_moved_names_fail_as_released(python: Path, checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    environ = {**PLAIN, "ASCEND_HOTFIX_MODELS": "none"}
    command = [python.parent / "vllm"]
    with (
        Server(command, checkpoint("moved"), *OPTIONS, log=tmp_path / "log", env=environ) as server,
        pytest.raises(ServerDied),
    ):
        server.wait_ready()
    log = (tmp_path / "log").read_text(errors="replace")
    assert "ValueError: There is no module or parameter named 'language_model'" in log
    assert "ascend-hotfix: " not in log  # the name alone is in paths of the environment


def test_a_patch_serves_moved_names(serve: Callable[..., Any], right: list[list[int]], tmp_path: Path) -> None:
    (tmp_path / "moved.py").write_text(MOVED)
    answers, log = serve("moved", path=str(tmp_path))
    assert answers == right
    assert "applied moved.fix" in log


def test_a_build_rule_mends_a_wrong_prefix_that_answers_wrongly(
    serve: Callable[..., Any], right: list[list[int]], tmp_path: Path
) -> None:
    assert serve("wrong-targets", "none")[0] != right
    (tmp_path / "prefix.py").write_text(BUILD)
    broken = tmp_path / "broken"
    broken.mkdir()
    write_bad_patches(broken)
    path = os.pathsep.join([str(tmp_path), str(broken), str(tmp_path / "nowhere")])
    answers, log = serve("wrong-targets", path=path)
    assert answers == right
    assert "applied prefix.fix" in log
    for message in BAD_MESSAGES:
        assert log.count(message) >= 1, message
    before, _, _ = log.partition("non-default args")
    for message in TOLD_AT_START:
        assert (log.count(message), before.count(message)) == (1, 1), message


def log_of_a_strict_start(python: Path, model: Path, patches: Path) -> str:
    """What a server says that ends before it is ready, under ASCEND_HOTFIX_STRICT with the *patches* of a folder."""
    environ = {**PLAIN, "ASCEND_HOTFIX_MODELS": "", "ASCEND_HOTFIX_PATH": str(patches), "ASCEND_HOTFIX_STRICT": "1"}
    log = patches / "log"
    with Server([python.parent / "vllm"], model, *OPTIONS, log=log, env=environ) as server, pytest.raises(ServerDied):
        server.wait_ready()
    return log.read_text(errors="replace")


def test_strict_ends_the_start_where_a_patch_cannot_be_used(
    python: Path, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    write_bad_patches(tmp_path)
    told = log_of_a_strict_start(python, checkpoint("right"), tmp_path)
    assert "StrictError" in told and "non-default args" not in told
    assert all(told.count(message) == 1 for message in TOLD_AT_START[:2])


def test_strict_ends_the_server_with_the_finding(
    python: Path, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    write_bad_patches(tmp_path)
    for file in tmp_path.iterdir():
        if file.name != "unused.py":
            file.unlink()
    told = log_of_a_strict_start(python, checkpoint("right"), tmp_path)
    assert "unused.fix: its weights rules matched nothing" in told


def write_bad_patches(folder: Path) -> None:
    """One of each kind of bad patch."""
    (folder / "no_python.py").write_text("PATCH = ModelPatch(\n")
    (folder / "wrong_record.py").write_text(PATCH.format(kind="Prefix", rules='weights=("model",)', more=""))
    (folder / "twice.py").write_text(
        PATCH.format(kind="Suffix", rules='weights=(Suffix("never.there", "x"),)', more='name="prefix",')
    )
    (folder / "unused.py").write_text(
        PATCH.format(kind="Suffix", rules='weights=(Suffix("never.there", "x"),)', more="")
    )
    (folder / "no_class.py").write_text(
        PATCH.format(
            kind="Suffix", rules='weights=(Suffix("never.there", "x"),)', more='architectures=("LlamaForCausalLn",),'
        )
    )


TOLD_AT_START = (
    "no_python.py:1: is not valid Python",
    "wrong_record.py:5: ",
    "twice.py: patch name 'prefix' is taken by",
    "nowhere: No such file or directory",
)
BAD_MESSAGES = (
    "unused.fix: its weights rules matched nothing",
    "no_class: vLLM has no model class 'LlamaForCausalLn'",
)
