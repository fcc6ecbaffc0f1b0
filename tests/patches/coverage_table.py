"""Writes docs/coverage.md from what was run: ``python tests/patches/coverage_table.py``.

``results/genuine.json`` holds what became of every genuine checkpoint on every pair (``python tests/patches/genuine.py``
runs them), ``cases/catalogue.json`` the public reports, and the other files of ``cases`` what each owner says of his.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from case import CI, PAIRS

from ascend_hotfix.sim import matrix

__all__ = ["DOCUMENT", "document", "results", "statuses"]

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "coverage.md"
STATUSES = ("fixed", "fixed upstream", "diagnosed", "out-of-scope", "open")
# the first words of what a release says to something that it does not have -> what a reader wants to know
ABSENT = (
    ("model type `", "no such model in this release"),
    ("Model architectures", "no such model in this release"),
    ("requires a newer torch_npu runtime", "vllm-ascend refuses MXFP with the torch_npu that this release pins"),
    ("num_speculative_tokens was provided", "no draft for this model in this release"),
    ("NotImplementedError", "no such quantization scheme in this release"),
    (
        "unused model.layers.1.self_attn.fa_k",
        "loads; no quantized KV cache for this model in this release: it stays bf16",
    ),
    ("expected int, got NoneType", "vLLM's draft class cannot be built with the transformers that this release pins"),
    ("could not be loaded with the draft", "no draft for this model in this release"),
)


def results() -> dict[str, Any]:
    """``checkpoint|pair|part`` -> reports, stock and armed, in short."""
    held: dict[str, Any] = json.loads((HERE / "results" / "genuine.json").read_text(encoding="utf-8"))
    return held


def catalogue() -> list[dict[str, Any]]:
    """The public reports, with ``n``, ``id``, ``model`` and ``class``."""
    held: list[dict[str, Any]] = json.loads((HERE / "cases" / "catalogue.json").read_text(encoding="utf-8"))
    return held


def statuses() -> dict[int, dict[str, str]]:
    """Number of a report -> what its owner says of it. Owners name a report by number or by id."""
    numbers = {one["id"]: one["n"] for one in catalogue()}
    found: dict[int, dict[str, str]] = {}
    for file in sorted((HERE / "cases").glob("*.json")):
        if file.name == "catalogue.json":
            continue
        for one in json.loads(file.read_text(encoding="utf-8")):
            found[numbers.get(one["id"], one["id"])] = one
    return found


def cell(held: dict[str, Any] | None) -> str:
    """One checkpoint on one pair."""
    if held is None:
        return "not run"
    armed, stock = held["armed"], held.get("stock")
    if not armed["faults"]:
        return (
            "loads stock"
            if not armed["hits"]
            else "patched: " + ", ".join(f"`{name}`" for name in sorted(armed["hits"]))
        )
    fault = armed["faults"][0]
    reason = next((text for word, text in ABSENT if word in fault), "")
    if not reason:
        reason = ("wrong: " if stock and "unwritten" in fault else "") + fault.split("\n")[0].replace("|", "/")[:90]
    return reason


def in_both_lanes(held: dict[str, Any], checkpoint: str, pair: str, part: str) -> str:
    """One checkpoint on what the release pins, and on the common torch where that gives something else."""
    pinned, common = (cell(held.get(f"{checkpoint}|{name}|{part}")) for name in (f"{pair}-pins", pair))
    return pinned if pinned == common else f"{pinned} (on torch_npu {matrix.TORCH}: {common})"


def _pinned() -> list[str]:
    """Rows with the versions that the releases were tried with."""
    pins = [matrix.pins(PAIRS[f"{pair}-pins"]) for pair in CI]
    rows = {
        "torch": [one.torch.torch for one in pins],
        "torch_npu": [one.torch.npu for one in pins],
        "transformers": [_version("transformers", one) for one in pins],
    }
    return [f"| {name} | " + " | ".join(values) + " |" for name, values in rows.items()]


def _version(package: str, pins: matrix.Pins) -> str:
    """The release in the pins' environment: of its own packages, the pair's, or the base's."""
    found = [text for text in (*pins.packages, *pins.row.packages, *matrix.BASE) if text.startswith(package)]
    return found[0].removeprefix(package).removeprefix("==")


def document() -> str:
    """The whole document."""
    lines = [
        "# Coverage",
        "",
        "Written by `python tests/patches/coverage_table.py` from the results of real runs; CI fails when it is stale.",
        "Everything ran on the real packages, without an NPU: models are built and loaded on the CPU.",
        "",
        "## Genuine ModelSlim checkpoints",
        "",
        "Releases of vllm-ascend, each with its vLLM. *loads stock*: right, and no patch did anything. *patched*: right with",
        "these fixes, wrong or refused without. Otherwise: what stands in the way. Right: every layer has the scheme of its",
        "description, every parameter holds exactly the values that its tensors make (shards in order, experts in place,",
        "scales beside their weights), and no tensor is left over.",
        "",
        "Each release ran with what it pins. *On torch_npu "
        f"{matrix.TORCH}* says what another torch and torch_npu make of a cell, where that differs; no release pins those.",
        "",
        "| | " + " | ".join(PAIRS[pair] for pair in CI) + " |",
        "|---" * (len(CI) + 1) + "|",
        *_pinned(),
        "",
        "| checkpoint | " + " | ".join(PAIRS[pair] for pair in CI) + " |",
        "|---" * (len(CI) + 1) + "|",
    ]
    held = results()
    rows = sorted(
        {(key.split("|")[0], key.split("|")[2]) for key in held}, key=lambda row: (row[0], row[1] != "target")
    )
    for checkpoint, part in rows:
        name = checkpoint + (" (draft)" if part == "draft" else "")
        cells = [in_both_lanes(held, checkpoint, pair, part) for pair in CI]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_reports()]) + "\n"


def _reports() -> list[str]:
    said = statuses()
    count = Counter(said.get(one["n"], {"status": "open"})["status"] for one in catalogue())
    lines = [
        "## Public reports",
        "",
        f"{len(catalogue())} reports: " + ", ".join(f"{count[one]} {one}" for one in STATUSES if count[one]) + ".",
        "Class: 1 renames and rows, 2 with a scheme or an ignored tensor, 3 further records, 4 diagnosis, 5 code, 6 no failure.",
        "",
        "| report | model | class | status | patch | test or reason |",
        "|---|---|---|---|---|---|",
    ]
    for one in catalogue():
        status = said.get(
            one["n"], {"status": "open", "patch": "", "test": "", "reason": "no owner has said anything yet"}
        )
        patch = ", ".join(f"`{name.strip()}`" for name in status["patch"].split(",") if name.strip())
        note = "; ".join(part for part in (status["test"] and f"`{status['test']}`", status["reason"]) if part)
        cells = (one["id"], one["model"], one["class"], status["status"], patch, note)
        lines.append("| " + " | ".join(str(text).replace("|", "/").replace("\n", " ") for text in cells) + " |")
    return lines


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(), encoding="utf-8")
