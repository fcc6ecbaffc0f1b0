"""Makes ``stock.json``, the table of what stock upstream does with each checkpoint: ``python tests/upstream/stock.py
[PAIR ...]``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ascend_hotfix.sim import envs, matrix
from ascend_hotfix.sim.pool import CaseCrash, CaseError, CaseTimeout, Zygote

HERE = Path(__file__).parent
TABLE = HERE / "stock.json"
CHECKPOINTS = HERE.parent / "data" / "checkpoints"
# The checkpoints with MTP layers.
DRAFTS = (
    "deepseek_v3-",
    "deepseek_v3_2-",
    "deepseek_v4-",
    "glm4_moe-",
    "glm_5",
    "longcat_flash-",
    "qwen3_5",
    "qwen3_6",
)
_LONGEST = 120


def subjects() -> list[str]:
    """``checkpoint`` and, where it has one, ``checkpoint draft``."""
    names = sorted(path.name for path in CHECKPOINTS.iterdir())
    return names + [f"{name} draft" for name in names if name.startswith(DRAFTS)]


def outcome(zygote: Zygote, subject: str) -> str:
    """``ok CLASS``, or the type of the error and the beginning of its message."""
    checkpoint, _, draft = subject.partition(" ")
    try:
        name = zygote.call("stock_cases:attempt", checkpoint=str(CHECKPOINTS / checkpoint), draft=bool(draft))
        return f"ok {name}"
    except CaseError as error:
        message = " ".join(error.message.replace(str(CHECKPOINTS), "").split())
        return f"{error.type}: {message}"[:_LONGEST]
    except (CaseCrash, CaseTimeout) as error:
        return type(error).__name__


def main(pairs: list[str]) -> None:
    """Measure the pairs, by default those of CI, and write them into the table."""
    table = json.loads(TABLE.read_text()) if TABLE.is_file() else {}
    for pair in pairs or matrix.CI:
        with Zygote(envs.python(pair), path=[HERE], env={"ASCEND_HOTFIX_MODELS": "none"}) as zygote:
            table[pair] = {subject: outcome(zygote, subject) for subject in subjects()}
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
