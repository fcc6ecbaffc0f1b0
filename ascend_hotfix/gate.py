"""Arms this interpreter: what the ``.pth`` line, the ``.start`` file and vLLM's plugin entry point run.

It runs in every interpreter of the environment, so it touches nothing but ``sys`` and ``os`` (no ``__future__``, no
``typing``) and imports nothing of ours but the finder. Everything else waits until vLLM or vllm-ascend is imported.
"""

import os
import sys

__all__ = ["MODELS", "OFF", "STRICT", "arm", "strict", "switched_off"]

MODELS = "ASCEND_HOTFIX_MODELS"
STRICT = "ASCEND_HOTFIX_STRICT"
OFF = ("none", "0", "off", "false", "no")


def switched_off() -> bool:
    """Does ``ASCEND_HOTFIX_MODELS`` ask for nothing at all (``none``, ``0``, ``off``, ``false`` or ``no``)?"""
    return os.environ.get(MODELS, "").strip().lower() in OFF


def strict() -> bool:
    """Does ``ASCEND_HOTFIX_STRICT`` ask for errors instead of warnings? Unset, ``0`` and ``off`` do not."""
    return os.environ.get(STRICT, "").strip().lower() not in ("", *OFF)


def arm() -> None:
    """Puts the finder in place, once per process; a second call changes nothing. Never raises.

    A virtual environment runs a ``.pth`` line twice, a forked child inherits the finder, and vLLM calls its
    plugins in every process: all of them meet here.
    """
    try:
        if not switched_off():
            from ascend_hotfix import finder

            finder.install()
    except Exception as error:
        print(
            f"ascend-hotfix: not armed: {type(error).__name__}: {error}. Reinstall ascend-hotfix, or uninstall it.",
            file=sys.stderr,
        )
