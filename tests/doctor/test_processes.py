"""What runs beside upstream and what asks it share no code that either needs alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKED = {f"ascend_hotfix.doctor.{name}" for name in ("rehearse", "rehearsal", "observe", "judge", "layout")} | {
    f"ascend_hotfix.doctor.suggest.{name}" for name in ("propose", "derive", "structure", "trees", "assign", "rules")
}
ASKING = {"ascend_hotfix.doctor.dryrun", "ascend_hotfix.doctor.suggest.trial"}


@pytest.mark.parametrize(
    ("module", "barred"),
    [("ascend_hotfix.doctor.suggest.trial", FORKED), ("ascend_hotfix.doctor.suggest.propose", ASKING)],
)
def test_neither_process_imports_what_the_other_runs(module: str, barred: set[str]) -> None:
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('ascend_hotfix')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded and barred.isdisjoint(loaded)
