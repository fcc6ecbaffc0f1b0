"""Version ranges as patch authors mean them, whatever ``packaging`` is installed.

A range is one or more clauses joined by commas, and all of them have to fit: ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=``
and a version; ``==`` and ``!=`` also take ``0.18.*``. ``packaging`` leaves pre-releases out of ranges unless told; ours
count them where they belong:

* Where the bound is a plain release, its pre-releases, post-releases and development versions count as that release.
* Where the bound is itself a pre-release or a post-release, the order is rc1, rc2, the release, post1.
* A local part (``+empty``, ``+cpu``) says nothing, and neither do zeros at the end: 0.18 is 0.18.0.
* A development version counts as the version that it names. One of unknown base (``0.1.dev123+gabc``, what a source
  checkout reports), or a text that is no version (``main``), fits every range and is reported.
* A number of more than 40 digits is none, so what has one is no version.
* A distribution that is not installed fits no range. ``VLLM_VERSION``, where it is set, is the version of vllm.

| range | fits | does not fit |
|---|---|---|
| `>=0.18` | 0.18.0rc1, 0.18.0rc1+empty, 0.18.0.dev7, 0.18, 0.18.0.post1, 0.19.0rc1 | 0.17.0, 0.17.0.post1 |
| `<0.18` | 0.17.0, 0.17.0.post1, 0.17.1rc1 | 0.18.0rc1, 0.18.0rc1+empty, 0.18.0.dev7, 0.18.0 |
| `<=0.18` | 0.18.0rc1, 0.18.0, 0.18.0.post1 | 0.18.1rc1, 0.18.1 |
| `>0.18` | 0.18.1rc1, 0.18.1 | 0.18.0rc1, 0.18.0, 0.18.0.post1 |
| `==0.18` | 0.18.0rc1, 0.18.0+cpu, 0.18.0.post1 | 0.18.1, 0.17.0 |
| `==0.18.*` | 0.18.0rc1, 0.18.0, 0.18.1 | 0.17.9, 0.19.0rc1 |
| `!=0.18.*` | 0.17.9, 0.19.0rc1 | 0.18.0rc1, 0.18.1 |
| `>=0.18.0rc2` | 0.18.0rc2, 0.18.0rc10, 0.18.0, 0.18.0.post1 | 0.18.0rc1, 0.18.0rc1+empty |
| `<0.18.0rc2` | 0.18.0rc1+empty, 0.17.0 | 0.18.0rc2, 0.18.0 |
| `>0.18.0.post1` | 0.18.0.post2, 0.18.1rc1 | 0.18.0, 0.18.0.post1 |
| `>=0.18,<0.20` | 0.18.0rc1, 0.19.3 | 0.17.0, 0.20.0rc1 |
| `>=0.18,!=0.19.*` | 0.18.5, 0.20.0 | 0.19.0rc1 |

This module imports nothing of ours, and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["fits", "parse", "range_problem"]

DIGITS = 40  # of one number of a version: a commit's is no longer, and Python reads no more than 4,300
LONGEST = 200  # characters of a clause that are shown
_VERSION = re.compile(
    r"v?(?P<release>\d{1,DIGITS}(?:\.\d{1,DIGITS})*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_n>\d{0,DIGITS}))?"
    r"(?:(?:[-_.]?(?:post|rev|r)[-_.]?(?P<post>\d{0,DIGITS}))|-(?P<post_implicit>\d{1,DIGITS}))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d{0,DIGITS}))?(?:\+[a-z0-9._-]+)?".replace("DIGITS", str(DIGITS)),
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([^\s,]+)\s*")
_COMPARE = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
}
Key = tuple[tuple[int, ...], int, int, int]


def parse(version: str) -> Key | None:
    """A comparable key of *version*, or None where it is no version or a development one of unknown base."""
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    if found["dev"] is not None and release <= (0, 1) and found["pre"] is None:
        return None
    while release and release[-1] == 0:
        release = release[:-1]
    pre = {"a": -3, "b": -2}.get((found["pre"] or "")[:1].lower(), -1) if found["pre"] else 0
    post = found["post"] if found["post"] is not None else found["post_implicit"]
    return release, pre, int(found["pre_n"] or 0), int(post or 0) + 1 if post is not None else 0


def _clauses(spec: str) -> list[tuple[str, str]]:
    clauses = []
    for part in spec.split(","):
        found = _CLAUSE.fullmatch(part)
        if found is None or parse(found[2].removesuffix(".*")) is None:
            raise ValueError(f"{_cut(part.strip())} is no version clause; write such as '>=0.11,<0.13'")
        if found[2].endswith(".*") and found[1] not in ("==", "!="):
            raise ValueError(f"{_cut(part.strip())}: '.*' goes with == and != only")
        clauses.append((found[1], found[2]))
    return clauses


def range_problem(spec: object) -> str | None:
    """What is wrong with a range, or None."""
    if not isinstance(spec, str):
        return f"must be a string such as '>=0.11,<0.13', not {spec!r}"
    try:
        clauses = _clauses(spec)
    except ValueError as error:
        return str(error)
    witnesses = (one for one in _witnesses(clauses) if parse(one) is not None)
    return None if any(fits(one, spec) for one in witnesses) else f"{_cut(spec)} fits no version"


def _cut(text: str) -> str:
    return repr(text) if len(text) <= LONGEST else f"{text[:LONGEST]!r}... ({len(text)} characters)"


def _witnesses(clauses: list[tuple[str, str]]) -> Iterator[str]:
    """Versions at, next to and far below every bound: a range that fits any version fits one of these."""
    yield "0"
    for _, bound in clauses:
        found = _VERSION.fullmatch(bound.removesuffix(".*"))
        assert found is not None
        release, pre = found["release"], f"{found['pre']}{found['pre_n']}" if found["pre"] else ""
        yield from (bound.removesuffix(".*"), release, f"{release}.0.0.1", f"{release}{pre}.post{found['post'] or 0}1")
        if pre:
            yield f"{release}{found['pre']}{int(found['pre_n'] or 0) + 1}"


def _order(version: Key, bound: Key, bound_text: str) -> int:
    """-1, 0 or 1. Where the bound is a plain release, pre- and post-releases of it count as it does."""
    if bound[1:] == (0, 0, 0):
        version = (version[0], 0, 0, 0)
    return (version > bound) - (version < bound)


def fits(version: str, spec: str) -> bool:
    """Does *version* lie in *spec*? A version that :func:`parse` cannot place fits every range.

    Raises ValueError for a malformed range.
    """
    key = parse(version)
    for op, bound_text in _clauses(spec):
        wildcard = bound_text.endswith(".*")
        bound = parse(bound_text.removesuffix(".*"))
        assert bound is not None
        if key is None:
            continue
        if wildcard:
            width = bound_text.removesuffix(".*").count(".") + 1
            padded = (key[0] + (0,) * width)[:width]
            wanted = (bound[0] + (0,) * width)[:width]
            order = (padded > wanted) - (padded < wanted)
        else:
            order = _order(key, bound, bound_text)
        if not _COMPARE[op](order):
            return False
    return True
