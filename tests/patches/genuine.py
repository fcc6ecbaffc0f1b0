"""Runs every genuine checkpoint on every pair of CI, in both lanes, and writes results/genuine.json: ``python tests/patches/genuine.py``.

With names of pairs (0.11, 0.11-pins ...) or checkpoints, only those are run anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import checks
from case import CI, PINS

__all__ = ["CELLS", "CHECKPOINTS", "RESULTS", "look"]

HERE = Path(__file__).resolve().parent
CHECKPOINTS = sorted(path.name for path in (HERE.parent / "data" / "checkpoints").iterdir() if path.is_dir())
RESULTS = HERE / "results" / "genuine.json"
WITH_DRAFT = {"deepseek_v3", "deepseek_v3_2", "deepseek_v4", "glm4_moe", "glm_5", "glm_5_1", "longcat_flash"} | {
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_6_27b",
}
CELLS = [
    (checkpoint, pair, part)
    for pair in (*CI, *PINS)
    for checkpoint in CHECKPOINTS
    for part in ("target", "draft")
    if part == "target" or checkpoint.split("-")[0] in WITH_DRAFT
]


def short(report: Mapping[str, Any]) -> dict[str, Any]:
    """What of a report is kept: hits of each fix, the first faults."""
    hits: dict[str, int] = {}
    for entry in report["ledger"]:
        if entry["hits"]:
            name = f"{entry['patch']}.{entry['fix']}"
            hits[name] = hits.get(name, 0) + entry["hits"]
    return {"faults": [fault[:300] for fault in checks.faults(report)[:4]], "hits": hits}


def look(run: Callable[..., Mapping[str, Any]], checkpoint: str, pair: str, part: str) -> dict[str, Any]:
    """The result of one cell. Stock is run where a fix did something, or something is wrong."""
    draft = part == "draft"
    result = {"armed": short(run(pair, checkpoint=checkpoint, armed=True, draft=draft))}
    if result["armed"]["hits"] or result["armed"]["faults"]:
        result["stock"] = short(run(pair, checkpoint=checkpoint, armed=False, draft=draft))
    return result


def main(wanted: list[str]) -> None:
    """Runs the cells that *wanted* names, all without it."""
    from servers import Servers

    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    servers = Servers()
    for checkpoint, pair, part in CELLS:
        if not wanted or pair in wanted or checkpoint in wanted:
            held[f"{checkpoint}|{pair}|{part}"] = look(servers, checkpoint, pair, part)
            RESULTS.write_text(json.dumps(held, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    servers.close()


if __name__ == "__main__":
    main(sys.argv[1:])
