"""LongCat-Flash's draft on 0.30: its target needs a fix as well, so stock stops before the draft is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import checks

CHECKPOINT = "longcat_flash-w4a4_mxfp4"


def test_the_drafts_names_are_mended_in_description_and_parameters(run: Callable[..., Any]) -> None:
    without = run("0.30", checkpoint=CHECKPOINT, draft=True, models="-longcat_flash.mtp-names")
    assert without["error"] == "KeyError" and "q_a_proj" in without["message"]
    report = run("0.30", checkpoint=CHECKPOINT, draft=True)
    assert checks.faults(report) == []
    assert checks.hits(report) == {"longcat_flash.layer-index", "longcat_flash.mtp-names"}
    seams = {entry["seam"] for entry in report["ledger"] if entry["fix"] == "mtp-names" and entry["hits"]}
    assert seams == {"lookup", "params"}
