"""Serves the cases: one upstream environment at a time, one forked child per case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from case import Case
from servers import Servers

HERE = Path(__file__).resolve().parent

Run = Callable[..., dict[str, Any]]


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
