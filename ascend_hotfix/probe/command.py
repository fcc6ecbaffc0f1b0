"""The command ``ascend-hotfix probe``: what it prints where."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from ascend_hotfix.probe.options import KEY, Endpoint, Options
from ascend_hotfix.probe.report import to_json_text, to_text
from ascend_hotfix.probe.run import plan, probe
from ascend_hotfix.probe.texts import Said, label_of

__all__ = ["command"]


def command(arguments: argparse.Namespace) -> int:
    """Probe, print, and the exit code: 0 right, 1 wrong, 2 something could not be checked or told."""
    language: str = arguments.language
    standing_key = os.environ.get(KEY)
    endpoint = Endpoint(arguments.url, arguments.model, arguments.api_key or standing_key)
    against = None
    if arguments.against is not None:
        against = Endpoint(arguments.against, arguments.against_model, arguments.against_api_key or standing_key)
    options = Options(arguments.timeout, arguments.max_time, arguments.wait, arguments.max_kl)
    planned = {**plan(against is not None), "url": arguments.url, "seconds": f"{options.max_time:g}"}
    if against is not None:
        planned["url"] = f"{arguments.url}, {arguments.against}"
    _tell(Said("plan", planned).in_language(language))
    result = probe(endpoint, against, options, _progress(language))
    if result.error is not None:
        _tell(result.error.in_language(language))
    if arguments.json:
        print(to_json_text(result))
    elif result.error is None:
        print(to_text(result, sys.stdout.isatty() and "NO_COLOR" not in os.environ, language))
    return result.exit_code


def _tell(text: str) -> None:
    """For people, beside the result: never into JSON."""
    print(f"ascend-hotfix: {text}", file=sys.stderr, flush=True)


def _progress(language: str) -> Callable[[str], None]:
    """What is being asked, where somebody looks on."""
    return lambda name: _tell(f"{label_of(name, language)}...") if sys.stderr.isatty() else None
