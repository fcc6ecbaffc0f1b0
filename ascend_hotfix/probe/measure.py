"""Numbers from log-probabilities. All logarithms are natural: nats."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ascend_hotfix.probe.protocol import Step

__all__ = [
    "Agreement",
    "Distance",
    "Likelihood",
    "agreement",
    "distance",
    "is_degenerate",
    "likelihood",
    "perplexity",
    "surprise",
]


def surprise(steps: Sequence[Step]) -> float:
    """Mean negative log-probability per token; NaN where a value is no number, or there is none."""
    return -sum(step.logprob for step in steps) / len(steps) if steps else math.nan


def perplexity(nats: float) -> float:
    """The perplexity of a mean surprise: the vocabulary's size for a model that only guesses; infinite past every float."""
    return math.exp(nats) if math.isnan(nats) or nats < 700 else math.inf


@dataclass(frozen=True)
class Likelihood:
    """Mean surprise (nats per token) of texts as written, of their shuffled words, and of these said a second time."""

    tokens: int
    written: float
    shuffled: float
    repeated: float

    @property
    def order_gain(self) -> float:
        """By how many nats a token is likelier in the order of the language. About 0 for a model that has learnt none."""
        return self.shuffled - self.written

    @property
    def copy_gain(self) -> float:
        """By how many nats a token is likelier where it was read before. About 0 for a model that attends to nothing."""
        return self.shuffled - self.repeated


def likelihood(pairs: Iterable[tuple[Sequence[Step], Sequence[Step]]]) -> Likelihood:
    """Of texts, each as (steps of the text, steps of its control: shuffled words, twice); every token counts the same.

    Where the second copy begins is known to within a token or two only, so its first ones are left out.
    """
    written: list[Step] = []
    first: list[Step] = []
    second: list[Step] = []
    for text, control in pairs:
        half = len(control) // 2
        written += text
        first += control[:half]
        second += control[half + min(3, half // 2) :]
    return Likelihood(len(written), surprise(written), surprise(first), surprise(second))


def is_degenerate(text: str, tokens: Sequence[str]) -> bool:
    """Is the completion hardly more than one thing said again and again?"""
    if len(tokens) >= 8 and len(set(tokens)) <= len(tokens) // 5:
        return True
    return re.fullmatch(r".{0,20}?(.{1,20}?)\1{4,}.{0,20}?", text.strip(), flags=re.S) is not None


@dataclass(frozen=True)
class Agreement:
    """How two runs agree on the same tokens after the same tokens. Gaps: absolute differences of log-probability.

    ``diverged``: the index of the first token that differs, None where none does. Gaps are NaN without positions.
    """

    positions: int
    mean_gap: float
    worst_gap: float
    diverged: int | None


def agreement(one: Sequence[Step], other: Sequence[Step]) -> Agreement:
    """Position by position up to and with the first token that differs: what comes before it is the same in both runs."""
    gaps: list[float] = []
    diverged = None
    for index, (a, b) in enumerate(zip(one, other)):
        gaps.append(_gap(a, b))
        if a.token != b.token:
            diverged = index
            break
    else:
        if len(one) != len(other):
            diverged = min(len(one), len(other))
    if not gaps:
        return Agreement(0, math.nan, math.nan, diverged)
    worst = math.nan if any(map(math.isnan, gaps)) else max(gaps)
    return Agreement(len(gaps), sum(gaps) / len(gaps), worst, diverged)


def _gap(a: Step, b: Step) -> float:
    """Between what the two say of the first one's token. Where the second does not list it, the least that it can be."""
    if a.token == b.token:
        value = b.logprob
    elif a.token in b.top:
        value = b.top[a.token]
    else:
        return max(a.logprob - min(b.top.values(), default=b.logprob), 0.0)
    return 0.0 if a.logprob == value else abs(a.logprob - value)


@dataclass(frozen=True)
class Distance:
    """Of a run from a reference over the same tokens.

    ``kl``: mean Kullback-Leibler divergence of the run from the reference, at least: see :func:`_least_kl`. ``covered``:
    mean probability that the reference gives to the tokens which it listed.
    """

    positions: int
    kl: float
    covered: float
    same_best: int
    perplexity: float
    reference_perplexity: float


def distance(reference: Sequence[Step], run: Sequence[Step], top: int) -> Distance:
    """Both are of the same tokens, and at least one; *top*: how many best tokens the run lists at each position."""
    divergences = [_least_kl(p.top, q.top, top) for p, q in zip(reference, run, strict=True)]
    count = len(divergences)
    return Distance(
        count,
        sum(divergences) / count,
        sum(sum(map(math.exp, step.top.values())) for step in reference) / count,
        sum(p.best == q.best for p, q in zip(reference, run)),
        perplexity(surprise(run)),
        perplexity(surprise(reference)),
    )


def _least_kl(p: Mapping[str, float], q: Mapping[str, float], top: int) -> float:
    """The least KL(p, q) over a whole vocabulary of which *p* and *q* list the best *top* tokens and perhaps others.

    Of a token that *q* does not list is known that it has no more than the last of the best. Where that leaves a choice,
    the values nearest to *p* are taken; all tokens that *p* does not list count as one, which never makes KL larger. So
    the result is a lower bound, and the divergence itself where both list everything.
    """
    if any(map(math.isnan, [*p.values(), *q.values()])):
        return math.nan
    pairs = [(math.exp(p[token]), math.exp(q[token])) for token in p if token in q]
    missing = sorted((math.exp(value) for token, value in p.items() if token not in q), reverse=True)
    rest = max(1 - sum(map(math.exp, p.values())), 0.0)
    left = max(1 - sum(b for _, b in pairs), 0.0)  # for what p alone lists, and for what it does not list
    unlisted = max(1 - sum(map(math.exp, q.values())), 0.0)  # for what p alone lists, at most
    highest = sorted(map(math.exp, q.values()), reverse=True)[: max(top, 1)][-1] if q else 1.0
    nearest = _nearest(missing, rest, left, highest)
    if sum(nearest) > unlisted:
        nearest = _nearest(missing, 0.0, unlisted, highest)
    pairs += [*zip(missing, nearest), (rest, left - sum(nearest))]
    tiny = 1e-9  # below what servers round to: a rest of nothing is no infinite divergence
    return max(sum(a * math.log(a / max(b, tiny)) for a, b in pairs if a > tiny), 0.0)


def _nearest(shares: Sequence[float], rest: float, total: float, highest: float) -> list[float]:
    """*total* divided in proportion to *shares* (descending) and *rest*, but no share above *highest*; the shares' parts."""
    found = []
    whole = sum(shares) + rest
    for share in shares:
        part = min(total * share / whole, highest) if whole > 0 else 0.0
        found.append(part)
        total, whole = total - part, whole - share
    return found
