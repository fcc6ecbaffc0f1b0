"""Which checkpoints the tests of the server use, and the laboratory that runs the support scripts on them."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.sim.server import environment

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
TIMEOUT = 1800.0


@dataclass(frozen=True)
class Family:
    """A checkpoint that is served, the one change it needs to be complete, and what must make it answer differently."""

    checkpoint: str
    controls: tuple[str, ...]
    completed_by: str | None = None
    sees_images: bool = False

    @property
    def name(self) -> str:
        return self.checkpoint


# Qwen3 dense: the checkpoint without biases left by smoothing, which upstream drops (test_known_fault_of_upstream).
# GLM-4.x: the quantizer lost e_score_correction_bias, and upstream then takes whatever is in memory.
FAMILIES = (
    Family("qwen3-w8a8c8", ("double_deq_scale", "swap_gate_up")),
    Family("qwen3_moe-w8a8", ("zero_quant_bias", "double_deq_scale", "swap_gate_up", "permute_experts")),
    Family(
        "qwen3_vl_moe-w8a8",
        ("zero_quant_bias", "double_deq_scale", "swap_gate_up", "permute_experts"),
        sees_images=True,
    ),
    Family(
        "glm4_moe-w8a8", ("double_weight_scale", "swap_gate_up", "permute_experts"), completed_by="zero_correction_bias"
    ),
)

# Run in one process, without HTTP: the schemes and kinds of attention that the families above do not have.
FURTHER = ("qwen3_moe-w4a8", "qwen3-w4a4", "kimi_k2-w8a8", "deepseek_v3_2-w8a8", "qwen3_5_moe-w8a8")

# Run in float32 too: the formulas of the dynamic schemes, of attention and of the experts without bfloat16's rounding.
EXACT = ("qwen3_next-w8a8", "qwen3_5_moe-w8a8", "deepseek_v3-w4a8", "minimax_m2-w8a8")


@dataclass
class Lab:
    """Runs the support scripts in the simulated environment and keeps what they write."""

    python: Path
    vllm: Path
    work: Path
    made: dict[str, Path] = field(default_factory=dict)

    def script(self, name: str, jobs: list[dict[str, Any]]) -> None:
        path = self.work / f"{name}.{len(list(self.work.glob(f'{name}.*.jobs')))}.jobs"
        path.write_text(json.dumps(jobs))
        env = {**os.environ, **environment(), "ASCEND_HOTFIX_MODELS": "none"}
        done = subprocess.run(
            [str(self.python), str(HERE / name), str(path)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{name} ended with {done.returncode}:\n{done.stdout[-4000:]}", pytrace=False)

    def checkpoint(self, name: str, change: str | None = None) -> Path:
        """The directory of a checkpoint, or of its copy with ``change`` (see variants.py)."""
        return DATA / "checkpoints" / name if change is None else self.work / "variants" / f"{name}.{change}"

    def results(self, kind: str, name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.work / f"{name}.{kind}.json").read_text())
        assert "error" not in result, f"{name}: {result['error']}"
        return result
