"""Runs inside an upstream environment: what a case can do to its child."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def answer(**kwargs: Any) -> dict[str, Any]:
    print("printed by the case")
    return {"given": kwargs, "variable": os.environ.get("POOL_CASE"), "parent": os.getppid()}


def leave_a_mark() -> bool:
    """Whether an earlier case's mark is still there."""
    found = hasattr(sys, "pool_case_mark")
    sys.pool_case_mark = True  # type: ignore[attr-defined]
    return found


def fail_in_upstream() -> None:
    from ascend_hotfix.sim import lab

    lab.make_config(os.path.dirname(__file__))


def fail_in_vllm() -> None:
    from vllm.engine.arg_utils import EngineArgs

    EngineArgs(model="/nowhere/at/all").create_engine_config()


def hang() -> None:
    print("about to hang", flush=True)
    time.sleep(600)


def die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def return_an_object() -> object:
    return object()
