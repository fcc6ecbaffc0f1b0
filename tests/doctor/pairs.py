"""The upstream pairs, as the doctor's tests name them, and where their interpreters and the checkpoints are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_hotfix.sim import envs, matrix

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "tests" / "data" / "checkpoints"
PAIRS = tuple(".".join(pair.split(".")[:2]) for pair in matrix.CI)
EACH_PAIR = [p if p in ("0.11", "0.30") else pytest.param(p, marks=pytest.mark.longer) for p in PAIRS]
"""The oldest and the newest pair in the default lane, all in the longer one: an import takes up to a minute."""


def interpreter(pair: str) -> Path:
    """The interpreter of *pair*'s environment, built where it is missing: below ``ASCEND_HOTFIX_TEST_ENVS``, or the
    matrix's. Raises ``envs.BuildError``.
    """
    if root := os.environ.get("ASCEND_HOTFIX_TEST_ENVS"):
        return Path(root) / f"p{pair}" / "bin" / "python"
    return Path(envs.python(next(row for row in matrix.CI if row.startswith(f"{pair}."))))
