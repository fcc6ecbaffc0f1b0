"""What is done to upstream, and where: called by the finder after each watched module has been executed."""

from __future__ import annotations

from types import ModuleType

__all__ = ["on_import"]


def on_import(name: str, module: ModuleType) -> None:
    """Hooks what the seams know of *module*; called again when it is reloaded."""
