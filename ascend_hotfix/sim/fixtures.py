"""pytest fixtures over the upstream matrix: one server per pair, one forked child per call.

A ``conftest.py`` takes them with ``from ascend_hotfix.sim.fixtures import *``. They need pytest alone: the
environments run as subprocesses, and one that is missing is built first. A pair that cannot be installed is an error
of the run, not a skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_hotfix.sim import envs, matrix
from ascend_hotfix.sim.pool import Zygote

__all__ = ["armed_zygote", "zygote"]

_OFF = {"ASCEND_HOTFIX_MODELS": "none"}


def _serve(request: pytest.FixtureRequest, *, arm: bool) -> Iterator[Zygote]:
    pair = request.param
    try:
        interpreter = envs.python(pair)
    except envs.BuildError as error:
        pytest.exit(str(error), returncode=1)
    here = [Path(str(request.config.rootpath)) / "tests" / name for name in ("upstream", "patches", "doctor")]
    with Zygote(interpreter, path=[path for path in here if path.is_dir()], arm=arm, env={} if arm else _OFF) as server:
        yield server


@pytest.fixture(scope="session", params=matrix.CI)
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """Stock upstream of one pair of CI after the other; functions of modules in ``tests/upstream`` can be called by
    name.
    """
    yield from _serve(request, arm=False)


@pytest.fixture(scope="session", params=matrix.CI)
def armed_zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """As :func:`zygote`, with ascend-hotfix armed before upstream is imported."""
    yield from _serve(request, arm=True)
