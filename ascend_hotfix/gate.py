"""Arms this interpreter: what the ``.pth`` line, the ``.start`` file and vLLM's plugin entry point run.

It runs in every interpreter of the environment, so it touches nothing but ``sys`` and ``os`` (no ``__future__``, no
``typing``) and imports nothing of ours but the toggles and the finder. Everything else waits until vLLM or vllm-ascend is imported.
"""

import sys

from ascend_hotfix import toggles

__all__ = ["arm"]


def arm() -> None:
    """Puts the finder in place, once per process; a second call changes nothing. Never raises.

    A virtual environment runs a ``.pth`` line twice, a forked child inherits the finder, and vLLM calls its
    plugins in every process: all of them meet here.
    """
    try:
        if not toggles.switched_off():
            from ascend_hotfix import finder

            finder.install()
    except Exception as error:
        print(
            f"ascend-hotfix: not armed: {type(error).__name__}: {error}. Reinstall ascend-hotfix, or uninstall it.",
            file=sys.stderr,
        )
