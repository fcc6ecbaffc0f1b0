"""How far the log-probabilities of one run are from another's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Sequence[float]


@dataclass(frozen=True)
class Distance:
    """Mean Kullback-Leibler divergence in nats, and at how many of the positions the best token is the same."""

    mean_kl: float
    positions: int
    same_best: int

    def __str__(self) -> str:
        return f"KL {self.mean_kl:.1e} over {self.positions} positions, best token the same at {self.same_best}"


def distance(reference: Sequence[Mapping[str, Any]], run: Sequence[Mapping[str, Any]]) -> Distance:
    """Of ``run`` from ``reference``, over the prompts and over the generated tokens as long as both went the same way."""
    pairs = [pair for expected, found in zip(reference, run) for pair in _pairs(expected, found)]
    total = sum(_kl(expected, found) for expected, found in pairs)
    same = sum(_best(expected) == _best(found) for expected, found in pairs)
    return Distance(total / len(pairs), len(pairs), same)


def _pairs(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[Row, Row]]:
    if found.get("prompt"):
        yield from ((a, b) for a, b in zip(expected["prompt"], found["prompt"]) if a is not None)
    for step, (a, b) in enumerate(zip(expected["steps"], found["steps"])):
        if expected["tokens"][:step] != found["tokens"][:step]:
            break
        yield a, b


def _kl(expected: Row, found: Row) -> float:
    assert len(expected) == len(found), f"{len(expected)} against {len(found)} tokens of the vocabulary"
    return sum(math.exp(a) * (a - b) for a, b in zip(expected, found))


def _best(row: Row) -> int:
    return max(range(len(row)), key=row.__getitem__)
