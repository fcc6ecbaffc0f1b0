"""Study: checkpoints under other naming conventions; how many does a suggested patch mend, refuse, or load wrongly?

    python tests/doctor/conventions_study.py --pair 0.23 --seconds 1500

Each case is a genuine checkpoint under one convention of ``conventions.py``, whole or in part, with tensors and
description renamed together or apart. Mended: the patch was written without a question, a dry run with it finds nothing
that the untouched checkpoint does not have, and after a load on the CPU every parameter of target and draft holds the
same values as with the untouched checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from conventions import CONVENTIONS, parts_of, renaming  # noqa: E402
from mutation_study import VERSIONS, serious  # noqa: E402
from mutations import rename, tensor_names  # noqa: E402
from pairs import CHECKPOINTS, ROOT, interpreter  # noqa: E402
from writer import genuine  # noqa: E402

from ascend_hotfix.doctor.dryrun import finding_of  # noqa: E402
from ascend_hotfix.sim.pool import Zygote  # noqa: E402

FAMILIES = (
    "qwen2_5-w8a8",
    "qwen3-w8a8",
    "qwen3_moe-w8a8",
    "deepseek_v3-w4a8",
    "deepseek_v3_2-w8a8",
    "kimi_k2-w8a8",
    "glm4_moe-w8a8",
    "minimax_m2-w8a8",
    "qwen3_next-w8a8",
    "qwen3_vl-w8a8",
    "qwen3_vl_moe-w8a8",
    "internvl3_5-w8a8",
    "qwen3_5-w8a8",
)
WHERE = {"both": (True, True), "stored": (False, True), "described": (True, False)}
"""Which names are changed: description, tensors."""


def cases(parts: str) -> Iterator[tuple[str, str, str]]:
    """(convention, part, where): whole ones everywhere; in part only with both renamed."""
    for convention in CONVENTIONS:
        for part in parts_of(convention):
            for where in WHERE:
                if (part == "whole" and "whole" in parts) or (part != "whole" and where == "both" and "part" in parts):
                    yield convention, part, where


def run(z: Zygote, pair: str, name: str, wanted: list[tuple[str, str, str]], folder: Path) -> list[dict[str, Any]]:
    """The rows of one checkpoint."""
    clean = genuine(name).write(folder / f"{name}-clean")
    vllm, ascend = VERSIONS.get(pair, (f"{pair}.0", f"{pair}.0"))
    work, labels = [], []
    for convention, part, where in wanted:
        spec = genuine(name)
        before = (dict(spec.description or {}), tensor_names(spec))
        described, tensors = WHERE[where]
        change = renaming(spec, convention, part)
        names = [change(one) for one in tensor_names(spec)]
        if len(set(names)) < len(names):
            continue  # two tensors would have one name
        moved = rename(spec, change, described=described, tensors=tensors)
        if before == (spec.description, tensor_names(spec)):
            continue
        root = spec.write(folder / f"{name}-{convention}-{part}-{where}")
        work.append({"root": str(root), "renamed": moved})
        labels.append((convention, part, where))
    answers = z.call(
        "study_case:faults",
        timeout=3000,
        clean=str(clean),
        weights=str(CHECKPOINTS / name),
        versions={"vllm": vllm, "vllm-ascend": ascend},
        work=[{"root": str(clean), "renamed": {}}, *work],
    )
    known = serious([finding_of(one) for one in answers[0]["before"]])
    rows = []
    for (convention, part, where), answer in zip(labels, answers[1:], strict=True):
        before = serious([finding_of(one) for one in answer["before"]]) - known
        left = serious([finding_of(one) for one in answer["left"]]) - known
        wrong = answer.get("wrong", [])
        state = "harmless" if answer.get("harmless") or not before else "refused"
        if answer["written"]:
            state = "wrong" if wrong else "left" if left else "mended"
        row = {"checkpoint": name, "convention": convention, "part": part, "where": where, "state": state}
        row.update(
            left=sorted({code for code, _ in left}),
            wrong=wrong[:5],
            open=answer["choices"][:4],
            text=answer["proposed"],
        )
        rows.append(row)
    return rows


def told(rows: list[dict[str, Any]]) -> str:
    """A table by convention, and the cases that are not mended."""
    states = ("mended", "refused", "left", "wrong", "harmless")
    text = f"| convention | cases | {' | '.join(states)} |\n|---|{'---|' * (len(states) + 1)}\n"
    groups = {name: [row for row in rows if row["convention"] == name] for name in CONVENTIONS}
    for name, held in {**groups, "**all**": rows}.items():
        counts = [sum(row["state"] == state for row in held) for state in states]
        text += f"| {name} | {len(held)} | {' | '.join(map(str, counts))} |\n"
    for row in rows:
        if row["state"] not in ("mended", "harmless"):
            label = f"{row['checkpoint']} {row['convention']} {row['part']} {row['where']}"
            text += f"\n- {label}: {row['state']}: {', '.join(row['left'] or row['wrong'] or row['open'][:1])[:300]}"
    return text + "\n"


def page(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    """What stands before the table."""
    where = {"both": "description and tensors", "stored": "tensors alone", "described": "description alone"}
    return INTRODUCTION.format(
        command=f"python tests/doctor/conventions_study.py --pair {arguments.pair} --parts {arguments.parts} --where {arguments.where}",
        pair=arguments.pair,
        families=len({row["checkpoint"] for row in rows}),
        cases=len(rows),
        parts=" and ".join(
            {"whole": "whole conventions", "part": "groups of names alone"}[p] for p in arguments.parts.split(",")
        ),
        where=", ".join(where[one] for one in arguments.where.split(",")),
    )


INTRODUCTION = """\
# Study of naming conventions

