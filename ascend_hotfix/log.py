"""Where our words go: the ``vllm.`` logger tree, because ``vllm serve`` shows no other.

Messages start with ``ascend-hotfix:``. :func:`finding` is how a seam or the catalog says that something
is wrong: a warning, once, or :class:`StrictError` under ``ASCEND_HOTFIX_STRICT=1``.
"""

from __future__ import annotations

import logging

from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.toggles import strict

__all__ = ["StrictError", "contained", "finding", "info"]

LOGGER = logging.getLogger("vllm.ascend_hotfix")


class StrictError(RuntimeError):
    """A finding under ASCEND_HOTFIX_STRICT=1."""


def info(message: str) -> None:
    """One line at INFO level."""
    LOGGER.info("ascend-hotfix: %s", message)


def finding(message: str) -> None:
    """Says once what is wrong. Raises StrictError instead under ASCEND_HOTFIX_STRICT=1."""
    new = LEDGER.find(message)
    if strict():
        raise StrictError(f"ascend-hotfix: {message} (ASCEND_HOTFIX_STRICT is set)")
    if new:
        LOGGER.warning("ascend-hotfix: %s", message)


def contained(what: str, error: BaseException) -> None:
    """An exception of ours: reported, and raised on under ASCEND_HOTFIX_STRICT=1 only."""
    if isinstance(error, StrictError):
        raise error
    message = f"internal error while {what}: {type(error).__name__}: {error}; the server goes on without it"
    new = LEDGER.find(message)
    if strict():
        raise StrictError(f"ascend-hotfix: {message} (ASCEND_HOTFIX_STRICT is set)") from error
    if new:
        LOGGER.warning("ascend-hotfix: %s", message, exc_info=error)
