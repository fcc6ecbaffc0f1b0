"""pytest plugin for a run of upstream's own tests: CANN stubs beneath, ascend-hotfix armed or not, one outcome per
test.

Loaded with ``-p suite_plugin``, before upstream's own ``conftest.py``. ``UPSTREAM_SUITE_ARM=1`` arms ascend-hotfix;
the outcomes go to the file that ``UPSTREAM_SUITE_REPORT`` names, as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ascend_hotfix import gate
from ascend_hotfix.sim import hooks

hooks.install(platform=False)
if os.environ.get("UPSTREAM_SUITE_ARM") == "1":
    gate.arm()

_outcomes: dict[str, str] = {}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes[report.nodeid] = "collection failed"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    Path(os.environ["UPSTREAM_SUITE_REPORT"]).write_text(json.dumps(_outcomes))
