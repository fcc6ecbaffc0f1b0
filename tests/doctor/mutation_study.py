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
        work = [{"root": str(root), "renamed": fault.tensors} for _, _, fault, root in made]
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
                    "harmless": answer.get("harmless", False),
                    "text": answer["proposed"],
                    "open": answer["choices"][:3],
                }
            )
        self.rows += rows
        return rows


INTRODUCTION = """\
# Mutation study of the doctor

Does the doctor find random faults in genuine ModelSlim checkpoints, does a suggested patch mend the names, and does none
load wrong weights? `tests/doctor/mutations.py` makes the faults from a seed, `tests/doctor/mutation_study.py` runs them on
real vLLM and vllm-ascend with a simulated NPU and writes this page from what it measured:

    {command}

This run: pair {pair}, seed {seed}, {count} faults in {checkpoints} checkpoints.
{note}

- found: the static stage or the dry run gives a fault or warning that the untouched checkpoint does not give.
- no fault: a renaming that this release, with the shipped patches, loads as it is; every parameter then holds the same values
  as with the untouched checkpoint. It counts as neither found nor missed where nothing is reported.
- patch: one was suggested. Open: what the names leave open was offered as choices instead.
- clean: a dry run with the suggested patch has nothing left.
- wrong weights: with the suggested patch a parameter of the target or of the draft holds other values than with the
  untouched checkpoint, after a load on the CPU.

The kinds that end in `_described` rename in the description alone, those in `_stored` the tensors alone, those in `_both`
the tensors with it. The last eight kinds are in what is stored or in how the description is written; a rule about names may
not pretend to mend them. For a dropped description entry the patch gives
the scheme that the tensors show.

| fault | faults | found | no fault | patch | open | clean | wrong weights |
|---|---|---|---|---|---|---|---|
"""


def table(rows: list[dict[str, Any]], run: argparse.Namespace, note: str) -> str:
    """The page of the measured run."""
    command = f"python tests/doctor/mutation_study.py --pair {run.pair} --faults {run.faults} --seed {run.seed}"
    checkpoints = len({row["checkpoint"] for row in rows})
    text = INTRODUCTION.format(
        command=command, pair=run.pair, seed=run.seed, count=len(rows), checkpoints=checkpoints, note=note
    ).replace("\n\n\n", "\n\n")
    groups = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    groups["**all faults in names**"] = [row for row in rows if row["kind"] in NAME_KINDS]
    groups["**all**"] = rows
    for name, held in groups.items():
        if held:
            columns = ("found", "harmless", "suggested", "choices", "clean", "wrong")
            counts = [sum(bool(row[column]) for row in held) for column in columns]
            text += f"| {name} | {len(held)} | {' | '.join(map(str, counts))} |\n"
    names = [row for row in rows if row["kind"] in NAME_KINDS and not row["harmless"]]
    missed = [row for row in rows if not row["found"] and not row["harmless"]]
    text += (
        f"\nOf {len(rows)} faults {len(missed)} were missed. Of {len(names)} faults in names that do harm, the suggested "
        f"patch makes\n{sum(bool(row['clean']) for row in names)} clean "
        f"({100 * sum(bool(row['clean']) for row in names) / max(1, len(names)):.1f} %). "
        f"{sum(bool(row['wrong']) for row in rows)} suggestions load wrong weights.\n"
    )
    open_ones = [row for row in names if not row["clean"]]
    if open_ones:
        text += "\nFaults in names that stay:\n\n"
        for row in open_ones:
            why = "open" if row["choices"] else "no patch" if not row["suggested"] else ", ".join(row["left"])
            text += f"- {row['checkpoint']} {row['kind']} {row['seed']} ({row['what']}): {why}\n"
    return text


def again(study: Study, old: list[dict[str, Any]]) -> str:
    """Puts the rows of an earlier run into *study*, the faults in names that were not mended run anew; says how many."""
    stale = [row for row in old if row["kind"] in NAME_KINDS and not row["clean"] and not row["harmless"]]
    study.rows = [row for row in old if row not in stale]
    for name in dict.fromkeys(row["checkpoint"] for row in stale):
        study.run(name, [(row["kind"], row["seed"]) for row in stale if row["checkpoint"] == name])
    return (
        f"The {len(stale)} faults in names that had no clean patch in that run were run anew after a correction; the other\n"
        f"{len(old) - len(stale)} rows are of the tree before it."
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="0.18")
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first fault; each fault has the next one")
    parser.add_argument("--seconds", type=float, default=3000.0, help="stop after this long")
    parser.add_argument("--rows", type=Path, help="one JSON line per fault; a run that was cut off goes on from them")
    parser.add_argument("--again", type=Path, help="rows of an earlier run: only what was not mended there is run")
    parser.add_argument("--table", type=Path, default=ROOT / "docs" / "mutation-study.md")
    arguments = parser.parse_args()
    started, note = time.monotonic(), ""
    with tempfile.TemporaryDirectory() as folder, Zygote(interpreter(arguments.pair), path=[ROOT, HERE], arm=True) as z:
        study = Study(z, arguments.pair, Path(folder))
        if arguments.again:
            note = again(study, [json.loads(line) for line in arguments.again.read_text().splitlines()])
        elif arguments.rows and arguments.rows.exists():
            study.rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
        held = {row["seed"] for row in study.rows}
        number, turn = arguments.seed * 1000, -1
        while not note and len(study.rows) < arguments.faults and time.monotonic() - started < arguments.seconds:
            wanted = [(KINDS[(number + step) % len(KINDS)], number + step) for step in range(len(KINDS))]
            number += len(KINDS)
            turn += 1
            if held.intersection(seed for _, seed in wanted):
                continue
            for row in study.run(NAMES[turn % len(NAMES)], wanted):
                if arguments.rows:
                    with arguments.rows.open("a") as out:
                        out.write(json.dumps(row) + "\n")
    text = table(study.rows, arguments, note)
    print(text)
    arguments.table.parent.mkdir(exist_ok=True)
    arguments.table.write_text(text)


if __name__ == "__main__":
    main()
