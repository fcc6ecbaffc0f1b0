"""Runs the stages of a diagnosis one after the other and gathers one report.

The dry run is imported only when it is asked for: it needs vLLM and takes the time that importing vLLM takes.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ascend_hotfix.catalog import Catalog, load_catalog
from ascend_hotfix.doctor.checkpoint import Checkpoint, NotACheckpoint, Progress, model_types, read_checkpoint
from ascend_hotfix.doctor.findings import Collector, Finding, Severity, worst_first
from ascend_hotfix.doctor.report import CouldNotRun, Options, Report, Stage
from ascend_hotfix.doctor.static import check_static
from ascend_hotfix.doctor.structure import Filling
from ascend_hotfix.doctor.texts import Phrase
from ascend_hotfix.toggles import strict
from ascend_hotfix.words import said

__all__ = ["diagnose"]

DRY_RUN = "ascend_hotfix.doctor.dryrun"


def _fills(catalog: Catalog, checkpoint: Checkpoint, installed: Mapping[str, str]) -> list[Filling]:
    """What the patches that would be armed for this checkpoint fill."""
    selected = catalog.select(model_types(checkpoint.config), installed)
    return [Filling(fill.pattern, fill.value, one.name) for one in selected for fill in one.fix.fill]


def _static_stage(report: Report, progress: Progress | None) -> None:
    """Read and check the files. Where the path is no model directory the report stays without a checkpoint."""
    started = time.perf_counter()
    try:
        report.checkpoint = read_checkpoint(report.path, progress)
    except NotACheckpoint as error:
        report.findings.append(error.finding)
        report.stages.append(Stage("static", "failed", time.perf_counter() - started, "no model directory"))
        return
    size = report.options.tensor_parallel_size
    release = report.installed.get("vllm-ascend")
    # one rank is the default of the server, not a wish that a per-rank export could contradict
    asked = size if size > 1 else None
    catalog = load_catalog()
    collector = Collector()
    for problem in (*catalog.problems, *catalog.unknown_terms()):
        collector.add("patch-problem", place="patches", problem=problem)
    report.findings += collector.findings()
    fills = _fills(catalog, report.checkpoint, report.installed)
    report.findings += check_static(report.checkpoint, tensor_parallel_size=asked, release=release, fills=fills)
    report.stages.append(Stage("static", "done", time.perf_counter() - started))


def _dry_stage(report: Report, suggest: Path | None, progress: Progress | None) -> None:
    """Build and load the model on the meta device with the installed vLLM.

    ``dryrun.run(report, suggest=..., progress=...)`` returns its findings, sets ``report.suggested`` where it wrote a
    patch, and raises :class:`CouldNotRun` where nothing can be said.
    """
    blocked = blocking(report)
    if blocked:
        report.stages.append(Stage("dry run", "skipped", reason=Phrase("mend first", codes=blocked)))
        return
    started = time.perf_counter()
    try:
        dry = importlib.import_module(DRY_RUN)
    except ModuleNotFoundError as error:
        if error.name != DRY_RUN:
            raise
        report.stages.append(Stage("dry run", "failed", reason=Phrase("no dry run", module=DRY_RUN)))
        return
    try:
        found = dry.run(report, suggest=suggest, progress=progress)
        report.findings = [*settled(report.findings, found), *without_echoes(report.findings, found)]
    except CouldNotRun as error:
        report.stages.append(Stage("dry run", "failed", time.perf_counter() - started, error.args[0]))
        return
    except Exception as error:
        if strict():
            raise
        reason = Phrase("internal error", error=said(error))
        report.stages.append(Stage("dry run", "failed", time.perf_counter() - started, reason))
        return
    report.findings = worst_first(report.findings)
    report.stages.append(Stage("dry run", "done", time.perf_counter() - started))


UNFIT = ("tensor-shape-refused", "parameter-unwritten")
ECHOES = {
    "companion-absent": ("parameter-unwritten",),
    "companion-dtype": ("dtype-cast",),
    "companion-shape": UNFIT,
    "described-tensor-absent": ("parameter-unwritten",),
    "float-but-quantized": ("quantized-into-float",),
    "module-absent": ("lookup-missing", "lookup-silent"),
    "quantized-but-float": ("float-into-quantized",),
    "router-bias-absent": ("parameter-unwritten",),
    "router-bias-filled": ("parameter-filled",),
    "scheme-not-in-release": ("scheme-unsupported",),
    "scheme-stored": ("scheme-stored",),
    "tensor-absent": ("lookup-missing", "lookup-silent", "parameter-unwritten"),
    "weight-dtype": ("dtype-cast",),
    "weight-shape": UNFIT,
}
"""What the static stage says, and the codes by which the dry run says it of the same tensor or layer."""


def _subjects(finding: Finding) -> set[str]:
    """What the finding is about, as far as both stages call it alike: a scheme, a leaf, or else the layer's own name."""
    if finding.code in ("scheme-not-in-release", "scheme-stored", "scheme-unsupported"):
        return {finding.params["scheme"]}
    leaf = finding.params.get("leaf", "weight")
    names = [name.removesuffix(".weight") for name in finding.patterns] if leaf == "weight" else [leaf]
    return {name.rpartition(".")[2] for name in names}


