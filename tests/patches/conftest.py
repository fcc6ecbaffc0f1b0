"""Serves the cases: one upstream environment at a time, one forked child per case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from case import PAIRS, Case

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.pool import Zygote

HERE = Path(__file__).resolve().parent
OFF = {"ASCEND_HOTFIX_MODELS": "none"}
CI = {"0.11", "0.13", "0.18", "0.23", "0.30"}

Run = Callable[..., dict[str, Any]]


class Servers:
    """The server of the pair that was asked last. Cases are sorted by pair, so each is started once."""

    def __init__(self) -> None:
        self._pair, self._server = "", None

    def __call__(self, pair: str, **arguments: Any) -> dict[str, Any]:
        """What ``inside.runner:run`` answers on *pair*."""
        if pair != self._pair:
            self.close()
            self._server = Zygote(envs.python(PAIRS[pair]), path=[HERE], env=OFF)
            self._pair = pair
        assert self._server is not None
        result: dict[str, Any] = self._server.call("inside.runner:run", timeout=240, **arguments)
        return result

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._pair, self._server = "", None


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """``run(pair, checkpoint=..., armed=...)``: see :func:`inside.runner.run`."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def outcomes(run: Run) -> Callable[[Case], tuple[dict[str, Any], dict[str, Any]]]:
    """Stock and patched report of a case."""

    def ask(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
        shared = {name: getattr(case, name) for name in ("checkpoint", "draft", "engine", "undo", "device")}
        stock = run(case.pair, armed=False, **shared)
        return stock, run(case.pair, armed=True, release=case.release or None, **shared)

    return ask


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts this folder's tests by pair; the order of the others stays."""
    places = [i for i, item in enumerate(items) if HERE in item.path.parents]
    mine = sorted((items[i] for i in places), key=_pair)
    for place, item in zip(places, mine, strict=True):
        items[place] = item


def _pair(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("pair") if callspec else None
    case = callspec.params.get("case") if callspec else None
    return found or (case.pair if case else "")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    return val.id if isinstance(val, Case) else None
