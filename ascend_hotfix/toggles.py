"""The environment variables that a user sets, and what they ask for.

The gate and the finder read them in every interpreter, so this module touches nothing but ``os``.
"""

import os

__all__ = ["LEDGER", "MODELS", "OFF", "PATH", "STRICT", "strict", "switched_off"]

MODELS = "ASCEND_HOTFIX_MODELS"
PATH = "ASCEND_HOTFIX_PATH"
STRICT = "ASCEND_HOTFIX_STRICT"
LEDGER = "ASCEND_HOTFIX_LEDGER"
OFF = ("none", "0", "off", "false", "no")


def switched_off() -> bool:
    """Does ``ASCEND_HOTFIX_MODELS`` ask for nothing at all (``none``, ``0``, ``off``, ``false`` or ``no``)?"""
    return os.environ.get(MODELS, "").strip().lower() in OFF


def strict() -> bool:
    """Does ``ASCEND_HOTFIX_STRICT`` ask for errors instead of warnings? Unset, ``0`` and ``off`` do not."""
    return os.environ.get(STRICT, "").strip().lower() not in ("", *OFF)
