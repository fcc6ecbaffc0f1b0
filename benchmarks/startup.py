"""What arming costs an interpreter that never imports vLLM, as ratios to a bare start measured in the same run.

    python benchmarks/startup.py [rounds]

Every round starts one interpreter of each kind, in turning order, and gives one ratio for each; the table shows the
median ratio and the middle half. What is measured is processor time, so that a busy machine does not blur it.
``-S`` keeps the environment's other ``.pth`` files out; ``os`` is imported by all, as ``site`` does. Needs wrapt.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

__all__ = ["main", "measure"]

ROOT = Path(__file__).parents[1]
ARM = "import os; from ascend_hotfix import gate; gate.arm()"
KINDS = {
    "bare": "import os",
    "switched off (ASCEND_HOTFIX_MODELS=none)": f"import os; os.environ['ASCEND_HOTFIX_MODELS'] = 'none'; {ARM}",
    "armed": ARM,
    "armed, and an unwatched import (json)": f"{ARM}; import json",
    "bare, and the same import": "import os; import json",
    "armed, and wrapt": f"{ARM}; import wrapt",
    "armed, and the seams": f"{ARM}; import ascend_hotfix.seams.lookup, ascend_hotfix.catalog",
}


def start(code: str) -> float:
    """Processor seconds, user and system, of an interpreter that runs *code*."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND_HOTFIX", "PYTHON"))}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-S", "-c", code], env=environ, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> dict[str, list[float]]:
    """Processor seconds of every kind, one for each round; an unmeasured round first fills the caches."""
    names = list(KINDS)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1, rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds = start(KINDS[name])
            if turn >= 0:
                taken[name].append(seconds)
    return taken


def main(arguments: list[str]) -> None:
    """Prints the table."""
    taken = measure(int(arguments[0]) if arguments else 40)
    print(f"{'':44} {'ratio':>6}  {'middle half':>13}  {'median':>8}")
    for name, seconds in taken.items():
        ratios = [one / bare for one, bare in zip(seconds, taken["bare"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:44} {middle:6.2f}  {low:5.2f} to {high:4.2f}  {1000 * statistics.median(seconds):5.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
