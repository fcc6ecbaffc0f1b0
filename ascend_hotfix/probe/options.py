"""What a probe can be told on the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

__all__ = ["KEY", "Endpoint", "Options", "add_arguments"]

KEY = "OPENAI_API_KEY"
MAX_KL = 0.1
"""Nats. Rounding weights to 8 bits takes a real small model 0.005 away, to 6 bits 0.06 to 0.1; gate and up swapped in one
layer of thirty takes it 0.18 or more (docs/probe.md)."""


@dataclass(frozen=True)
class Endpoint:
    """A server to ask: its URL, the model there (None: the only one) and the API key."""

    url: str
    model: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Options:
    """Seconds: ``timeout`` for one answer, ``max_time`` for everything, ``wait`` for a server that is not ready yet."""

    timeout: float = 120.0
    max_time: float = 900.0
    wait: float = 0.0
    max_kl: float = MAX_KL


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything but ``--language``, which all commands share."""
    standard = Options()
    parser.add_argument("url", metavar="URL", help="the server, such as http://localhost:8000")
    parser.add_argument("--model", metavar="NAME", help="which of its models, where it has several")
    parser.add_argument("--against", metavar="URL", help="a server known to be right, such as one of the float model")
    parser.add_argument("--against-model", metavar="NAME", help="which of that server's models")
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"for URL (default: the variable {KEY}, which no process list shows)"
    )
    parser.add_argument("--against-api-key", metavar="KEY", help=f"for the URL of --against (default: {KEY} too)")
    for option, standing, text in (
        ("--timeout", standard.timeout, "for one answer"),
        ("--max-time", standard.max_time, "for everything"),
    ):
        parser.add_argument(
            option, type=_positive, default=standing, metavar="SECONDS", help=f"{text} (default: {standing:g})"
        )
    parser.add_argument("--wait", type=_positive, default=0.0, metavar="SECONDS", help="for a server that still loads")
    parser.add_argument(
        "--max-kl",
        type=_positive,
        default=MAX_KL,
        metavar="NATS",
        help=f"mean KL divergence from --against that is right (default: {MAX_KL:g})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object (docs/probe.md)")
