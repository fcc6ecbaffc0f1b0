"""The dry run: does the installed upstream load this checkpoint right, without an NPU and without reading weights?

Upstream is imported once, in a process of its own (:class:`ascend_hotfix.sim.pool.Zygote`), with the seams armed as in
a server; each run is a fork of it, since one process can build one model. The NPU is simulated there in any case, so a
real one is not touched. This is the process that asks; what runs in a fork is in :mod:`ascend_hotfix.doctor.rehearse`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_hotfix.catalog import ENV_MODELS, ENV_PATH
from ascend_hotfix.doctor.checkpoint import Progress
from ascend_hotfix.doctor.findings import Finding, finding_data, finding_of, worst_first
from ascend_hotfix.doctor.report import CouldNotRun
from ascend_hotfix.doctor.split import Split
from ascend_hotfix.doctor.standin import StandInFault
from ascend_hotfix.doctor.texts import Phrase

if TYPE_CHECKING:
    from ascend_hotfix.doctor.report import Report
    from ascend_hotfix.sim.pool import CaseError, Zygote

__all__ = ["Split", "call", "finding_data", "finding_of", "run", "run_split", "start", "toggle_env"]

CASE_SECONDS = 1200.0
"""No dry run seen took more than a minute; this only ends one that hangs, or that builds what no machine could."""

CASE_MEMORY = 12 << 30
"""Bytes that a dry run may take. Of the largest checkpoints seen it takes two gigabytes."""


def toggle_env() -> dict[str, str]:
    """The toggles of the user's environment, for a call: the process is armed whatever they say."""
    return {name: os.environ.get(name, "") for name in (ENV_MODELS, ENV_PATH)}


def start() -> Zygote:
    """A process that has the installed upstream imported and the seams armed. Raises :class:`CouldNotRun`.

    Which patches apply is decided in each call, from its environment; that of a case without one is the user's.
    """
    from ascend_hotfix.sim.pool import Zygote, ZygoteError

    root = str(Path(__file__).resolve().parents[2])
    absent = [name for name in ("vllm", "vllm_ascend") if importlib.util.find_spec(name) is None]
    if absent:
        raise CouldNotRun(f"{' and '.join(absent)} cannot be found here; run this where vllm serve runs")
    try:
        return Zygote(sys.executable, path=[root], arm=True, kernels=False, env=APART)
    except ZygoteError as error:
        told = _named(error.cause) if error.cause is not None else str(error)
        raise CouldNotRun(Phrase("cannot import", error=told)) from error


APART = {ENV_MODELS: "", ENV_PATH: "", "ASCEND_RT_VISIBLE_DEVICES": ""}
"""What selects patches comes with each case; and no NPU is seen, so that none can be opened."""


def _named(error: CaseError) -> str:
    """An exception of the forked process in one line: what it says, and where it was raised."""
    text = " ".join(error.message.split())
    return f"{error.type}: {text}" + (f" (at {error.place})" if error.place else "")


def call(zygote: Zygote, function: str, env: Mapping[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """Run a case in a fork of *zygote*. Raises :class:`CouldNotRun` where it breaks off."""
    from ascend_hotfix.sim.pool import CaseCrash, CaseError, CaseTimeout

    try:
        answer: dict[str, Any] = zygote.call(
            function,
            timeout=CASE_SECONDS,
            memory=CASE_MEMORY,
            env=toggle_env() if env is None else env,
            **arguments,
        )
    except (CaseError, CaseCrash, CaseTimeout) as error:
        if isinstance(error, CaseError) and error.type == "MemoryError":
            raise CouldNotRun(Phrase("too large", size=CASE_MEMORY >> 30)) from error
        if isinstance(error, CaseError) and error.type == StandInFault.__name__:
            part, _, told = error.message.partition("\n")
            raise CouldNotRun(Phrase("no stand-in", part=part, error=told)) from error
        raise CouldNotRun(
            Phrase("broke off", error=_named(error) if isinstance(error, CaseError) else error)
        ) from error
    return answer


def run_split(
    zygote: Zygote,
    model_dir: str,
    split: Split,
    env: Mapping[str, str] | None = None,
    fixes: dict[str, int] | None = None,
) -> list[Finding]:
    """The findings of all ranks looked at, each cause once; *fixes* takes the hits of each fix, of the rank with most."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for one in split.ranks:
        answer = call(zygote, "ascend_hotfix.doctor.rehearse:check", env, model_dir=model_dir, **asdict(one))
        if fixes is not None:
            fixes.update({name: max(hits, fixes.get(name, 0)) for name, hits in answer["fixes"].items()})
        for data in answer["findings"]:
            finding = finding_of(data)
            merged.setdefault((finding.code, finding.place, tuple(sorted(finding.params.items()))), finding)
    return worst_first(merged.values())


def run(report: Report, *, suggest: Path | None = None, progress: Progress | None = None) -> list[Finding]:
    """The findings of the dry run for *report*; writes a patch to *suggest* and names it in the report."""
    assert report.checkpoint is not None
    split = Split(report.options.tensor_parallel_size, report.options.expert_parallel)
    if progress is not None:
        progress(0, 3, "importing vllm and vllm-ascend")
    with start() as zygote:
        if progress is not None:
            progress(1, 3, "building and loading on the meta device")
        findings = run_split(zygote, str(report.path), split, fixes=report.fixes)
        if suggest is not None:
            from ascend_hotfix.doctor.suggest.trial import write_or_tell

            if progress is not None:
                progress(2, 3, "looking for a patch")
            findings += write_or_tell(zygote, report, suggest, split, findings)
    if progress is not None:
        progress(3, 3, "")
    return findings
