"""Runs inside an upstream environment: does stock upstream build a checkpoint's model and take its weights?"""

from __future__ import annotations

from ascend_hotfix.sim import lab


def attempt(checkpoint: str, draft: bool) -> str:
    """The class of the loaded model: the target's, or with ``draft`` that of the checkpoint's own MTP layers."""
    config = lab.draft_config(checkpoint) if draft else lab.make_config(checkpoint)
    model = lab.build(config, "meta")
    if draft:
        model, config = lab.build_draft(config, "meta")
    lab.load(model, config, lab.iter_weights(checkpoint, "meta"), "meta")
    return type(model).__name__
