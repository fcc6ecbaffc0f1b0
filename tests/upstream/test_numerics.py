"""vllm-ascend's own quantization methods, on every pair, reproduce the float source of a genuine checkpoint.

Each bound is far below what a wrong layout gives: the negative controls put one fault into the checkpoint and must
come out at least five times worse, or the comparison would see nothing.
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
    """Parts of a checkpoint's layers under one scheme, the bound of each, and the faults that every part must show."""

    name: str
    checkpoint: str
    source: str
    parts: tuple[str, ...]
    scheme: str
    bound: float
    controls: tuple[str, ...]


EXPERT_FAULTS = ("gate and up swapped", "experts permuted", "expert scale doubled")
STATIC_FAULTS = ("quant_bias zeroed", "attention scale doubled")
SUBJECTS = (
    Subject("static-qk", "qwen3_moe-w8a8", "qwen3_moe", ("q", "k"), "W8A8", 0.02, STATIC_FAULTS),
    # v is compared up to the smoothing of its channels, so a wrong scale cannot show in it.
    Subject("static-v", "qwen3_moe-w8a8", "qwen3_moe", ("v",), "W8A8", 0.02, ("quant_bias zeroed",)),
    Subject("static-o", "qwen3_moe-w8a8", "qwen3_moe", ("o",), "W8A8", 0.02, ("quant_bias zeroed",)),
    Subject(
        "dynamic-qk", "qwen3_moe-w4a8", "qwen3_moe", ("q", "k"), "W8A8_DYNAMIC", 0.02, ("attention scale doubled",)
    ),
    Subject("dynamic-vo", "qwen3_moe-w4a8", "qwen3_moe", ("v", "o"), "W8A8_DYNAMIC", 0.02, ()),
    Subject("dynamic-moe", "qwen3_moe-w8a8", "qwen3_moe", ("moe",), "W8A8_DYNAMIC", 0.03, EXPERT_FAULTS),
    Subject("w4a8-moe", "qwen3_moe-w4a8", "qwen3_moe", ("gate", "up", "down"), "W4A8_DYNAMIC", 0.12, EXPERT_FAULTS),
)
CONTROLS = [(subject, fault) for subject in SUBJECTS for fault in subject.controls]


@functools.cache
def _measure(zygote: Zygote, checkpoint: str, source: str, fault: str | None) -> dict[str, Any]:
    result: dict[str, Any] = zygote.call(
        "numerics_cases:errors",
        checkpoint=str(DATA / "checkpoints" / checkpoint),
        source=str(DATA / "float" / source),
        fault=fault,
        timeout=300,
    )
    return result


def _errors(zygote: Zygote, subject: Subject, fault: str | None = None) -> dict[str, float]:
    """By layer, where the description gives this part the subject's scheme."""
    measured = _measure(zygote, subject.checkpoint, subject.source, fault)
    found = {
        part: error
        for part, error in measured["errors"].items()
        if part.partition(".")[2] in subject.parts and measured["schemes"][part] == subject.scheme
    }
    assert found, f"no layer of {subject.checkpoint} has {subject.scheme} in {subject.parts}: {measured['schemes']}"
    return found


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_layers_reproduce_their_float_source(zygote: Zygote, subject: Subject) -> None:
    worst = max(_errors(zygote, subject).values())
    assert worst <= subject.bound
    assert worst > 0.003, "as exact as a float layer: this one was not quantized"


@pytest.mark.parametrize(("subject", "fault"), CONTROLS, ids=[f"{s.name}-{fault}" for s, fault in CONTROLS])
def test_a_fault_in_the_checkpoint_shows(zygote: Zygote, subject: Subject, fault: str) -> None:
    right = _errors(zygote, subject)
    wrong = _errors(zygote, subject, fault)
    assert {layer: wrong[layer] / right[layer] for layer in right if wrong[layer] < FIVE_TIMES * right[layer]} == {}
