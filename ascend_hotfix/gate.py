"""Arms this interpreter: what the ``.pth`` line, the ``.start`` file and vLLM's plugin entry point run.

It runs in every interpreter of the environment, so it touches nothing but ``sys`` and ``os`` (no ``__future__``, no
``typing``) and imports nothing of ours but the finder and the toggles. Everything else waits until vLLM or vllm-ascend is imported.
"""

import sys

__all__ = ["arm"]


def arm() -> None:
    """Puts the finder in place, once per process, and arms what was imported past it. Never raises.

    A virtual environment runs a ``.pth`` line twice, a forked child inherits the finder, and vLLM calls its
    plugins in every process: all of them meet here. Switched off, the finder carries the switch to Ray's workers and
    does nothing else.
    """
    try:
        from ascend_hotfix import finder, toggles

        finder.install()
        if "vllm.plugins" in sys.modules and toggles.switched_off() and toggles.ledger():
            from ascend_hotfix import log

            log.write_ledger()  # what is armed writes when it has loaded a model; what is not says so here
    except Exception as error:
        print(
            f"ascend-hotfix: not armed: {type(error).__name__}: {error}. Reinstall ascend-hotfix, or uninstall it.",
            file=sys.stderr,
        )
