"""The pinned lane: its environments have what the releases ask for, and a torch built for CUDA loads without CUDA."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim import device, envs, matrix, stubs

CI = [
    pytest.param(pins, id=pins.pair, marks=[] if pins.pair in matrix.CI_PINNED else [pytest.mark.longer])
    for pins in matrix.PINNED
]

UNMET = """
import importlib.metadata, json
from packaging.requirements import Requirement
unmet = []
for text in importlib.metadata.requires("vllm-ascend"):
    asked = Requirement(text)
    try:
        met = asked.specifier.contains(importlib.metadata.version(asked.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        met = False
    if not met:
        unmet.append(asked.name)
print(json.dumps([sorted(unmet), importlib.metadata.version("torch"), importlib.metadata.version("torch-npu")]))
"""


@pytest.mark.parametrize("pins", CI)
def test_an_environment_has_what_the_release_asks_for(pins: matrix.Pins) -> None:
    done = subprocess.run([envs.python(pins.pair), "-c", UNMET], capture_output=True, text=True, check=True)
    unmet, torch, npu = json.loads(done.stdout)
    assert unmet == sorted(pins.left_out)
    assert torch.partition("+")[0] == pins.torch.torch
    assert npu == pins.torch.npu


def _library(directory: Path, soname: str, code: str, *options: str) -> None:
    command = [
        stubs.compiler(),
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{soname}",
        "-x",
        "c",
        "-",
        "-o",
        str(directory / soname),
        "-x",
        "none",
    ]
    subprocess.run([*command, *options], input=code, text=True, check=True)


def test_a_torch_built_for_cuda_is_made_to_load_without_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The PyPI build for x86-64 needs several gigabytes of CUDA libraries only to be imported."""

    def pip(base: Path, target: Path, arguments: Any, env: Any = None) -> None:
        if arguments[-1].endswith("+cpu"):
            raise envs.BuildError("no such version")
        folder = envs._site(target) / "torch" / "lib"
        folder.mkdir(parents=True)
        (folder.parent / "version.py").write_text("__version__ = '2.9.0+cu128'\ncuda = '12.8'\nhip = None\n")
        elsewhere = tmp_path / "cuda"
        elsewhere.mkdir()
        (elsewhere / "map").write_text("libcudart.so.12 { global: cudaGetDeviceCount; };")
        _library(
            elsewhere,
            "libcudart.so.12",
            "int cudaGetDeviceCount(int *n) { return 0; }",
            f"-Wl,--version-script={elsewhere / 'map'}",
        )
        code = "int cudaGetDeviceCount(int *); int devices(void) { int n; return cudaGetDeviceCount(&n); }"
        _library(
            folder,
            "libtorch_cuda.so",
            code,
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-as-needed",
            str(elsewhere / "libcudart.so.12"),
        )

    monkeypatch.setattr(envs, "_pip", pip)
    envs._install_torch(tmp_path / "environment")
    library = ctypes.CDLL(str(envs._site(tmp_path / "environment") / "torch" / "lib" / "libtorch_cuda.so"))
    assert library.devices() == envs.CUDA_ERROR_NO_DEVICE


def test_pins_stand_for_pairs_of_the_quick_lane() -> None:
    assert {pins.row.pair for pins in matrix.PINNED} == set(matrix.CI)
    assert {pins.pair for pins in matrix.PINNED} >= set(matrix.CI_PINNED)
    with pytest.raises(KeyError, match=r"known: .*0\.18\.0-pins"):
        matrix.pins("0.18.0")


@pytest.mark.parametrize(("told", "version"), [("8.3.RC1", "8.3.RC1"), ("", None), ("not known", None), (None, None)])
def test_a_version_of_cann_that_nobody_knows_is_none(told: str | None, version: str | None) -> None:
    assert device._version_or_none(told) == version


def test_the_common_torch_built_for_cuda_is_refused(tmp_path: Path) -> None:
    """torch_npu 2.13 aborts the process beside it."""
    folder = envs._site(tmp_path) / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\nhip = None\n")
    with pytest.raises(envs.BuildError, match=r"torch 2\.13\.0\+cu130, beside which.*PIP_EXTRA_INDEX_URL"):
        envs._refuse_cuda(tmp_path)
