"""A case for the process that has upstream: one dry run, and the patch that it suggests."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ascend_hotfix.doctor.checkpoint import read_checkpoint
from ascend_hotfix.doctor.findings import finding_data
from ascend_hotfix.doctor.rehearse import rehearse
from ascend_hotfix.doctor.split import Split
from ascend_hotfix.doctor.suggest.derive import derive
from ascend_hotfix.doctor.suggest.proposal import Proposal
from ascend_hotfix.doctor.suggest.writer import patch_text

__all__ = ["propose"]


def propose(
    model_dir: str, versions: Mapping[str, str], base: str = "", chosen: Sequence[str] = (), **split: Any
) -> dict[str, Any]:
    """A case for the zygote: the findings of a dry run, the text of a patch (empty: none) and the questions.

    *base* is the file of what was suggested before and is armed in this run; the new text has its rules too. *chosen*
    are texts of answers that are taken over.
    """
    found = rehearse(read_checkpoint(model_dir), Split(**split))
    before = Proposal.of_patch(runpy.run_path(base)["PATCH"]) if base else Proposal()
    proposal = Proposal()
    proposal.merge(before)
    proposal.merge(derive(found, before))
    proposal.answer(chosen)
    title, override = Path(model_dir).name, proposal.overriding()
    text = patch_text(proposal.fields(), found.types, versions, title, override) if proposal else ""
    return {
        "findings": [finding_data(f) for f in found.findings],
        "text": text,
        "questions": [
            {"what": q.what, "answers": [[a.text, a.note] for a in q.answers], "blocks": q.blocks}
            for q in proposal.questions
        ],
        "more": proposal.records() != before.records(),
        "types": list(found.types),
    }
