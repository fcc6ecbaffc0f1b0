"""Runs the cases of plain vLLM, each release once for the whole session."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Case, interpreter, job_name

from ascend_hotfix import toggles

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS_PER_RELEASE = 900


class Results:
    """What became of every job, by release. A release is run when its first result is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._results: dict[str, dict[str, Any]] = {}

    def __call__(self, case: Case, way: str) -> dict[str, Any]:
        """The result of *case* in one of the ways of ``cases.WAYS``."""
        return self._release(case.release)[job_name(case, way)]

    def on(self, release: str, case: Case) -> dict[str, Any]:
        """The result of *case*, stock, on a release that does it right."""
        return self._release(release)[job_name(case, "right")]

    def _release(self, release: str) -> dict[str, Any]:
        if release not in self._results:
            self._results[release] = self._run(release)
        return self._results[release]

    def _run(self, release: str) -> dict[str, Any]:
        python = interpreter(release)
        jobs = {name: job for case in CASES for name, job in case.jobs(release).items()}
        given, answered = self._folder / f"{release}.jobs.json", self._folder / f"{release}.results.json"
        given.write_text(json.dumps(jobs))
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", toggles.MODELS: "none"}
        with (self._folder / f"{release}.log").open("w") as log:
            done = subprocess.run(
                [str(python), str(HERE / "runner.py"), str(given), str(answered)],
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_PER_RELEASE,
            )
        if done.returncode:
            pytest.fail(
                f"runner.py ended with {done.returncode}:\n" + (self._folder / f"{release}.log").read_text()[-3000:]
            )
        results: dict[str, Any] = json.loads(answered.read_text())
        return results


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """See :class:`Results`."""
    return Results(tmp_path_factory.mktemp("plain"))
