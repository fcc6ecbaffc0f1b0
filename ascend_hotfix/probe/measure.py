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

    ``kl``: mean Kullback-Leibler divergence of the run from the reference, at least: see :func:`_kl`. ``covered``: mean
    share of the reference's probability that lies on tokens which both runs listed.
    """

    positions: int
    kl: float
    covered: float
    same_best: int
    perplexity: float
    reference_perplexity: float


def distance(reference: Sequence[Step], run: Sequence[Step]) -> Distance:
    """Both are of the same tokens, and at least one."""
    divergences, shares = zip(*(_kl(p.top, q.top) for p, q in zip(reference, run, strict=True)))
    count = len(divergences)
    same = sum(p.best == q.best for p, q in zip(reference, run))
    return Distance(
        count,
        sum(divergences) / count,
        sum(shares) / count,
        same,
        perplexity(surprise(run)),
        perplexity(surprise(reference)),
    )


def _kl(p: Mapping[str, float], q: Mapping[str, float]) -> tuple[float, float]:
    """KL(p, q) where all tokens that not both list count as one, and the share of p on the others.

    To merge outcomes never makes a divergence larger, so this is a lower bound of that over the whole vocabulary, with
    nothing guessed about the tokens which the servers did not tell.
    """
    listed = [(math.exp(p[token]), math.exp(q[token])) for token in p if token in q]
    known_p, known_q = sum(a for a, _ in listed), sum(b for _, b in listed)
    pairs = [*listed, (max(1 - known_p, 0.0), max(1 - known_q, 0.0))]
    tiny = 1e-9  # below what servers round to: a rest of nothing is no infinite divergence
    total = sum(a * math.log(a / max(b, tiny)) for a, b in pairs if a > tiny)
    return max(total, 0.0) if not math.isnan(total) else math.nan, known_p
