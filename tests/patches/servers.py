"""The servers that run cases: one upstream environment at a time, one forked child per case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from case import PAIRS, PINS

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.pool import Zygote

__all__ = ["Servers"]

HERE = Path(__file__).resolve().parent
OFF = {"ASCEND_HOTFIX_MODELS": "none"}


class Servers:
    """The server of the pair that was asked last. Cases are sorted by pair, so each is started once."""

    def __init__(self) -> None:
        self._pair, self._server = "", None

    def __call__(self, pair: str, **arguments: Any) -> dict[str, Any]:
        """What ``inside.runner:run`` answers on *pair*."""
        if pair != self._pair:
            self.close()
            self._server = Zygote(envs.python(PAIRS[pair]), path=[HERE], kernels=pair not in PINS, env=OFF)
            self._pair = pair
        assert self._server is not None
        result: dict[str, Any] = self._server.call("inside.runner:run", timeout=240, **arguments)
        return result

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._pair, self._server = "", None
