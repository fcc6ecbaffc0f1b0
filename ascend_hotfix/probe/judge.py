"""What the numbers mean: each check's state and the sentence that gives the evidence.

Where the limits come from: a real 135M language model (vocabulary 49,152) right, with gate and up projections swapped in 1
to 30 layers, with queries permuted, without rotary embedding, with noise and with random weights. docs/probe.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.probe.measure import Agreement, Distance, Likelihood, perplexity
from ascend_hotfix.probe.texts import Said

__all__ = [
    "RIGHT",
    "UNCHECKED",
    "UNCLEAR",
    "WRONG",
    "Check",
    "judge_against",
    "judge_answers",
    "judge_batch",
    "judge_decode",
    "judge_language",
    "number",
]

RIGHT, WRONG, UNCLEAR, UNCHECKED = "right", "wrong", "unclear", "unchecked"

UNKNOWN_VOCABULARY = 32_000
"""Assumed where a server tells no token ids; nearly every language model has as many tokens or more."""

SANE_SHARE = 0.5
"""Surprise of plain text, as a share of the surprise of guessing, up to which a model speaks. Right 0.28; random 1.05."""

GUESSING_SHARE = 0.85
"""From here on a model is no better than one that guesses: layers with gate and up swapped have 0.89 and more."""

BROKEN_SHARE = 0.6
"""From here on a model that also attends to nothing is garbage: permuted queries have 0.68 and more."""

LEAST_ORDER = 0.5
"""Nats by which shuffled words must be less likely. Right 4.1 and 1.7 (English, Chinese); random -0.1."""

LEAST_COPY = 1.5
"""Nats by which words read before must be likelier. Right 6.3 and 3.9; without rotary embedding 1.0; random 0.0."""

NO_COPY = 1.0

ROUNDING = (0.2, 1.0)
"""Mean and worst difference of log-probability up to which two runs of one server are the same but for rounding."""

DIFFERENT = (0.5, 2.0)
"""Mean and worst difference from which they are not."""

LEAST_DECODED = 8
"""Generated tokens that must be compared before anything is said of decode."""


@dataclass
class Check:
    """One question to the server. ``notes`` say more in sentences, ``numbers`` and ``details`` to machines."""

    name: str
    state: str
    said: Said
    notes: list[Said] = field(default_factory=list)
    numbers: dict[str, float | int | None] = field(default_factory=dict)
    details: list[dict[str, Any]] = field(default_factory=list)


def number(value: float) -> str:
    """Three digits, or as many as a large whole number has."""
    if math.isinf(value):
        return "over 1e300"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


# -- language ---------------------------------------------------------------------------------------------------------


def judge_language(found: Mapping[str, Likelihood], highest: int) -> Check:
    """*found*: by language. *highest*: the highest token id seen, 0 where no ids are told.

    One language that the model speaks is enough: a model that knows no Chinese is not wrong.
    """
    vocabulary = highest + 1 if highest else UNKNOWN_VOCABULARY
    numbers: dict[str, float | int | None] = {"vocabulary_at_least": highest + 1 if highest else None}
    for language, one in found.items():
        numbers |= {
            f"perplexity_{language}": perplexity(one.written),
            f"order_gain_{language}": one.order_gain,
            f"copy_gain_{language}": one.copy_gain,
            f"tokens_{language}": one.tokens,
        }
    if any(math.isnan(one.written + one.shuffled + one.repeated) for one in found.values()):
        return Check("language", WRONG, Said("not-numbers"), numbers=numbers)
    states = {language: _state(one, math.log(vocabulary)) for language, one in found.items()}
    best = min(found, key=lambda language: ((RIGHT, UNCLEAR, WRONG).index(states[language]), found[language].written))
    one = found[best]
    params = {
        "perplexity": number(perplexity(one.written)),
        "language": Said(f"lang-{best}"),
        "order": number(one.order_gain),
        "copy": number(one.copy_gain),
        "vocabulary": number(vocabulary),
    }
    code = {RIGHT: "sane", UNCLEAR: "unclear-language", WRONG: "garbage"}[states[best]]
    check = Check("language", states[best], Said(code, params), numbers=numbers)
    if states[best] == RIGHT:
        for language in (name for name, state in states.items() if state != RIGHT):
            words = {"language": Said(f"lang-{language}"), "perplexity": number(perplexity(found[language].written))}
            check.notes.append(Said("weak-in", words))
    return check


def _state(one: Likelihood, guessing: float) -> str:
    """RIGHT, UNCLEAR or WRONG for one language; *guessing*: the surprise of a uniform guess over the vocabulary."""
    share = one.written / guessing
    if share >= GUESSING_SHARE or (share >= BROKEN_SHARE and one.copy_gain < NO_COPY):
        return WRONG
    is_sane = share <= SANE_SHARE and one.order_gain >= LEAST_ORDER and one.copy_gain >= LEAST_COPY
    return RIGHT if is_sane else UNCLEAR


def judge_answers(hits: int, degenerate: int, count: int, language: str) -> Check:
    """*hits* and *degenerate* of *count* completions; *language*: the state of that check."""
    if not count:
        return Check("answers", UNCHECKED, Said("answers-none"))
    numbers: dict[str, float | int | None] = {"expected": hits, "degenerate": degenerate, "completions": count}
    params = {"hits": hits, "count": count}
    if degenerate == count:
        return Check("answers", WRONG, Said("answers-degenerate"), numbers=numbers)
    if 3 * hits >= count:
        return Check("answers", RIGHT, Said("answers", params), numbers=numbers)
    if language == RIGHT:
        return Check("answers", RIGHT, Said("answers-other", params), numbers=numbers)
    return Check("answers", UNCLEAR, Said("answers-unclear", params), numbers=numbers)


# -- the same, asked in two ways ----------------------------------------------------------------------------------------


def _of_runs(found: Sequence[Agreement]) -> tuple[str, dict[str, float | int | None]]:
    """The state of all comparisons together: the worst of them counts, since a fault may hit one prompt alone."""
    compared = [one for one in found if one.positions]
    total = sum(one.positions for one in compared)
    mean = sum(one.mean_gap * one.positions for one in compared) / total if total else math.nan
    worst = math.nan if any(math.isnan(one.worst_gap) for one in compared) else max(one.worst_gap for one in compared)
    highest = max(compared, key=lambda one: one.mean_gap).mean_gap
    numbers: dict[str, float | int | None] = {"positions": total, "mean_gap": mean, "worst_gap": worst}
    if math.isnan(mean) or highest > DIFFERENT[0] or worst > DIFFERENT[1]:
        return WRONG, numbers
    return (UNCLEAR if highest > ROUNDING[0] or worst > ROUNDING[1] else RIGHT), numbers


def _say_gaps(name: str, state: str, params: Mapping[str, object], gaps: Mapping[str, float | int | None]) -> Said:
    """The sentence for a comparison of runs."""
    mean, worst = float(gaps["mean_gap"] or 0), float(gaps["worst_gap"] or 0)
    if math.isnan(mean):
        return Said("not-numbers")
    word = {RIGHT: "same", UNCLEAR: "unclear", WRONG: "wrong"}[state]
    return Said(f"{name}-{word}", {**params, "mean": number(mean), "worst": number(worst)})


def judge_batch(found: Sequence[Agreement], texts_same: Sequence[bool], size: int) -> Check:
    """*found*: of each prompt alone and in a batch of *size*; empty where the server tells no log-probabilities."""
    count, same = len(texts_same), sum(texts_same)
    if count < 2:
        return Check("batch", UNCHECKED, Said("batch-none", {"count": count}))
    params: dict[str, object] = {"same": same, "count": count, "size": size}
    numbers: dict[str, float | int | None] = {"same": same, "completions": count, "batch": size}
    if not any(one.positions for one in found):
        code, state = ("batch-same-text", RIGHT) if same == count else ("batch-unclear-text", UNCLEAR)
        return Check("batch", state, Said(code, params), numbers=numbers)
    state, gaps = _of_runs(found)
    return Check("batch", state, _say_gaps("batch", state, params, gaps), numbers=numbers | gaps)


def judge_decode(found: Sequence[Agreement]) -> Check:
    """*found*: of each prompt's generated tokens, as they were decoded and as a prompt."""
    count = sum(one.positions for one in found)
    if count < LEAST_DECODED:
        return Check("decode", UNCHECKED, Said("decode-too-few", {"count": count}), numbers={"positions": count})
    state, gaps = _of_runs(found)
    return Check("decode", state, _say_gaps("decode", state, {"count": count}, gaps), numbers=gaps)


# -- against another server ---------------------------------------------------------------------------------------------


def judge_against(found: Distance, other: str, allowed: float, top: int) -> Check:
    """*top*: how many best tokens per position both told."""
    numbers: dict[str, float | int | None] = {
        "positions": found.positions,
        "kl_at_least": found.kl,
        "kl_allowed": allowed,
        "covered": found.covered,
        "top": top,
        "same_best": found.same_best,
        "perplexity": found.perplexity,
        "reference_perplexity": found.reference_perplexity,
    }
    if math.isnan(found.kl):
        return Check("against", WRONG, Said("against-not-numbers"), numbers=numbers)
    params = {
        "other": other,
        "kl": number(found.kl),
        "count": found.positions,
        "allowed": number(allowed),
        "same": f"{found.same_best / found.positions:.0%}",
        "perplexity": number(found.perplexity),
        "reference": number(found.reference_perplexity),
    }
    near = found.kl <= allowed
    check = Check(
        "against", RIGHT if near else WRONG, Said("against-near" if near else "against-far", params), numbers=numbers
    )
    check.notes.append(Said("against-bound", {"top": top, "covered": f"{found.covered:.1%}"}))
    return check
