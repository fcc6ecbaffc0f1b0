"""Counts as messages say them. This module imports nothing of ours."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, more: str = "") -> str:
    """``1 tensor``, ``2 tensors``; *more* where an s does not make the plural."""
    return f"{number} {one if number == 1 else more or one + 's'}"
