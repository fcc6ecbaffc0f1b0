"""What the dry run's own stand-ins cannot do is told apart from what upstream says of a checkpoint."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_hotfix.doctor import dryrun, rehearsal, run, standin
from ascend_hotfix.doctor.report import CouldNotRun, Options
from ascend_hotfix.doctor.texts import said_in
from ascend_hotfix.sim import frames
from ascend_hotfix.sim.pool import CaseError


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RuntimeError("No backend type associated with device type npu"), "the process groups of the device npu"),
        (
            NotImplementedError("Could not run 'npu::npu_x' with arguments from the 'Meta' backend."),
            "the op npu::npu_x",
        ),
        (AttributeError("'_OpNamespace' '_C_ascend' object has no attribute 'rope'"), "the op _C_ascend::rope"),
        (OSError("libopapi.so: cannot open shared object file: No such file"), "the library libopapi.so"),
        (
            ImportError("libtorch_npu.so: undefined symbol: HcclReduceScatter"),
            "the symbol HcclReduceScatter of a library",
        ),
        (RuntimeError("SetPrecisionMode:build/NPU.cpp:156 NPU function error: x\n[ERROR] ERR99999 UNKNOWN"), "CANN"),
        (RuntimeError("0 active drivers ([]). There should only be one."), "triton's driver"),
    ],
)
def test_an_error_of_a_stand_in_is_known(error: Exception, part: str) -> None:
    with pytest.raises(standin.StandInFault) as told:
        standin.check(error)
    assert told.value.part == part


@pytest.mark.parametrize(
    "error",
    [
        KeyError("model.layers.0.mlp.gate_proj.weight"),
        RuntimeError(
            "W8A8_MXFP8 linear quantization requires a newer torch_npu runtime. Missing symbols: float8_e8m0fnu"
        ),
        NotImplementedError("Currently, vLLM Ascend doesn't support W8A16 for moe."),
        AssertionError("Tensor shape mismatch"),
    ],
)
def test_what_upstream_says_of_a_checkpoint_is_none(error: Exception) -> None:
    standin.check(error)


def test_the_error_that_another_was_raised_for_counts() -> None:
    outer = ValueError("the model cannot be built")
    outer.__cause__ = OSError("libascend_hal.so: cannot open shared object file")
    with pytest.raises(standin.StandInFault, match="libascend_hal"):
        standin.check(outer)


def test_a_load_that_ends_at_a_stand_in_is_not_a_refused_tensor() -> None:
    def load(weights: Any) -> None:
        next(weights)
        raise RuntimeError("No backend type associated with device type npu")

    feed = rehearsal._Feed(iter([("a.weight", SimpleNamespace(shape=(1,), dtype="int8"))]))
    with pytest.raises(standin.StandInFault):
        rehearsal._load(load, feed, SimpleNamespace(feed=lambda weights: weights), rehearsal.Part("target"))  # type: ignore[arg-type]


class Zygote:
    """A forked process whose every case raises."""

    def __init__(self, error: CaseError) -> None:
        self.error = error

    def call(self, function: str, **arguments: Any) -> Any:
        raise self.error


def test_it_ends_the_dry_run_and_names_the_part_in_both_languages() -> None:
    fault = standin.StandInFault(
        "the op npu::x", "NotImplementedError: Could not run 'npu::x' (at vllm_ascend/a.py:1 f)"
    )
    error = CaseError("StandInFault", str(fault), [], "", "")
    with pytest.raises(CouldNotRun) as told:
        dryrun.call(Zygote(error), "a:b")  # type: ignore[arg-type]
    said = "the op npu::x could not be stood in for, which says nothing about the checkpoint: NotImplementedError: "
    assert str(told.value).startswith(said) and str(told.value).endswith("--static-only checks the files alone")
    chinese = said_in("zh", told.value.args[0])
    assert chinese.startswith("无法替代 the op npu::x") and "--static-only" in chinese


def test_a_report_with_it_ends_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise CouldNotRun("the op npu::x could not be stood in for")

    monkeypatch.setattr(dryrun, "run", broken)
    checkpoint = Path(__file__).resolve().parents[1] / "data" / "checkpoints" / "qwen3_moe-w8a8"
    report = run.diagnose(str(checkpoint), Options(), {"vllm": "0.18.0", "vllm-ascend": "0.18.0"})
    assert report.findings == [] and report.exit_code == 2
    assert report.stages[-1].reason == "the op npu::x could not be stood in for"


def test_an_import_that_fails_is_told_by_its_exception_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the last line of standard error, where torch_npu writes of its own."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # this environment has no vLLM
    with pytest.raises(CouldNotRun) as told:
        dryrun.start()
    said = str(told.value)
    assert said.startswith("vllm and vllm-ascend cannot be imported here: LabError: vllm is not installed in ")
    assert "sim/lab.py:" in said and said.endswith("--static-only checks the files alone")


def test_a_frame_is_told_by_package_wherever_the_package_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vllm", SimpleNamespace(__path__=["/workspace/vllm/vllm"]))
    assert frames.within("/workspace/vllm/vllm/model_executor/a.py") == "vllm/model_executor/a.py"
    assert frames.within("/workspace/vllm/other/a.py") == ""
    assert frames.within("/x/site-packages/vllm_ascend/utils.py") == "vllm_ascend/utils.py"
