"""Mutation study: are random faults found, does a suggested patch mend the names, does none load wrong weights?

    python tests/doctor/mutation_study.py --pair 0.18 --faults 500 --seed 1 --seconds 3000

Writes the table of ``docs/mutation-study.md`` from what it measured. A fault counts as found where the static stage or
the dry run gives a fault or warning that the untouched checkpoint does not give.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from mutations import KINDS, NAME_KINDS, Fault, make  # noqa: E402
from pairs import CHECKPOINTS, ROOT, interpreter  # noqa: E402
from writer import genuine  # noqa: E402

from ascend_hotfix.doctor.checkpoint import read_checkpoint  # noqa: E402
from ascend_hotfix.doctor.dryrun import finding_of  # noqa: E402
from ascend_hotfix.doctor.findings import Finding, Severity  # noqa: E402
from ascend_hotfix.doctor.static import check_static  # noqa: E402
from ascend_hotfix.sim.pool import Zygote  # noqa: E402

NAMES = (
    "qwen3_moe-w8a8",
    "qwen3_moe-w4a8",
    "qwen2_5-w8a8",
    "qwen3-w4a4",
    "deepseek_v3-w4a8",
    "deepseek_v3_2-w8a8",
    "kimi_k2-w8a8",
    "minimax_m2-w8a8",
    "qwen3_vl-w8a8",
    "qwen3_vl_moe-w8a8",
    "qwen3_next-w8a8",
    "glm4_6v-w8a8",
    "internvl3_5-w8a8",
    "glm_5-w8a8",
)
VERSIONS = {"0.18": ("0.18.0", "0.18.0"), "0.23": ("0.23.0", "0.23.0"), "0.30": ("0.30.0", "0.30.0rc2")}


def serious(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(f.code, f.message) for f in findings if f.severity > Severity.NOTE}


class Study:
    """One pair: makes faults, runs them, and keeps a row for each."""

    def __init__(self, zygote: Zygote, pair: str, folder: Path) -> None:
        vllm, ascend = VERSIONS.get(pair, (f"{pair}.0", f"{pair}.0"))
        self.zygote, self.folder = zygote, folder
        self.versions = {"vllm": vllm, "vllm-ascend": ascend}
        self.rows: list[dict[str, Any]] = []

    def run(self, name: str, wanted: list[tuple[str, int]]) -> list[dict[str, Any]]:
        """The faults *wanted* (kind and seed) in one checkpoint, as far as it has a place for them."""
        clean = genuine(name).write(self.folder / f"{name}-clean")
        known = serious(list(check_static(read_checkpoint(clean))))
        made: list[tuple[str, int, Fault, Path]] = []
        for kind, seed in wanted:
            spec = genuine(name)
            fault = make(spec, kind, seed)
            if fault is not None:
                made.append((kind, seed, fault, spec.write(self.folder / f"{name}-{kind}-{seed}")))
        work = [{"root": str(root), "renamed": fault.tensors or {}} for _, _, fault, root in made]
        answers = self.zygote.call(
            "study_case:faults",
            timeout=3000,
            clean=str(clean),
            weights=str(CHECKPOINTS / name),
            versions=self.versions,
            work=work,
        )
        rows = []
        for (kind, seed, fault, root), answer in zip(made, answers):
            static = serious(list(check_static(read_checkpoint(root)))) - known
            before = serious([finding_of(one) for one in answer["before"]])
            left = [finding_of(one) for one in answer["left"]]
            rows.append(
                {
                    "checkpoint": name,
                    "kind": kind,
                    "seed": seed,
                    "what": fault.what,
                    "found": bool(static or before),
                    "by_dry_run": bool(before),
                    "suggested": answer["written"],
                    "choices": len(answer["choices"]),
                    "clean": answer["written"] and not serious(left),
                    "left": sorted({f.code for f in left}),
                    "wrong": answer.get("wrong", []),
                    "text": answer["proposed"],
                    "open": answer["choices"][:3],
                }
            )
        self.rows += rows
        return rows


def table(rows: list[dict[str, Any]], pair: str, seed: int, seconds: float) -> str:
    """The page of the measured run."""
    lines = [
        "# Mutation study of the doctor",
        "",
        f"Measured by `tests/doctor/mutation_study.py` on pair {pair}, seed {seed}: {len(rows)} random faults in genuine",
        f"checkpoints, {seconds:.0f} s. Found: static stage or dry run. A patch is suggested where the names decide it;",
        "clean: the dry run has nothing left with it; wrong weights: parameters whose values differ from the untouched",
        "checkpoint's after a load on the CPU with the patch. Dry run clean: only the static stage sees it.",
        "",
        "| fault | faults | found | dry run clean | patch suggested | choices offered | clean with the patch | wrong weights |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for kind in (*KINDS, "all names", "all"):
        held = [
            r for r in rows if kind == "all" or r["kind"] == kind or (kind == "all names" and r["kind"] in NAME_KINDS)
        ]
        if not held:
            continue
        total.clear()
        for row in held:
            total.update(
                found=row["found"],
                harmless=not row["by_dry_run"],
                suggested=row["suggested"],
                choices=bool(row["choices"]),
                clean=row["clean"],
                wrong=bool(row.get("wrong")),
            )
        lines.append(
            f"| {kind} | {len(held)} | {total['found']} | {total['harmless']} | {total['suggested']} | {total['choices']} "
            f"| {total['clean']} | {total['wrong']} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="0.18")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first fault; each fault has the next one")
    parser.add_argument("--seconds", type=float, default=3000.0, help="stop after this long")
    parser.add_argument("--rows", type=Path, help="write one JSON line per fault")
    parser.add_argument("--table", type=Path, default=ROOT / "docs" / "mutation-study.md")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Zygote(interpreter(arguments.pair), path=[ROOT, HERE], arm=True) as z:
        study = Study(z, arguments.pair, Path(folder))
        number, turn = arguments.seed * 1000, -1
        while len(study.rows) < arguments.faults and time.monotonic() - started < arguments.seconds:
            wanted = [(KINDS[(number + step) % len(KINDS)], number + step) for step in range(len(KINDS))]
            number += len(KINDS)
            turn += 1
            for row in study.run(NAMES[turn % len(NAMES)], wanted):
                if arguments.rows:
                    with arguments.rows.open("a") as out:
                        out.write(json.dumps(row) + "\n")
        text = table(study.rows, arguments.pair, arguments.seed, time.monotonic() - started)
    print(text)
    arguments.table.parent.mkdir(exist_ok=True)
    arguments.table.write_text(text)


if __name__ == "__main__":
    main()
