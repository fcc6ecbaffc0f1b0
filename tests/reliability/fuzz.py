"""Feeds broken checkpoints and patches to what reads them, and judges what comes back.

Each is judged alike: no exception gets out, it does not take long, and nothing that a terminal would obey is printed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "tests" / "doctor", Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from broken_checkpoints import DAMAGES  # noqa: E402
from broken_patches import broken  # noqa: E402
from writer import tiny  # noqa: E402

from ascend_hotfix.catalog import load_catalog  # noqa: E402
from ascend_hotfix.doctor.report import Options, to_json_text, to_text  # noqa: E402
from ascend_hotfix.doctor.run import diagnose  # noqa: E402
from ascend_hotfix.log import safe  # noqa: E402
from ascend_hotfix.seams import headers  # noqa: E402

MOST_SECONDS = 30.0
"""Far more than any takes alone, for a machine that is busy with other things."""


@dataclass
class Outcome:
    """What a run of broken inputs gave: how many of each kind, and the failures, each with the seed that repeats it."""

    inputs: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def note(self, kind: str, seed: int, seconds: float, wrong: str) -> None:
        self.inputs[kind] += 1
        self.slowest = max(self.slowest, (seconds, f"{kind} {seed}"))
        if not wrong and seconds > MOST_SECONDS:
            wrong = f"took {seconds:.0f} s"
        if wrong:
            self.failures.append(f"{kind} {seed}: {wrong}")


def obeyed(text: str) -> str:
    """What in *text* a terminal would not show but do, or an empty string."""
    odd = {one for line in text.split("\n") if not line.isprintable() for one in line if not one.isprintable()}
    return f"prints {sorted(map(ascii, odd))}" if odd else ""


def judged(root: Path) -> str:
    """What is wrong with how the static stage takes the checkpoint in *root*, or an empty string."""
    try:
        report = diagnose(str(root), Options(static_only=True), {"vllm": "0.18.0", "vllm-ascend": "0.18.0"})
        texts = [to_text(report, width=100, language=language) for language in ("en", "zh")]
        headers.tensor_names.cache_clear()
        headers.tensor_names(str(root))
        wrong = next(filter(None, map(obeyed, (*texts, to_json_text(report)))), "")
        if sum(map(len, texts)) > 5_000_000:
            wrong = wrong or f"prints {sum(map(len, texts)) / 1e6:.0f} MB"
        return wrong
    except Exception as error:
        return f"{type(error).__name__} gets out: {str(error)[:200]}"


def fuzz_checkpoints(seeds: range) -> Outcome:
    """One broken checkpoint for each seed and kind of damage."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        right = tiny().write(Path(folder) / "right", seed=0)
        for seed in seeds:
            for damage in DAMAGES:
                root = Path(folder) / "broken"
                shutil.copytree(right, root)
                damage(Random(f"{damage.__name__} {seed}"), root)
                started = time.perf_counter()
                wrong = judged(root)
                outcome.note(damage.__name__, seed, time.perf_counter() - started, wrong)
                shutil.rmtree(root)
    return outcome


def _problems(text: str, file: Path) -> Iterator[str]:
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    catalog = load_catalog({"ASCEND_HOTFIX_PATH": str(file)})
    yield from catalog.problems
    if not catalog.problems and catalog.sources.get(file.stem) is None:
        yield ""


def fuzz_patches(seeds: range) -> Outcome:
    """One broken patch for each seed: told in words, with its file, whatever it does."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "broken.py"
        for seed in seeds:
            text = broken(Random(f"patch {seed}"))
            started = time.perf_counter()
            try:
                problems = list(_problems(text, file))
                wrong = next((obeyed(safe(problem)) for problem in problems if obeyed(safe(problem))), "")
                if any(str(file) not in problem for problem in problems):
                    wrong = wrong or f"the file is not named: {problems}"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                wrong = f"{type(error).__name__} gets out"
            outcome.note("patch", seed, time.perf_counter() - started, wrong)
    return outcome


if __name__ == "__main__":
    first, last = (int(one) for one in (sys.argv[1:] or ("0", "3"))[:2])
    for outcome in (fuzz_checkpoints(range(first, last)), fuzz_patches(range(first * 30, last * 30))):
        print(dict(outcome.inputs), f"slowest {outcome.slowest[0]:.1f} s: {outcome.slowest[1]}")
        print(*outcome.failures, sep="\n")
