"""The probe against the real ``vllm serve`` on the simulated NPU: a checkpoint as it is, and one that computes something else.

The checkpoint has random weights, so what it says is garbage either way, and has to be called so. Served right, it is
consistent with itself; served wrong, it is too, and only the other server tells.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from reading import check, states

from ascend_hotfix.cli import main
from ascend_hotfix.sim import envs
from ascend_hotfix.sim.server import PAIR, Server

CHECKPOINT = Path(__file__).parents[1] / "data" / "checkpoints" / "qwen3_moe-w8a8"
pytestmark = pytest.mark.longer
OPTIONS = ("--quantization", "ascend", "--max-model-len", "128", "--served-model-name", "tiny")
PATIENT = ("--timeout", "600", "--max-time", "3000")
TINY = "0.0005"
"""Nats: with random weights every distribution is nearly flat, and a wrong one is not far from it."""


def swap_embedding_and_head(target: Path) -> None:
    """A copy of the checkpoint in which each of the two, which have one shape, has the other's name."""
    shutil.copytree(CHECKPOINT, target)
    other = {'"model.embed_tokens.weight"': '"lm_head.weight"', '"lm_head.weight"': '"model.embed_tokens.weight"'}
    swapped = 0
    for path in target.glob("*.safetensors"):
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        header = content[8 : 8 + length].decode()
        header, count = re.subn("|".join(map(re.escape, other)), lambda found: other[found[0]], header)
        assert len(header) == length
        path.write_bytes(content[:8] + header.encode() + content[8 + length :])
        swapped += count
    assert swapped == 2


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """URLs of the right one and of the wrong one."""
    work = tmp_path_factory.mktemp("probe")
    swap_embedding_and_head(work / "swapped")
    vllm = [envs.build(PAIR) / "bin" / "vllm"]
    none = {"ASCEND_HOTFIX_MODELS": "none"}
    with (
        Server(vllm, CHECKPOINT, *OPTIONS, log=work / "right.log", env=none) as right,
        Server(vllm, work / "swapped", *OPTIONS, log=work / "wrong.log", env=none) as wrong,
    ):
        right.wait_ready()
        wrong.wait_ready()
        yield f"http://127.0.0.1:{right.port}", f"http://127.0.0.1:{wrong.port}"


def test_random_weights_served_right_are_garbage_that_is_consistent(servers, capsys) -> None:
    right, _ = servers
    assert main(["probe", right, "--json", "--against", right, "--max-kl", TINY, *PATIENT]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["server"]["way"] == "prompt_logprobs" and report["server"]["version"]
    found = check(report, "language")
    assert (found["state"], found["code"]) == ("wrong", "garbage")
    assert found["numbers"]["perplexity_en"] == pytest.approx(found["numbers"]["vocabulary_at_least"], rel=0.25)
    assert {name: states(report)[name] for name in ("batch", "decode", "against")} == dict.fromkeys(
        ("batch", "decode", "against"), "right"
    )


def test_a_checkpoint_served_wrong_is_told_by_the_right_one(servers, capsys) -> None:
    right, wrong = servers
    assert main(["probe", wrong, "--json", "--against", right, "--max-kl", TINY, *PATIENT]) == 1
    report = json.loads(capsys.readouterr().out)
    found = check(report, "against")
    assert found["code"] == "against-far", found
    assert found["numbers"]["same_best"] < found["numbers"]["positions"] / 2
