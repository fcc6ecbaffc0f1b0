"""The server that imports upstream once: every case in a child of its own, every end of a child reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ascend_hotfix.sim.pool import CaseCrash, CaseError, CaseTimeout, Zygote, ZygoteError


def test_a_value_comes_back_and_what_is_printed_does_not_disturb_it(zygote: Zygote) -> None:
    answer = zygote.call("pool_cases:answer", number=3, names=["a"], env={"POOL_CASE": "here"})
    assert answer["given"] == {"number": 3, "names": ["a"]}
    assert answer["variable"] == "here"
    assert zygote.call("pool_cases:answer")["variable"] is None


def test_nothing_that_a_case_changes_outlives_it(zygote: Zygote) -> None:
    assert zygote.call("pool_cases:leave_a_mark") is False
    assert zygote.call("pool_cases:leave_a_mark") is False


def test_an_exception_comes_back_with_its_type_and_the_upstream_frames(zygote: Zygote) -> None:
    with pytest.raises(CaseError) as caught:
        zygote.call("pool_cases:fail_in_vllm")
    assert caught.value.frames
    assert caught.value.frames[0].startswith("vllm/engine/arg_utils.py:")
    assert "pool_cases.py" in caught.value.traceback


def test_a_directory_without_a_config_is_named(zygote: Zygote) -> None:
    with pytest.raises(CaseError, match="expected a checkpoint directory") as caught:
        zygote.call("pool_cases:fail_in_upstream")
    assert caught.value.type == "FileNotFoundError"


def test_a_case_that_hangs_is_killed_and_the_next_one_runs(zygote: Zygote) -> None:
    with pytest.raises(CaseTimeout, match="about to hang"):
        zygote.call("pool_cases:hang", timeout=2)
    assert zygote.call("pool_cases:answer", still="alive")["given"] == {"still": "alive"}


def test_a_case_that_dies_is_reported_with_its_signal(zygote: Zygote) -> None:
    with pytest.raises(CaseCrash, match="signal 11"):
        zygote.call("pool_cases:die")


def test_a_result_that_is_no_json_is_an_error_of_the_case(zygote: Zygote) -> None:
    with pytest.raises(CaseError, match="not JSON serializable"):
        zygote.call("pool_cases:return_an_object")


def test_an_environment_without_upstream_says_so() -> None:
    root = Path(__file__).parents[2]
    with pytest.raises(ZygoteError, match="vllm is not installed"):
        Zygote(sys.executable, path=[root])
