"""What the simulated environment's ``.pth`` line imports: turn the simulation on when ``ASCEND_HOTFIX_SIM=1``, else
do nothing.

Only :mod:`ascend_hotfix.sim.envs` writes that ``.pth`` line, and only into environments it has built itself: a
machine with a real NPU never reaches this module.
"""

from __future__ import annotations

import os

__all__ = ["SWITCH", "boot"]

SWITCH = "ASCEND_HOTFIX_SIM"


def boot() -> None:
    """Install the import hooks of the simulation if the switch is set."""
    value = os.environ.get(SWITCH, "0")
    if value == "0":
        return
    if value != "1":
        raise SystemExit(f"{SWITCH}={value!r}: expected 1 (the NPU is simulated) or 0")
    from ascend_hotfix.sim import hooks

    hooks.install(platform=True)


boot()
