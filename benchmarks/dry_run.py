"""Full-size dry runs against the bare upstream meta build and load, in one run: time ratio and memory.

    python benchmarks/dry_run.py [--model deepseek-v3|qwen3-235b] [--runs N]

Run in an environment of the matrix. The headers are made up by ``full_size.py``. Each run is two fresh processes that
start their work together and share one core, so that what else the machine does slows both alike; where they take turns
it does not. The median ratio of the runs counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("deepseek-v3", "qwen3-235b")
READY, RESULT = "READY", "RESULT"


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
    from ascend_hotfix.doctor.rehearse import rehearse
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
    """What the process in which the doctor runs does after its imports; then waits for the other one."""
    gc.collect()
    gc.freeze()
    print(READY, flush=True)
    sys.stdin.readline()


def report(seconds: float, **more: float) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    more = {name: round(value, 2) for name, value in more.items()}
    print(RESULT, json.dumps({"seconds": round(seconds, 2), "gib": round(memory, 2), **more}), flush=True)


def start(step: str, folder: Path, core: int) -> subprocess.Popen[str]:
    env = {**os.environ, "ASCEND_HOTFIX_MODELS": "none"} if step == "bare" else None
    return subprocess.Popen(
        [sys.executable, __file__, "--step", step, "--folder", str(folder), "--core", str(core)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def wait_for(process: subprocess.Popen[str], word: str) -> str:
    """What follows *word* on the line of the output that starts with it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word)
    raise SystemExit(f"{process.args} ended without saying {word}")


def measure(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """One run: what the bare process says of itself, and what the doctor's."""
    core = max(os.sched_getaffinity(0))
    both = [start(step, folder, core) for step in ("bare", "doctor")]
    try:
        for process in both:
            wait_for(process, READY)
        for process in both:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        alone, watched = (json.loads(wait_for(process, RESULT)) for process in both)
        return alone, watched
    finally:
        for process in both:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--runs", type=int, default=3, help="pairs of processes (default: 3)")
    parser.add_argument("--step", choices=("bare", "doctor"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if arguments.step:
        os.sched_setaffinity(0, {arguments.core})
        {"bare": bare, "doctor": doctor}[arguments.step](arguments.folder)
        return
    from full_size import write

    for model in arguments.model or MODELS:
        with tempfile.TemporaryDirectory() as base:
            folder = Path(base) / model
            count = write(model, folder)
            runs = [measure(folder) for _ in range(max(1, arguments.runs))]
        ratios = sorted(watched["seconds"] / alone["seconds"] for alone, watched in runs)
        for alone, watched in runs:
            print(f"  bare {alone}; doctor {watched}")
        told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{model}: {count} tensors; ratio {statistics.median(ratios):.2f} of {told}", flush=True)


if __name__ == "__main__":
    main()
