"""Shows what a probe found: lines for people, JSON for machines (docs/probe.md describes it)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ascend_hotfix import __version__
from ascend_hotfix.doctor.report import padded
from ascend_hotfix.probe.judge import RIGHT, UNCHECKED, UNCLEAR, WRONG, Check, number
from ascend_hotfix.probe.protocol import Server
from ascend_hotfix.probe.run import Result
from ascend_hotfix.probe.texts import Said, label_of

__all__ = ["JSON_SCHEMA", "JSON_VERSION", "to_json_text", "to_text"]

JSON_SCHEMA = "ascend-hotfix/probe"
JSON_VERSION = 1
COLOURS = {RIGHT: "32;1", WRONG: "31;1", UNCLEAR: "33;1", UNCHECKED: "36"}
SHOWN = 60  # characters of a prompt or an answer


# -- JSON -------------------------------------------------------------------------------------------------------------


def _finite(value: Any) -> Any:
    """*value* for JSON, which has no NaN and no infinity: those are null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


def _server_json(server: Server | None) -> dict[str, Any] | None:
    if server is None:
        return None
    return {
        "url": server.client.url,
        "model": server.served.model,
        "models": list(server.served.models),
        "version": server.served.version,
        "max_model_len": server.served.longest,
        "way": server.way,
        "top_logprobs": server.top,
        "requests": server.client.requests,
        "prompt_tokens": server.read,
        "completion_tokens": server.generated,
    }


def _check_json(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "state": check.state,
        "code": check.said.code,
        "message": check.said.in_language("en"),
        "notes": [{"code": note.code, "message": note.in_language("en")} for note in check.notes],
        "numbers": check.numbers,
        "details": check.details,
    }


def to_json_text(result: Result) -> str:
    """One JSON object; the same in every language."""
    error = result.error
    content = {
        "schema": JSON_SCHEMA,
        "version": JSON_VERSION,
        "tool_version": __version__,
        "server": _server_json(result.server),
        "against": _server_json(result.other),
        "error": None if error is None else {"code": error.code, "message": error.in_language("en")},
        "checks": [_check_json(check) for check in result.checks],
        "seconds": result.seconds,
        "exit_code": result.exit_code,
    }
    return json.dumps(_finite(content), ensure_ascii=False, indent=2)


# -- text -------------------------------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    """What a server says, safe for a terminal and on one line."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def _head(server: Server, name: str, language: str) -> Iterator[str]:
    served = server.served
    version = f", vLLM {served.version}" if served.version else ""
    longest = f", max_model_len {served.longest:,}" if served.longest else ""
    about = Said("server", {"url": server.client.url, "model": served.model, "version": version, "longest": longest})
    yield padded(label_of(name, language)) + _printable_line(about.in_language(language))
    way = Said(f"way-{server.way}", {"top": server.top})
    yield padded(label_of("way", language)) + way.in_language(language)


def _printable_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _details(check: Check, language: str) -> Iterator[str]:
    if check.name == "language":
        for each in check.details:
            said = {name: number(each[name]) for name in ("perplexity", "shuffled", "repeated")}
            words = Said("text-line", {**said, "tokens": each["tokens"], "name": each["text"]})
            yield padded(f"  {label_of('text', language)}") + words.in_language(language)
    elif check.name == "answers":
        for each in check.details:
            prompt, text = _printable(each["prompt"]), _printable(each["text"])
            yield padded(f"  {label_of('says', language)}") + f'"{prompt}" -> "{text}"'
    elif check.name == "batch":
        for each in check.details:
            alone, together = _printable(each["alone"]), _printable(each["in_batch"])
            words = Said("batch-line", {"prompt": _printable(each["prompt"]), "alone": alone, "together": together})
            yield padded(f"  {label_of('text', language)}") + words.in_language(language)


def _check_lines(check: Check, colour: bool, language: str) -> Iterator[str]:
    state = label_of(check.state, language)
    painted = f"\x1b[{COLOURS[check.state]}m{state}\x1b[0m" if colour else state
    label = padded(label_of(check.name, language)) + painted + padded(state, 11)[len(state) :]
    yield label + _printable_line(check.said.in_language(language))
    for note in check.notes:
        yield padded(f"  {label_of('note', language)}") + _printable_line(note.in_language(language))
    yield from _details(check, language)


def to_text(result: Result, colour: bool, language: str) -> str:
    """The report in ``en`` or ``zh``; :attr:`Result.error` is not in it."""
    lines: list[str] = []
    if result.server is not None:
        lines += _head(result.server, "server", language)
    if result.other is not None:
        lines += _head(result.other, "against", language)
    for check in result.checks:
        lines += _check_lines(check, colour, language)
    asked = [server for server in (result.server, result.other) if server is not None]
    if asked:
        numbers = {
            "requests": sum(server.client.requests for server in asked),
            "read": f"{sum(server.read for server in asked):,}",
            "write": sum(server.generated for server in asked),
            "seconds": number(result.seconds),
        }
        lines.append(padded(label_of("asked", language)) + Said("asked", numbers).in_language(language))
    if result.checks:
        lines.append(_verdict(result).in_language(language))
    return "\n".join(lines)


def _verdict(result: Result) -> Said:
    code = {0: "verdict-right", 1: "verdict-wrong", 2: "verdict-unclear"}[result.exit_code]
    return Said(code)
