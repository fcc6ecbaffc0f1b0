"""Our toggles travel where vLLM's own variables travel.

vLLM copies to Ray workers the variables that ``vllm.envs.environment_variables`` lists (``vllm/ray/ray_env.py``,
every release from 0.11) and, in later releases, hashes them into the keys of its compile caches. Ours are listed
there too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

from ascend_hotfix import toggles
from ascend_hotfix.seams import hooking

__all__ = ["TOGGLES", "arm"]

TOGGLES = (toggles.MODELS, toggles.PATH, toggles.STRICT, toggles.LEDGER)


def arm(module: ModuleType) -> None:
    """Adds the toggles that are set to the variables that vLLM knows. One that is not set changes nothing."""
    known = getattr(module, "environment_variables", None)
    if not isinstance(known, dict):
        hooking.drifted("build", "vllm.envs.environment_variables", "vllm/envs.py")
        return
    for name in TOGGLES:
        if name in os.environ:
            known.setdefault(name, _reader(name))


def _reader(name: str) -> Callable[[], str | None]:
    return lambda: os.environ.get(name)
