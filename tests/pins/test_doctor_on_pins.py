"""The doctor on what the releases ask for: torch, torch_npu, transformers and numpy of their pins, with CANN and without.

``results/genuine.json`` of tests/patches has what loading each checkpoint there gave.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import complete
import pytest
from machines import CHECKPOINTS, HERE, Cells, Machine, Upstream, pair_of

from ascend_hotfix.doctor.dryrun import Split, call
from ascend_hotfix.doctor.findings import Severity
from ascend_hotfix.doctor.report import CouldNotRun
from ascend_hotfix.doctor.suggest.trial import suggestion

sys.path.append(str(HERE.parent / "patches"))
sys.path.append(str(HERE.parent / "doctor"))

import genuine
from mutations import make
from writer import genuine as written

RECORDED: dict[str, Any] = json.loads(genuine.RESULTS.read_text(encoding="utf-8"))
NAMES = sorted(path.name for path in CHECKPOINTS.iterdir())


DEQUANTIZED = ("hunyuan_v1_moe-w8a8_default", "qwen3_next-w8a8")
SCALES = re.compile(r"^no parameter of the target model takes \d+ weight_(scale|offset) tensors")
"""The dry run takes the scales that a patch reads to dequantize a weight for unused, in both lanes: a false alarm of its own."""


def test_a_dry_run_says_of_every_checkpoint_what_loading_it_gave(upstream: Upstream) -> None:
    pair = pair_of(upstream.machine)
    differ = {}
    for name in NAMES if upstream.mode == "none" else BESIDE_CANN:
        said = [finding.message for finding in upstream.check(name) if finding.severity is Severity.FAULT]
        cells = [RECORDED.get(f"{name}|{pair}|{part}") for part in ("target", "draft")]
        loaded = [fault for cell in cells if cell is not None for fault in cell["armed"]["faults"]]
        said = [message for message in said if not (name in DEQUANTIZED and SCALES.search(message))]
        if bool(said) != bool(loaded):
            differ[name] = said, loaded
    assert differ == {}


def test_a_dry_run_opens_no_npu(upstream: Upstream) -> None:
    assert upstream.check("deepseek_v3_2-w8a8") == []
    assert complete.calls(upstream.calls) == []


def test_the_npus_are_seen_where_nobody_hides_them(machine: Machine, tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    code = "from torch_npu import npu; import ctypes; print(npu.device_count()); ctypes.CDLL('libascendcl.so').aclrtSetDevice(0)"
    done = machine.run("python", "-c", code, mode="path", CANN_CALLS=str(tmp_path / "calls"))
    assert done.stdout.splitlines()[-1:] == [str(complete.NPUS)], done.stderr
    assert complete.calls(tmp_path / "calls") == ["aclrtSetDevice"]


def test_a_dry_run_registers_no_kernel(upstream: Upstream) -> None:
    assert call(upstream.zygote, "inside_pins:kernels") == {"registered": [], "defined": []}


def test_a_renamed_checkpoint_is_clean_with_the_suggested_patch(upstream: Upstream, tmp_path: Path) -> None:
    spec = written("qwen3_moe-w8a8")
    assert make(spec, "prefix_added_both", 1) is not None
    versions = {"vllm-ascend": upstream.machine.pair.removesuffix("-pins")}
    made = suggestion(upstream.zygote, str(spec.write(tmp_path)), Split(), versions, {"ASCEND_HOTFIX_MODELS": "all"})
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and not made.choices and not made.worse
    assert [finding.message for finding in made.left] == []


def test_what_a_stand_in_cannot_do_is_no_fault_of_the_checkpoint(upstream: Upstream) -> None:
    """Process groups without an NPU's backend: fault 5 of the report, at a layer of every MoE model."""
    with pytest.raises(CouldNotRun) as refused:
        call(upstream.zygote, "inside_pins:without_groups", model_dir=str(CHECKPOINTS / "qwen3_moe-w8a8"))
    said = str(refused.value)
    assert said.startswith("the process groups of the device npu could not be stood in for, which says nothing about")
    assert "RuntimeError: No backend type associated with device type npu (at vllm_ascend/" in said
    assert said.endswith("--static-only checks the files alone")


