"""One process per upstream pair, for the tests that need the installed upstream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pairs import PAIRS, ROOT, interpreter

from ascend_hotfix.doctor.dryrun import finding_of
from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.sim.pool import Zygote


class Upstreams:
    """Starts a pair's process when it is first asked, and keeps one at a time: each takes most of a gigabyte."""

    def __init__(self) -> None:
        self._held: tuple[str, Zygote] | None = None

    def zygote(self, pair: str) -> Zygote:
        if self._held is None or self._held[0] != pair:
            self.close()
            self._held = pair, Zygote(interpreter(pair), path=[ROOT, Path(__file__).parent], arm=True)
        return self._held[1]

    def check(self, pair: str, model_dir: Path | str, models: str = "none", **arguments: Any) -> list[Finding]:
        """The findings of a dry run on *pair*, with the patches that *models* selects (none: stock upstream)."""
        answer = self.zygote(pair).call(
            "ascend_hotfix.doctor.rehearse:check",
            timeout=300,
            env={"ASCEND_HOTFIX_MODELS": models},
            model_dir=str(model_dir),
            **arguments,
        )
        return [finding_of(one) for one in answer["findings"]]

    def close(self) -> None:
        if self._held is not None:
            self._held[1].close()
            self._held = None


@pytest.fixture(scope="session")
def upstreams() -> Iterator[Upstreams]:
    held = Upstreams()
    yield held
    held.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one pair together, so that each upstream is imported once."""
    items.sort(key=lambda item: PAIRS.index(pair) + 1 if (pair := _pair(item)) in PAIRS else 0)


def _pair(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("pair", "")) if callspec is not None else ""