def without_echoes(static: Sequence[Finding], dry: Sequence[Finding]) -> list[Finding]:
    """Findings of the dry run less those that repeat a static one: the same cause, no worse, and no more of it.

    Where the dry run counts more than the static stage, something else is wrong too, and all of it stays.
    """
    told: Counter[tuple[str, str]] = Counter()
    heard: Counter[tuple[str, str]] = Counter()
    worst: dict[str, Severity] = {}
    for finding in static:
        for code in ECHOES.get(finding.code, ()):
            told.update({(code, subject): finding.count for subject in _subjects(finding)})
            worst[code] = max(worst.get(code, finding.severity), finding.severity)
    about = [(finding, {(finding.code, subject) for subject in _subjects(finding)}) for finding in dry]
    for finding, keys in about:
        heard.update(dict.fromkeys(keys, finding.count))
    return [
        finding
        for finding, keys in about
        if not keys or finding.severity > worst.get(finding.code, -1) or any(heard[key] > told[key] for key in keys)
    ]


NAMES = frozenset(
    {"description-entry", "description-name", "description-renamed", "scheme-unknown", "tensor-undescribed"}
)
"""What the static stage says of what is asked of the description; whether that is found, a dry run knows."""


def settled(static: Sequence[Finding], dry: Sequence[Finding]) -> list[Finding]:
    """*static*; where the dry run found no fault, those of :data:`NAMES` as notes, since nothing was asked in vain."""
    if any(finding.severity is Severity.FAULT for finding in dry):
        return list(static)
    return [replace(finding, settled=finding.code in NAMES) for finding in static]


def blocking(report: Report) -> str:
    """The code of a finding that makes a dry run pointless, or an empty string: what is there cannot be loaded."""
    codes = {finding.code for finding in report.findings}
    return next((code for code in BLOCKING if code in codes), "")


BLOCKING = (
    "not-modelslim",
    "float-checkpoint",
    "description-absent",
    "description-empty",
    "model-type-new",
    "sharded-export",
    "json-corrupt",
    "json-encoding",
    "json-kind",
    "file-unreadable",
    "lfs-pointer",
    "header-corrupt",
    "file-truncated",
    "shard-file-absent",
    "config-value",
    "layer-absent",
)


def diagnose(
    path: str,
    options: Options,
    installed: Mapping[str, str],
    *,
    suggest: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check the checkpoint in *path*; *installed* are the versions that will serve it, as far as they are known.

    *suggest* is where a patch that removes the findings is to be written. Raises nothing for what is wrong with the
    checkpoint; that is in the report.
    """
    report = Report(path, options, installed=installed)
    _static_stage(report, progress)
    if report.checkpoint is not None:
        _second_stage(report, suggest, progress)
    if suggest is not None:
        report.suggested = report.suggested or _unwritten(report, suggest)
    return report


def _unwritten(report: Report, suggest: Path) -> str | None:
    """Why *suggest* was not written, where no stage got so far as to say so in a finding."""
    stopped = [stage for stage in report.stages if stage.status != "done"]
    if not stopped:
        return None
    why = Phrase(stopped[-1].status, reason=stopped[-1].reason)
    return Phrase("not written", file=suggest, stage=Phrase(stopped[-1].name), why=why)


def _second_stage(report: Report, suggest: Path | None, progress: Progress | None) -> None:
    """The dry run, or why there is none."""
    installed = report.installed
    if report.options.static_only:
        report.stages.append(Stage("dry run", "skipped", reason="--static-only"))
    elif "vllm" not in installed or "vllm-ascend" not in installed:
        missing = " and ".join(name for name in ("vllm", "vllm-ascend") if name not in installed)
        report.stages.append(Stage("dry run", "failed", reason=Phrase("not installed", missing=missing)))
    else:
        _dry_stage(report, suggest, progress)