@pytest.mark.parametrize("mode", ["path", "home"])
def test_a_complete_cann_is_used_as_it_is_and_needs_no_compiler(machine: Machine, mode: str, tmp_path: Path) -> None:
    code = (
        "from ascend_hotfix.sim import hooks; hooks.install(platform=False, kernels=False)\n"
        "import torch_npu\n"
        "held = open('/proc/self/maps').read()\n"
        "print(sorted({line.split()[-1] for line in held.splitlines() if 'libascendcl.so' in line or 'libhccl.so' in line}))"
    )
    bare = {"PATH": str(tmp_path), "CC": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = machine.run("python", "-c", code, mode=mode, **bare)
    libraries = machine.cann / "lib64"
    assert done.stdout.splitlines()[-1:] == [
        str([str(libraries / name) for name in ("libascendcl.so", "libhccl.so")])
    ], done.stderr
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_without_a_compiler_what_is_missing_cannot_be_stood_in_for(machine: Machine, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "CC": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = machine.run("ascend-hotfix", "doctor", str(CHECKPOINTS / "qwen3-w8a8"), **bare)
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "NoCompiler: no C compiler found (tried cc, gcc, clang); install gcc or clang, or set CC" in said
    assert "--static-only checks the files alone" in said


def test_one_library_of_cann_that_is_missing_is_stood_in_for_alone(machine: Machine, tmp_path: Path) -> None:
    half = tmp_path / "half" / "lib64"
    half.mkdir(parents=True)
    for library in (machine.cann / "lib64").iterdir():
        if library.name != "libhccl.so":
            os.symlink(library, half / library.name)
    code = (
        "from ascend_hotfix.sim import hooks; hooks.install(platform=False, kernels=False)\n"
        "import torch_npu\n"
        "import importlib.util as u, pathlib\n"
        "from ascend_hotfix.sim import cann\n"
        "print(cann.plan(*(pathlib.Path(u.find_spec(n).origin).parent for n in ('torch_npu', 'torch'))).stood_in)"
    )
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "ASCEND_TOOLKIT_HOME": str(half.parent)}
    done = machine.run("python", "-c", code, **cache)
    assert done.stdout.splitlines()[-1:] == ["('libhccl.so',)"], done.stderr


def test_the_commands_work(machine: Machine, tmp_path: Path) -> None:
    status = machine.run("ascend-hotfix", "status")
    assert status.returncode == 0, status.stderr
    assert f"vllm-ascend {machine.pair.removesuffix('-pins')}" in status.stdout
    verify = machine.run("ascend-hotfix", "verify")
    assert verify.returncode == 0, verify.stdout + verify.stderr
    spec = written("qwen3_moe-w8a8")
    assert make(spec, "segment_renamed_described", 1) is not None
    model, patch = spec.write(tmp_path / "model"), tmp_path / "patch.py"
    faulty = machine.run("ascend-hotfix", "doctor", str(model), "--suggest", str(patch), mode="home")
    assert faulty.returncode == 1, faulty.stdout + faulty.stderr
    mended = machine.run("ascend-hotfix", "doctor", str(model), mode="home", ASCEND_HOTFIX_PATH=str(patch))
    assert mended.returncode == 0, mended.stdout + mended.stderr


BESIDE_CANN = (
    "qwen3_moe-w8a8",
    "deepseek_v3_2-w8a8",
    "qwen2_5-w8a8",
    "qwen3_vl_moe-w8a8_mxfp8",
    "longcat_flash-w4a4_mxfp4",
)
"""Of the default lane; without CANN tests/patches loads every cell."""


@pytest.mark.parametrize("name", [n if n in BESIDE_CANN else pytest.param(n, marks=pytest.mark.longer) for n in NAMES])
def test_a_checkpoint_loads_beside_a_cann_as_it_does_without(cells: Cells, name: str) -> None:
    for cell in genuine.CELLS:
        if cell[:2] == (name, cells.pair):
            assert genuine.look(cells.run, *cell) == RECORDED["|".join(cell)]
