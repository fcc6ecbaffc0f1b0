"""Broken checkpoints and patches: a few of each kind here, more in the longer lane and in report.py."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import broken_checkpoints
import fuzz


@pytest.mark.parametrize("damage", broken_checkpoints.DAMAGES, ids=lambda damage: damage.__name__)
def test_a_broken_checkpoint_is_told_in_words_and_in_time(damage, tmp_path: Path) -> None:
    root = fuzz.tiny().write(tmp_path / "broken", seed=0)
    damage(Random("0"), root)
    assert fuzz.judged(root) == ""


def test_a_broken_patch_is_told_in_words_with_its_file() -> None:
    assert fuzz.fuzz_patches(range(60)).failures == []


@pytest.mark.longer
def test_hundreds_of_broken_checkpoints_and_patches() -> None:
    for outcome in (fuzz.fuzz_checkpoints(range(1, 20)), fuzz.fuzz_patches(range(60, 600))):
        assert outcome.failures == []
