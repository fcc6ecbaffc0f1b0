"""One server per upstream environment for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.pool import Zygote

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
STOCK, FIXED = "none", "all"


class Upstream:
    """Calls functions of ``inside.py`` in children of the servers, which are started when they are first needed."""

    def __init__(self) -> None:
        self._servers: dict[str, Zygote] = {}

    def __call__(self, pair: str, function: str, *, models: str = FIXED, **kwargs: Any) -> Any:
        """The value of *function* with all fixes, or with *models* in ASCEND_HOTFIX_MODELS (``STOCK`` is none)."""
        if pair not in self._servers:
            self.close()  # one at a time: each takes a gigabyte
            self._servers[pair] = Zygote(envs.python(pair), path=[ROOT, TESTS], arm=True)
        name = function if ":" in function else f"kinds.inside:{function}"
        return self._servers[pair].call(name, env={"ASCEND_HOTFIX_MODELS": models}, timeout=240, **kwargs)

    def close(self) -> None:
        """Ends all servers."""
        while self._servers:
            self._servers.popitem()[1].close()


@pytest.fixture(scope="session")
def upstream() -> Iterator[Callable[..., Any]]:
    """See :class:`Upstream`."""
    servers = Upstream()
    yield servers
    servers.close()


def _pair(item: pytest.Item) -> str:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return str(parameters.get("pair", ""))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the same environment one after another."""
    here = [item for item in items if Path(item.path).parent == Path(__file__).parent]
    ordered = iter(sorted(here, key=_pair))
    items[:] = [next(ordered) if item in here else item for item in items]
