"""Full-size dry runs against the bare upstream meta build and load, in one run: time ratio and memory.

    python benchmarks/dry_run.py [--model deepseek-v3|qwen3-235b] [--runs N]

Run in an environment of the matrix. The headers are made up by ``full_size.py``. Each measurement is a fresh process;
both kinds take turns, and the fastest of each counts: what else the machine does only ever makes a run slower.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("deepseek-v3", "qwen3-235b")


def bare(folder: str) -> None:
    """Upstream alone: build on the meta device, load meta tensors."""
    from ascend_hotfix.sim import lab

    lab.prepare()
    lab.apply_upstream_patches()
    lab.make_config(folder)  # imports the model class
    settle()
    started = time.process_time()
    config = lab.make_config(folder)
    model = lab.build(config, device="meta")
    lab.load(model, config, lab.iter_weights(folder, device="meta"), device="meta")
    report(time.process_time() - started)


def doctor(folder: str) -> None:
    """Static stage, build and load watched, and the findings."""
    from ascend_hotfix import gate
    from ascend_hotfix.doctor.checkpoint import read_checkpoint
    from ascend_hotfix.doctor.dryrun import rehearse
    from ascend_hotfix.doctor.static import check_static
    from ascend_hotfix.sim import lab

    gate.arm()
    lab.prepare()
    lab.apply_upstream_patches()
    lab.make_config(folder)  # imports the model class, as for the bare run
    settle()
    started = time.process_time()
    checkpoint = read_checkpoint(folder)
    static = check_static(checkpoint)
    after = time.process_time()
    found = rehearse(checkpoint)
    report(time.process_time() - started, static=after - started, findings=len(found.findings), stale=len(static))


def settle() -> None:
    """What the process in which the doctor runs does after its imports."""
    gc.collect()
    gc.freeze()


def report(seconds: float, **more: float) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    more = {name: round(value, 2) for name, value in more.items()}
    print("RESULT", json.dumps({"seconds": round(seconds, 2), "gib": round(memory, 2), **more}), flush=True)


def measure(step: str, folder: Path) -> dict[str, Any]:
    env = {**os.environ, "ASCEND_HOTFIX_MODELS": "none"} if step == "bare" else None
    done = subprocess.run(
        [sys.executable, __file__, "--step", step, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise SystemExit(f"{step} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(results[-1].removeprefix("RESULT "))
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each kind (default: 3)")
    parser.add_argument("--step", choices=("bare", "doctor"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if arguments.step:
        {"bare": bare, "doctor": doctor}[arguments.step](arguments.folder)
        return
    from full_size import write

    for model in arguments.model or MODELS:
        with tempfile.TemporaryDirectory() as base:
            folder = Path(base) / model
            count = write(model, folder)
            runs = [(measure("bare", folder), measure("doctor", folder)) for _ in range(max(1, arguments.runs))]
        alone, with_us = (min(kind, key=lambda one: one["seconds"]) for kind in zip(*runs))
        ratio = with_us["seconds"] / alone["seconds"]
        print(f"{model}: {count} tensors; bare {alone}; doctor {with_us}; ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
