"""The cases of plain vLLM: the public report, the release that shows it, how stock fails and which fix mends it.

No import of torch or vLLM: pytest reads this file, and ``cases_*`` are imported by ``runner.py`` in each release's environment.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_hotfix.sim import envs, matrix

__all__ = ["CASES", "Case", "interpreter", "job_name"]

WAYS = ("stock", "fixed", "right", "quiet")


@dataclass(frozen=True)
class Case:
    """One failure. *right* gives the arguments of an input that stock loads right, on *right_release*.

    ``stock`` and ``fixed`` run *function* with *arguments*, without and with our package; ``right`` and ``quiet``
    do the same with the right input. *error* and *message* are what stock raises; without *error* stock goes on and
    its result differs from the right one.
    """

    name: str
    reports: tuple[str, ...]
    release: str
    function: str
    hit: str
    error: str = ""
    message: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    right: dict[str, Any] | None = None
    right_release: str = ""

    def jobs(self, release: str) -> dict[str, dict[str, Any]]:
        """The jobs of ``runner.py`` for this case on *release*."""
        module, _, function = self.function.partition(".")
        jobs = {}
        for way in WAYS if release == self.release else ("right",) if release == self.right_release else ():
            arguments = self.right if way in ("right", "quiet") and not self.right_release else self.arguments
            if arguments is not None and (way in ("stock", "fixed", "right") or self.right is not None):
                armed = way in ("fixed", "quiet")
                filled = {key: _filled(value) for key, value in arguments.items()}
                jobs[job_name(self, way)] = {
                    "module": module,
                    "function": function,
                    "armed": armed,
                    "arguments": filled,
                }
        return jobs


def job_name(case: Case, way: str) -> str:
    """The name of a job in the files that ``runner.py`` reads and writes."""
    return f"{case.name}:{way}"


def _filled(value: Any) -> Any:
    """An argument ``site-packages:RELEASE`` is that folder of the release's environment."""
    if isinstance(value, str) and value.startswith("site-packages:"):
        find = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
        python = interpreter(value.partition(":")[2])
        package = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
        return str(Path(package).parent)
    return value


def interpreter(release: str) -> Path:
    """The Python of the environment of *release*, made where it is missing. ``PLAIN_ENVS`` names others for a session."""
    for entry in os.environ.get("PLAIN_ENVS", "").split(os.pathsep):
        name, _, folder = entry.partition("=")
        if name == release:
            return Path(folder, "bin", "python")
    return envs.python(matrix.of_vllm(release).pair)


OLD_NAME, NEW_NAME = "moe_params.asked-by-old-name.params", "moe_params.asked-by-new-name.params"


def _moved(module: str, reports: tuple[str, ...], asked: str) -> list[Case]:
    """The model module of 0.23 (or its loader) on 0.24, and the reverse."""
    function = f"cases_moe.{module}"
    error = "KeyError" if asked else ""
    return [
        Case(
            f"{module}-of-0.23-on-0.24",
            reports,
            "0.24.0",
            function,
            OLD_NAME,
            error,
            asked,
            {"loader": "site-packages:0.23.0"},
            {},
        ),
        Case(
            f"{module}-of-0.24-on-0.23",
            reports,
            "0.23.0",
            function,
            NEW_NAME,
            error,
            asked.replace(".experts.", ".experts.routed_experts."),
            {"loader": "site-packages:0.24.0"},
            {},
        ),
    ]


CASES: list[Case] = [
    Case(
        "dbrx",
        ("vllm-project/vllm#49004 / PR #49362",),
        "0.24.0",
        "cases_moe.dbrx",
        OLD_NAME,
        "KeyError",
        "blocks.0.ffn.experts.w13_weight",
        right_release="0.23.0",
    ),
    Case(
        "gpt-oss-bf16",
        ("vllm-project/vllm PR #45818 (#45830)",),
        "0.24.0",
        "cases_moe.gpt_oss",
        OLD_NAME,
        "KeyError",
        "layers.0.mlp.experts.w2_weight",
        right_release="0.23.0",
    ),
    *_moved("step3_text", ("vllm-project/vllm PR #45054",), "layers.1.moe.experts.w2_weight"),
    *_moved("step3p5", ("vllm-project/vllm PR #45054",), ""),
    *_moved("qwen3_vl_moe", ("vllm-project/vllm PR #45054",), "layers.0.mlp.experts.w2_weight"),
    *_moved("aria", ("vllm-project/vllm PR #45054",), "layers.0.mlp.experts.w13_weight"),
]
