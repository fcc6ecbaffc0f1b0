"""W4A4, both halves of W8A8_MIX, C8 caches, MXFP8 and W8A16 on every pair that has them: layers of genuine checkpoints
reproduce what they stand for, and a fault in the checkpoint comes out at least five times worse.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim.pool import Zygote

DATA = Path(__file__).parents[1] / "data"
FIVE_TIMES = 5


@dataclass(frozen=True)
class Subject:
    """Parts of a checkpoint's layers, the bound of the worst one, the faults they must show, and the pairs with the scheme."""

    name: str
    case: str
    checkpoint: str
    parts: tuple[str, ...]
    bound: float
    controls: tuple[str, ...]
    versions: str
    scheme: str | None = None
    source: str | None = None
    options: tuple[tuple[str, bool], ...] = ()


# The bounds are twice what is measured at most where the format leaves room, and a third more where it does not: a
# four-bit input and weight (W4A4) are 15 %, an E4M3 input 2.8 % away. The inputs are not those the C8 scales were made for.
MIX = CACHED = "qwen3-w8a8c8"
FOUR = "qwen3-w4a4"
CONSUMER = (("consumer", True),)
SUBJECTS = (
    Subject(
        "w4a4",
        "errors",
        FOUR,
        ("gate",),
        0.19,
        ("scale doubled", "gate and up swapped"),
        ">=0.14",
        "W4A4_DYNAMIC",
        "qwen3",
    ),
    Subject("w4a4-mlp", "errors", FOUR, ("mlp",), 0.28, ("scale doubled",), ">=0.14", "W4A4_DYNAMIC", "qwen3"),
    Subject("mix-dynamic", "errors", MIX, ("q", "k"), 0.02, ("scale doubled",), ">=0.13", "W8A8_MIX", "qwen3"),
    Subject(
        "mix-dynamic-mlp",
        "errors",
        MIX,
        ("gate", "mlp"),
        0.03,
        ("scale doubled", "gate and up swapped"),
        ">=0.13",
        "W8A8_MIX",
        "qwen3",
    ),
    Subject(
        "mix-static",
        "errors",
        MIX,
        ("q", "k", "gate"),
        0.02,
        ("scale doubled", "quant_bias zeroed"),
        ">=0.13",
        "W8A8_MIX",
        "qwen3",
        CONSUMER,
    ),
    Subject("c8", "cache", CACHED, ("k", "v"), 0.08, ("cache scale quartered",), ">=0.14", source="qwen3"),
    Subject("c8-k", "cache", CACHED, ("k",), 0.04, ("cache scales of k and v swapped",), ">=0.14", source="qwen3"),
    Subject(
        "mxfp8",
        "errors",
        "qwen3_vl_moe-w8a8_mxfp8",
        ("q", "k"),
        0.04,
        ("scale doubled",),
        ">=0.14",
        "W8A8_MXFP8",
        options=(("experts", False),),
    ),
    # The older ones refuse MX experts unless the NPU is of the A5 generation.
    Subject(
        "mxfp8-moe",
        "errors",
        "qwen3_vl_moe-w8a8_mxfp8",
        ("moe",),
        0.07,
        ("scale doubled", "gate and up swapped", "experts permuted"),
        ">=0.30.0rc1",
        "W8A8_MXFP8",
    ),
    Subject("w8a16", "weight_only", "hunyuan_v1_moe-w8a16_default", ("qkv", "o"), 0.004, ("scale doubled",), ">=0.13"),
)
CONTROLS = [(subject, fault) for subject in SUBJECTS for fault in subject.controls]


@functools.cache
def _call(zygote: Zygote, case: str, checkpoint: str, source: str | None, fault: str | None, **options: bool) -> Any:
    given: dict[str, Any] = {"checkpoint": str(DATA / "checkpoints" / checkpoint), **options}
    if source is not None:
        given["source"] = str(DATA / "float" / source)
    return zygote.call(f"scheme_cases:{case}", **given, fault=fault, timeout=300)


def _worst(zygote: Zygote, subject: Subject, fault: str | None = None) -> dict[str, float]:
    """By part, the worst of all layers."""
    measured = _call(zygote, subject.case, subject.checkpoint, subject.source, fault, **dict(subject.options))
    errors = measured.get("errors", measured)
    worst: dict[str, float] = {}
    for place, error in errors.items():
        part = place.partition(".")[2]
        if part in subject.parts and (subject.scheme is None or measured["schemes"][place] == subject.scheme):
            worst[part] = max(worst.get(part, 0.0), error)
    assert worst.keys() == set(subject.parts), (
        f"{subject.checkpoint} has no {subject.scheme} in some of {subject.parts}"
    )
    return worst


# conftest.py leaves out the pairs that do not fit a subject's versions.
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_layers_reproduce_what_they_stand_for(zygote: Zygote, subject: Subject) -> None:
    found = _worst(zygote, subject)
    assert max(found.values()) <= subject.bound, found
    assert min(found.values()) > 0.001, f"as exact as a float layer: this one was not quantized: {found}"


@pytest.mark.parametrize(("subject", "fault"), CONTROLS, ids=[f"{s.name}-{fault}" for s, fault in CONTROLS])
def test_a_fault_of_the_scheme_shows(zygote: Zygote, subject: Subject, fault: str) -> None:
    right, wrong = _worst(zygote, subject), _worst(zygote, subject, fault)
    assert {part: wrong[part] / right[part] for part in right if wrong[part] < FIVE_TIMES * right[part]} == {}
