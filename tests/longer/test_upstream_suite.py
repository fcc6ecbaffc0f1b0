"""vllm-ascend's own quantization tests give the same result with ascend-hotfix armed as without, test by test."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ascend_hotfix.sim import envs, matrix

pytestmark = pytest.mark.longer

SUITE = "tests/ut/quantization"
TIMEOUT = 1800


def outcomes(pair: str, source: Path, report: Path, *, arm: bool) -> dict[str, str]:
    """What each of upstream's tests came to, by its id."""
    environment = {
        **os.environ,
        "ASCEND_HOTFIX_MODELS": "" if arm else "none",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(source)]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "UPSTREAM_SUITE_ARM": "1" if arm else "0",
        "UPSTREAM_SUITE_REPORT": str(report),
    }
    command = [str(envs.python(pair)), "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider", SUITE]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert report.is_file(), f"upstream's tests of {pair} did not run:\n{(done.stdout + done.stderr)[-3000:]}"
    found: dict[str, str] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("pair", matrix.CI)
def test_upstreams_own_quantization_tests_are_unchanged(pair: str, tmp_path: Path) -> None:
    source = envs.source(pair)
    if not (source / SUITE).is_dir():
        pytest.skip(f"the sdist of vllm-ascend {pair} has no {SUITE}")
    stock = outcomes(pair, source, tmp_path / "stock.json", arm=False)
    armed = outcomes(pair, source, tmp_path / "armed.json", arm=True)
    print(pair, dict(Counter(stock.values())))
    assert Counter(stock.values())["passed"] > 0, f"nothing passes on stock {pair}: {Counter(stock.values())}"
    differences = {name: (stock.get(name), armed.get(name)) for name in stock.keys() | armed.keys()}
    assert {name: both for name, both in differences.items() if both[0] != both[1]} == {}
