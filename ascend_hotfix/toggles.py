"""The environment variables that a user sets, and what they ask for.

The gate and the finder read them in every interpreter, so this module touches nothing but ``os``.
"""

import os

__all__ = [
    "ALL",
    "LEDGER",
    "MODELS",
    "OFF",
    "PATH",
    "SERVER",
    "STRICT",
    "TOLD",
    "ledger",
    "means_off",
    "strict",
    "switched_off",
]

MODELS = "ASCEND_HOTFIX_MODELS"
PATH = "ASCEND_HOTFIX_PATH"
STRICT = "ASCEND_HOTFIX_STRICT"
LEDGER = "ASCEND_HOTFIX_LEDGER"
ALL = (MODELS, PATH, STRICT, LEDGER)
TOLD = "_ASCEND_HOTFIX_TOLD"  # ours: what a process has told of the patches, for those that it starts
SERVER = "_ASCEND_HOTFIX_SERVER"  # ours: which server the processes belong to that one process has started
OFF = ("none", "0", "off", "false", "no")


def means_off(value: str) -> bool:
    """Is *value* one of ``none``, ``0``, ``off``, ``false`` or ``no``, whatever its case? A comma behind it says nothing."""
    return value.strip(", \t\n").lower() in OFF


def switched_off() -> bool:
    """Does ``ASCEND_HOTFIX_MODELS`` ask for nothing at all?"""
    return means_off(os.environ.get(MODELS, ""))


def strict() -> bool:
    """Does ``ASCEND_HOTFIX_STRICT`` ask for errors instead of warnings? Unset, ``0`` and ``off`` do not."""
    return os.environ.get(STRICT, "").strip().lower() not in ("", *OFF)


def ledger() -> str:
    """The folder that ``ASCEND_HOTFIX_LEDGER`` names, or an empty string."""
    folder = os.environ.get(LEDGER, "").strip()
    return os.path.expanduser(folder) if folder else ""
