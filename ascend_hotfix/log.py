"""Where our words go: the ``vllm.`` logger tree, because ``vllm serve`` shows no other.

Messages start with ``ascend-hotfix:``. :func:`finding` is how a seam or the catalog says that something
is wrong: a warning, once, or :class:`StrictError` under ``ASCEND_HOTFIX_STRICT=1``. Names in a message are made
printable where they are put in (``words.printable``); what gets here all the same can neither colour nor forge a line.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from ascend_hotfix import toggles
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.toggles import strict
from ascend_hotfix.words import printable, said

__all__ = ["StrictError", "contained", "error", "finding", "info", "safe", "write_ledger"]

LOGGER = logging.getLogger("vllm.ascend_hotfix")
_said: set[str] = set()


class StrictError(RuntimeError):
    """A finding under ASCEND_HOTFIX_STRICT=1."""


def safe(message: str) -> str:
    """*message* with every line printable, and no line but the first at the margin, where the log's own lines begin."""
    first, *rest = message.split("\n")
    lines = [printable(line, sys.maxsize) for line in (first, *rest)]
    return "\n".join([lines[0], *(line if line.startswith("  ") else f"  {line}" for line in lines[1:])])


def info(message: str, *, once: str = "") -> None:
    """One line at INFO level, the first for its key *once* where there is one."""
    if not once or once not in _said:
        _said.add(once)
        LOGGER.info("ascend-hotfix: %s", safe(message))


def error(message: str) -> None:
    """One message at ERROR level, once."""
    message = safe(message)
    if LEDGER.find(message):
        LOGGER.error("ascend-hotfix: %s", message)


def finding(message: str, outcome: str = "") -> None:
    """Says once what is wrong, and the *outcome*. Raises StrictError instead under ASCEND_HOTFIX_STRICT=1."""
    message = safe(message)
    new = LEDGER.find(message)
    if strict():
        raise StrictError(f"ascend-hotfix: {message} (ASCEND_HOTFIX_STRICT is set)")
    if new:
        LOGGER.warning("ascend-hotfix: %s%s", message, outcome)


def contained(what: str, error: BaseException) -> None:
    """An exception of ours: reported, and raised on under ASCEND_HOTFIX_STRICT=1 only."""
    if isinstance(error, StrictError):
        raise error
    message = safe(f"internal error while {what}: {said(error)}; the server goes on without it")
    new = LEDGER.find(message)
    if strict():
        raise StrictError(f"ascend-hotfix: {message} (ASCEND_HOTFIX_STRICT is set)") from error
    if new:
        LOGGER.warning("ascend-hotfix: %s", message, exc_info=error)


def write_ledger(*, seldom: bool = False) -> None:
    """Writes the ledger where ASCEND_HOTFIX_LEDGER asks for it; a folder that cannot be written is a finding.

    *seldom*: not if it was written within the last second. A trainer may push its tensors one by one.
    """
    if not toggles.ledger() or (seldom and time.monotonic() - _Written.at < 1):
        return
    _Written.at = time.monotonic()
    from ascend_hotfix import scope
    from ascend_hotfix.seams import environment

    LEDGER.catalog = scope.catalog().digest()
    LEDGER.place = environment.place()
    try:
        LEDGER.write()
    except OSError as error:
        finding(
            f"{toggles.LEDGER}={os.environ.get(toggles.LEDGER)}: {error.strerror or error}; "
            "expected a folder that can be made and written"
        )


class _Written:
    """When the ledger was last written, on the monotonic clock."""

    at = float("-inf")
