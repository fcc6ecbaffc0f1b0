"""A genuine checkpoint loaded under ASCEND_HOTFIX_STRICT, as a server's loader does it: build, load, process."""

from __future__ import annotations

import os
from typing import Any

from ascend_hotfix import scope
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.log import StrictError
from ascend_hotfix.seams import instances
from ascend_hotfix.sim import lab
from kinds.inside import DATA, hits


def load(name: str, draft: bool = False) -> dict[str, Any]:
    """Target or draft of checkpoint *name*: what a strict server would have ended with, and the findings.

    ``ours`` is an error of ours, ``theirs`` one of upstream's before the weights are loaded.
    """
    os.environ["ASCEND_HOTFIX_STRICT"] = "1"
    scope.reset()
    found: dict[str, Any] = {"ours": "", "theirs": ""}
    try:
        config = (lab.draft_config if draft else lab.make_config)(DATA / name)
        model = lab.build(config)
        _load(model, config, name)
        if draft:
            model, config = lab.build_draft(config)
            _load(model, config, name)
    except StrictError as error:
        found["ours"] = str(error)[:600]
    except Exception as error:
        found["theirs"] = f"{type(error).__name__}: {error}"[:300]
    return {**found, "findings": [] if found["theirs"] else list(LEDGER.findings), "hits": hits()}


def _load(model: Any, config: Any, name: str) -> None:
    lab.load(model, config, lab.iter_weights(DATA / name))
    try:
        lab.process_weights(model, config)
    except StrictError:
        raise
    except Exception:  # the simulated NPU has not every layout that upstream asks for; the load has been judged before
        held = instances.known(model)
        if held is None or not held.judged:
            raise
