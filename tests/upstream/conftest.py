"""The tests here run functions of the ``*_cases`` modules inside the environments of the upstream matrix."""

from __future__ import annotations

from ascend_hotfix.sim.fixtures import *  # noqa: F403
