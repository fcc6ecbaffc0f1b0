"""Mutation study: are random faults found, does a suggested patch mend the names, does none load wrong weights?

    python tests/doctor/mutation_study.py --pair 0.18 --faults 500 --seed 1 --seconds 3000

Writes the table of ``docs/mutation-study.md`` from what it measured. A fault counts as found where the static stage or
the dry run gives a fault or warning that the untouched checkpoint does not give.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from conftest import CHECKPOINTS, ROOT, interpreter  # noqa: E402
from mutations import KINDS, NAME_KINDS, Fault, make  # noqa: E402
from writer import genuine  # noqa: E402

from ascend_hotfix.doctor.checkpoint import read_checkpoint  # noqa: E402
from ascend_hotfix.doctor.dryrun import Split, finding_of  # noqa: E402
from ascend_hotfix.doctor.findings import Finding, Severity  # noqa: E402
from ascend_hotfix.doctor.static import check_static  # noqa: E402
from ascend_hotfix.doctor.suggest import suggestion  # noqa: E402
from ascend_hotfix.sim.pool import CaseError, Zygote  # noqa: E402

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
    """One pair: runs faults and counts what came of them."""

    def __init__(self, zygote: Zygote, pair: str, folder: Path) -> None:
        vllm, ascend = VERSIONS.get(pair, (f"{pair}.0", f"{pair}.0"))
        self.zygote, self.folder = zygote, folder
        self.versions = {"vllm": vllm, "vllm-ascend": ascend}
        self.rows: list[dict[str, Any]] = []
        self._static: dict[str, set[tuple[str, str]]] = {}
        self._values: dict[str, dict[str, str]] = {}

    def run(self, name: str, kind: str, seed: int) -> dict[str, Any] | None:
        """One fault; None where the checkpoint has no place for it."""
        spec = genuine(name)
        fault = make(spec, kind, seed)
        if fault is None:
            return None
        root = spec.write(self.folder / f"{name}-{kind}-{seed}")
        row: dict[str, Any] = {"checkpoint": name, "kind": kind, "seed": seed, "what": fault.what}
        made = suggestion(self.zygote, str(root), Split(), self.versions, {})
        if name not in self._static:
            clean = genuine(name).write(self.folder / f"{name}-clean")
            self._static[name] = serious(list(check_static(read_checkpoint(clean))))
        static = serious(list(check_static(read_checkpoint(root)))) - self._static[name]
        row["found"] = bool(static) or bool(serious(made.before))
        row["by_dry_run"] = bool(serious(made.before))
        written = bool(made.text) and not made.choices and not made.worse
        row["suggested"] = written
        row["choices"] = len(made.choices)
        row["clean"] = written and not serious(made.left)
        row["left"] = sorted({f.code for f in made.left}) if written else []
        if written:
            row["wrong"] = self.wrong(name, root, fault, made.text)
        self.rows.append(row)
        return row

    def wrong(self, name: str, root: Path, fault: Fault, text: str) -> list[str]:
        """Parameters that hold other values with the patch than the untouched checkpoint gives them."""
        if name not in self._values:
            self._values[name] = self.digests(CHECKPOINTS / name, CHECKPOINTS / name, {}, {})
        file = root / "suggested_patch.py"
        file.write_text(text)
        try:
            got = self.digests(root, CHECKPOINTS / name, fault.tensors or {}, {"ASCEND_HOTFIX_PATH": str(file)})
        except CaseError as error:
            return [f"does not load: {error.type}"]
        right = self._values[name]
        return [parameter for parameter in got if got[parameter] != right.get(parameter)]

    def digests(self, root: Path, weights: Path, renamed: dict[str, str], env: dict[str, str]) -> dict[str, str]:
        answer: dict[str, str] = self.zygote.call(
            "values_case:digests", env=env, timeout=300, model_dir=str(root), weights_dir=str(weights), renamed=renamed
        )
        return answer


def table(rows: list[dict[str, Any]], pair: str, seed: int, seconds: float) -> str:
    """The page of the measured run."""
    lines = [
        "# Mutation study of the doctor",
        "",
        f"Measured by `tests/doctor/mutation_study.py` on pair {pair}, seed {seed}: {len(rows)} random faults in genuine",
        f"checkpoints, {seconds:.0f} s. Found: static stage or dry run. A patch is suggested where the names decide it;",
        "clean: the dry run has nothing left with it; wrong weights: parameters whose values differ from the untouched",
        "checkpoint's after a load on the CPU with the patch.",
        "",
        "| fault | faults | found | patch suggested | choices offered | clean with the patch | wrong weights |",
        "|---|---|---|---|---|---|---|",
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
                suggested=row["suggested"],
                choices=bool(row["choices"]),
                clean=row["clean"],
                wrong=bool(row.get("wrong")),
            )
        lines.append(
            f"| {kind} | {len(held)} | {total['found']} | {total['suggested']} | {total['choices']} "
            f"| {total['clean']} | {total['wrong']} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="0.18")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3000.0, help="stop after this long")
    parser.add_argument("--rows", type=Path, help="write one JSON line per fault")
    parser.add_argument("--table", type=Path, default=ROOT / "docs" / "mutation-study.md")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Zygote(interpreter(arguments.pair), path=[ROOT, HERE], arm=True) as z:
        study = Study(z, arguments.pair, Path(folder))
        number = 0
        while len(study.rows) < arguments.faults and time.monotonic() - started < arguments.seconds:
            number += 1
            row = study.run(rng.choice(NAMES), KINDS[number % len(KINDS)], number)
            if row is not None and arguments.rows:
                with arguments.rows.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        text = table(study.rows, arguments.pair, arguments.seed, time.monotonic() - started)
    print(text)
    arguments.table.parent.mkdir(exist_ok=True)
    arguments.table.write_text(text)


if __name__ == "__main__":
    main()
