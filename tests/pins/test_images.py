"""The commands where vLLM and vllm-ascend are built for no device and installed editable, as in the vendor's images."""

from __future__ import annotations

from pathlib import Path

import images
import pytest
from machines import CHECKPOINTS, Machine


@pytest.fixture(scope="module")
def image(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    release = machine.pair.removesuffix("-pins")
    return Machine(machine.pair, images.build(machine.python, release, tmp_path_factory.mktemp("image")), machine.cann)


def test_it_is_an_editable_install_without_compiled_parts(image: Machine) -> None:
    code = (
        "import importlib.metadata as m, importlib.util as u\n"
        "print(m.version('vllm'), u.find_spec('vllm').origin, u.find_spec('vllm_ascend').origin)"
    )
    done = image.run("python", "-c", code)
    version, vllm, ascend = done.stdout.split()
    assert version.endswith("+empty"), done.stderr
    assert not list(Path(vllm).parent.rglob("*.so"))
    assert "site-packages" not in vllm + ascend


def test_status_and_verify_know_the_release(image: Machine) -> None:
    release = image.pair.removesuffix("-pins")
    status = image.run("ascend-hotfix", "status")
    assert status.returncode == 0 and f"vllm {release}+empty, vllm-ascend {release}" in status.stdout, status.stderr
    verify = image.run("ascend-hotfix", "verify")
    assert verify.returncode == 0, verify.stdout + verify.stderr


def test_the_doctor_finds_what_is_right_and_what_is_wrong(image: Machine, tmp_path: Path) -> None:
    right = image.run("ascend-hotfix", "doctor", str(CHECKPOINTS / "qwen3_moe-w8a8"), mode="path")
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = image.run("ascend-hotfix", "doctor", str(CHECKPOINTS / "hunyuan_v1_moe-w8a16_default"), mode="path")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "vllm_ascend/" in wrong.stdout or "W8A16" in wrong.stdout
