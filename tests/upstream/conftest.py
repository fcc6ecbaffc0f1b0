"""The tests here run functions of the ``*_cases`` modules inside the environments of the upstream matrix."""

from __future__ import annotations

import pytest

from ascend_hotfix.sim.fixtures import *  # noqa: F403
from ascend_hotfix.versions import fits


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out a subject on the pairs that do not have its scheme: those outside its ``versions``."""
    left = [item for item in items if not _has_scheme(item)]
    items[:] = [item for item in items if _has_scheme(item)]
    config.hook.pytest_deselected(items=left)


def _has_scheme(item: pytest.Item) -> bool:
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    versions = getattr(given.get("subject"), "versions", None)
    return versions is None or fits(given["zygote"], versions)
