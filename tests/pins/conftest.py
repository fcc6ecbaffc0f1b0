"""The fixtures of :mod:`machines`, one environment at a time."""

from __future__ import annotations

from machines import cells, machine, upstream

__all__ = ["cells", "machine", "upstream"]
