"""Finds things in a probe's JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Probed = Callable[..., tuple[int, dict[str, Any]]]
"""The fixture ``probed``: exit code and JSON."""


def states(report: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in report["checks"]}


def check(report: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [check for check in report["checks"] if check["name"] == name]
    return found
