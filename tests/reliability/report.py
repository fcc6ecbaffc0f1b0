"""Prints docs/reliability.md: what was done to the package on purpose, how often, and what failed.

    python tests/reliability/report.py                  # every experiment
    python tests/reliability/report.py fuzz threads     # those of which the name contains a word
    python tests/reliability/report.py --seeds 20 fuzz  # more inputs of each kind
    python tests/reliability/report.py --write          # into docs/reliability.md

An experiment is a function that is given the number of seeds and returns a :class:`Row`; put a new one into EXPERIMENTS. One
that is a set of tests is :func:`of_tests`. What is not run is not in the tables.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import fuzz  # noqa: E402

WAYS, FAULTS, INPUTS = "Ways of running", "Faults injected", "Fuzz inputs"
GROUPS = (WAYS, FAULTS, INPUTS)
PAGE = ROOT / "docs" / "reliability.md"
INTRODUCTION = f"""# Reliability

What was done to the package on purpose, how often, and what failed. Printed by `python tests/reliability/report.py`, which
takes words of the names of single experiments; the table of each experiment that was run is below. No NPU took part.
Processes, vLLM and vllm-ascend are real where the row says so.

Measured with Python {platform.python_version()} on {platform.system()}.
"""


@dataclass(frozen=True)
class Row:
    """One line of the table of *group*: *tried* times, of which *failed* went wrong; *note* says what else was seen."""

    group: str
    what: str
    tried: int
    failed: int
    note: str = ""


Experiment = Callable[[int], Row]


def of_tests(group: str, what: str, *tests: str, note: str = "") -> Experiment:
    """The experiment whose trials are *tests*, as pytest names them, the longer ones too. Skipped ones were not tried."""

    def run(seeds: int) -> Row:
        with TemporaryDirectory() as folder:
            told = Path(folder) / "told.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junit-xml={told}", *tests]
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
            suite = xml.etree.ElementTree.parse(told).getroot()[0]
        count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        return Row(group, what, count["tests"] - count["skipped"], count["failures"] + count["errors"], note)

    return run


def fuzz_checkpoints(seeds: int) -> Row:
    return _row("broken checkpoints, the doctor's static stage", fuzz.fuzz_checkpoints(range(seeds)))


def fuzz_patches(seeds: int) -> Row:
    return _row("broken patch files, the catalog", fuzz.fuzz_patches(range(30 * seeds)))


def _row(what: str, outcome: fuzz.Outcome) -> Row:
    for failure in outcome.failures:
        print(f"failed: {failure}", file=sys.stderr)
    kinds = len(outcome.inputs)
    note = f"{kinds} kinds, " if kinds > 1 else ""
    return Row(
        INPUTS, what, outcome.inputs.total(), len(outcome.failures), f"{note}the slowest {outcome.slowest[0]:.1f} s"
    )


EXPERIMENTS: dict[str, Experiment] = {
    "fuzz-checkpoints": fuzz_checkpoints,
    "fuzz-patches": fuzz_patches,
    "guard": of_tests(
        FAULTS,
        "client, server or guard is killed by a signal: no process, no folder is left",
        "tests/doctor/test_guard.py::test_no_process_and_no_folder_is_left",
        note="real processes, small ones in place of the doctor's",
    ),
    "doctor-killed": of_tests(
        FAULTS,
        "the doctor is killed (KILL, TERM, INT, HUP, `timeout`) while it imports or checks",
        "tests/doctor/test_guard.py::test_a_doctor_that_is_killed_leaves_nothing",
        "tests/doctor/test_guard.py::test_timeout_ends_the_doctor_and_all_of_it",
        note="vLLM and vllm-ascend 0.18.0",
    ),
    "threads": of_tests(
        FAULTS,
        "names are looked up by 8 threads at once",
        "tests/core/test_lookup_seam.py::test_lookups_from_several_threads_are_those_of_one",
        "tests/core/test_lookup_seam.py::test_a_lookup_does_not_hear_what_another_thread_asks",
        note="4,320 lookups in each of 2 tests, on stand-ins for upstream's config classes",
    ),
    "names": of_tests(
        FAULTS,
        "names, versions and errors with escapes, line breaks or no text",
        "tests/core/test_printable.py",
    ),
}


def table(rows: list[Row]) -> str:
    lines = ["| what | tried | failed | seen |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.tried} | {row.failed} | {row.note} |" for row in rows)])


def page(rows: list[Row]) -> str:
    """The whole page, with a table for each group that has a row."""
    parts = [INTRODUCTION]
    for group in GROUPS:
        if of_group := [row for row in rows if row.group == group]:
            parts.append(f"## {group}\n\n{table(of_group)}\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the experiments and prints docs/reliability.md.")
    parser.add_argument(
        "words", nargs="*", help=f"run those of which the name has one of these: {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument("--seeds", type=int, default=12, help="inputs of each kind of damage (default 12)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} too")
    arguments = parser.parse_args()
    wanted = [name for name in EXPERIMENTS if not arguments.words or any(word in name for word in arguments.words)]
    rows = []
    for name in wanted:
        started = time.monotonic()
        rows.append(EXPERIMENTS[name](arguments.seeds))
        print(
            f"{name}: {rows[-1].tried} tried, {rows[-1].failed} failed, {time.monotonic() - started:.0f} s",
            file=sys.stderr,
        )
    text = page(rows)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if not rows or any(row.failed or not row.tried for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