What does `ascend-hotfix doctor --suggest` make of genuine ModelSlim checkpoints under other naming conventions?
`tests/doctor/conventions.py` renames them, `tests/doctor/conventions_study.py` runs them on real vLLM and vllm-ascend with a
simulated NPU and writes this page from what it measured:

    {command}

This run: pair {pair}, {families} checkpoints, {cases} cases ({parts}; names changed in {where}).

- mended: a patch was written without a question, a dry run with it finds nothing that the untouched checkpoint does not have, and
  after a load on the CPU every parameter of target and draft holds the same values as with the untouched checkpoint.
- refused: a question was asked, or no patch found. Left: the written patch leaves a finding.
- wrong: with the written patch a parameter holds other values, or target or draft does not load.
- harmless: the release loads it right as it is.

"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="0.23")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--conventions", default=",".join(CONVENTIONS))
    parser.add_argument("--parts", default="whole,part")
    parser.add_argument("--where", default=",".join(WHERE))
    parser.add_argument("--seconds", type=float, default=3000.0, help="start no further checkpoint after this long")
    parser.add_argument("--table", type=Path, help="write the page there")
    parser.add_argument("--rows", type=Path, help="one JSON line per case")
    arguments = parser.parse_args()
    started, rows = time.monotonic(), list[dict[str, Any]]()
    chosen, where = arguments.conventions.split(","), arguments.where.split(",")
    wanted = [one for one in cases(arguments.parts) if one[0] in chosen and one[2] in where]
    with tempfile.TemporaryDirectory() as folder, Zygote(interpreter(arguments.pair), path=[ROOT, HERE], arm=True) as z:
        for name in arguments.families.split(","):
            if time.monotonic() - started < arguments.seconds:
                made = run(z, arguments.pair, name, wanted, Path(folder))
                rows += made
                if arguments.rows:
                    with arguments.rows.open("a") as out:
                        out.writelines(json.dumps(row) + "\n" for row in made)
    text = told(rows)
    print(text)
    if arguments.table:
        arguments.table.write_text(page(arguments, rows) + text)


if __name__ == "__main__":
    main()
