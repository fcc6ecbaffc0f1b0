"""How large what a checkpoint says may be. Beyond, it is a damaged or forged number: told, and not computed with.

Every bound lies far above what is published: the largest models have some 130 layers, 1,000 experts, a vocabulary of
300,000 and contexts of 10 million.
"""

from __future__ import annotations

import re

__all__ = [
    "LONGEST_NAME",
    "MOST",
    "MOST_CAUSES",
    "MOST_DIMENSIONS",
    "MOST_NAMED",
    "MOST_ODD",
    "MOST_SEGMENTS",
    "SIZES",
    "fits_in_file",
    "most_of",
    "overlong",
]

SIZES: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"(?:.*_)?(?:layers|depth|blocks|modules)"), 4096),
    (re.compile(r"(?:.*_)?experts"), 10_000),
    (re.compile(r"(?:.*_)?(?:heads|groups|per_tok)"), 100_000),
    (re.compile(r"(?:.*_)?(?:size|dim|dims|rank|channels|width)"), 100_000_000),
    (re.compile(r"(?:.*_)?(?:positions|position_embeddings|length|len)"), 1_000_000_000),
)
"""Keys of config.json, by their ends, and the most that each may say."""

MOST = 10_000
"""Numbers of one list of layers or experts that are gone through."""

MOST_NAMED = 100_000
"""Names of absent layers, experts or files that are gone through; of the rest only the count is told."""

MOST_DIMENSIONS = 64
"""Dimensions of a tensor: torch takes no more."""

MOST_ODD = 100
"""Values of one kind that are looked at one by one, where each takes time and all are told alike."""

MOST_CAUSES = 200
"""Causes of one code that the static stage tells apart; the others are counted with the last of them."""

LONGEST_NAME, MOST_SEGMENTS = 10_000, 128
"""Characters and dotted segments of a tensor's name."""

_LARGEST = (1 << 63) - 1


def most_of(key: str) -> int | None:
    """The most that the key of a config may say, or None where it is no size."""
    return next((most for pattern, most in SIZES if pattern.fullmatch(key)), None)


def overlong(name: str) -> bool:
    """Is *name* no name that a tensor can have?"""
    return len(name) > MOST_SEGMENTS and (len(name) > LONGEST_NAME or name.count(".") >= MOST_SEGMENTS)


def fits_in_file(number: int) -> bool:
    """Is *number* an offset or extent that a file can have: none below 0, and eight bytes hold it?"""
    return 0 <= number <= _LARGEST
