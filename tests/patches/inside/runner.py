"""One case: build a model with the installed upstream, load a checkpoint, report what happened as plain data."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

__all__ = ["run"]


def run(
    checkpoint: dict[str, Any] | str,
    armed: bool = True,
    draft: bool = False,
    device: str = "cpu",
    models: str = "",
    paths: tuple[str, ...] = (),
    engine: dict[str, Any] | None = None,
    release: dict[str, str] | None = None,
    undo: tuple[str, ...] = (),
    show: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Builds and loads; an exception of upstream's is part of the answer.

    ``checkpoint``: a folder, or what :mod:`inside.checkpoints` makes one from. ``armed``: False is stock.
    ``models`` and ``paths``: ASCEND_HOTFIX_MODELS and ASCEND_HOTFIX_PATH. ``release``: versions that the catalog
    is to see, with ``undo``, the names of functions in :mod:`inside.releases` that take from the installed release what
    the older one lacked. ``show``: patterns of parameters whose first values are wanted.
    """
    _as_the_worker_imports()
    for name in undo:
        getattr(importlib.import_module("inside.releases"), name)()
    _arm(armed, models, paths, release)
    from ascend_hotfix.sim import lab
    from inside import checkpoints
    from inside.observe import Follower

    answer: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    stage = "checkpoint"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            folder = checkpoints.make(checkpoint, Path(scratch))
            stage = "config"
            config = (lab.draft_config if draft else lab.make_config)(folder, **(engine or {}))
            stage = "build"
            model = lab.build(config, device)
            role = "target"
            if draft:
                role, stage = "draft", "build draft"
                model, config = lab.build_draft(config, device)
            stage = f"load {role}"
            follower = Follower()
            with follower:
                lab.load(model, config, follower.feed(lab.iter_weights(folder, device)), device)
            parts[role] = {**follower.report(model, show), **_describe(model, config, folder)}
        except Exception as error:
            answer = {
                "error": type(error).__name__,
                "message": str(error),
                "stage": stage,
                "notes": list(getattr(error, "__notes__", ())),
                "trace": traceback.format_exc(limit=-6),
            }
    return {**answer, "parts": parts, "ledger": _ledger()}


def _as_the_worker_imports() -> None:
    """The proposer's import makes vllm-ascend 0.18 patch the loader of DeepSeek; its worker always imports it."""
    with contextlib.suppress(ImportError):
        importlib.import_module("vllm_ascend.spec_decode.eagle_proposer")


def _arm(armed: bool, models: str, paths: tuple[str, ...], release: dict[str, str] | None) -> None:
    if not armed:
        os.environ["ASCEND_HOTFIX_MODELS"] = "none"
        return
    os.environ["ASCEND_HOTFIX_MODELS"] = models
    if paths:
        os.environ["ASCEND_HOTFIX_PATH"] = os.pathsep.join(paths)
    from ascend_hotfix import gate, scope

    if release:
        scope.versions().update(release)
    gate.arm()


def _ledger() -> list[dict[str, Any]]:
    if "ascend_hotfix.ledger" not in sys.modules:
        return []
    from dataclasses import asdict

    from ascend_hotfix.ledger import LEDGER

    return [asdict(entry) for entry in LEDGER if entry.hits or entry.state == "drifted"]


def _describe(model: Any, config: Any, folder: Path) -> dict[str, Any]:
    """The class of the model, the scheme's of every layer that has one, the description, the target's layers."""
    schemes: dict[str, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        method = getattr(module, "quant_method", None)
        if method is not None:
            inner = getattr(method, "quant_method", None) or getattr(method, "scheme", None)
            schemes[name] = type(inner if inner is not None else method).__name__
    described = json.loads((folder / "quant_model_description.json").read_text(encoding="utf-8"))
    text = config.model_config.hf_text_config
    layers = getattr(text, "num_hidden_layers", None) or getattr(text, "num_layers", 0)
    return {"class": type(model).__name__, "schemes": schemes, "described": described, "layers": layers}
