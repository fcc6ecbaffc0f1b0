"""Derives a patch module from the findings of a dry run, as few rules as explain all misses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.doctor.report import CouldNotRun

if TYPE_CHECKING:
    from ascend_hotfix.doctor.report import Report
    from ascend_hotfix.sim.pool import Zygote

__all__ = ["write_suggestion"]


def write_suggestion(
    zygote: Zygote, report: Report, target: Path, split: Any, findings: list[Finding]
) -> list[Finding]:
    """Write a patch to *target*; the findings that it adds to the report."""
    raise CouldNotRun("this build of ascend-hotfix suggests no patch yet")
