"""Suggests a patch module for what a dry run missed, and tries it before it is written.

What the names say is derived in :mod:`ascend_hotfix.doctor.suggest.derive`. The patch is loaded and dry-run, again where that
shows more. What the names leave open is put as numbered choices; a chosen one is tried as everything else.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_hotfix import toggles
from ascend_hotfix.catalog import ENV_MODELS, ENV_PATH, load_catalog
from ascend_hotfix.doctor.dryrun import Split, call, finding_of, run_split, toggle_env
from ascend_hotfix.doctor.findings import Collector, Finding, Severity
from ascend_hotfix.doctor.texts import Phrase

if TYPE_CHECKING:
    from ascend_hotfix.doctor.report import Report
    from ascend_hotfix.sim.pool import Zygote

__all__ = ["Choice", "Suggestion", "suggestion", "trial_env", "write_or_tell", "write_suggestion"]

ROUNDS = 5
"""How often a dry run with the rules so far may show more. A draft whose tensors moved and whose lookups moved takes four."""
NAME_CODES = frozenset(
    {
        "lookup-missing",
        "lookup-silent",
        "row-missing",
        "draft-refused",
        "scheme-stored",
        "tensor-failed",
        "tensor-refused",
        "tensor-unused",
        "parameter-unwritten",
        "parameter-partial",
        "build-failed",
        "quantized-into-float",
        "float-into-quantized",
    }
)
"""Findings that a rule may remove."""
NONE = 0
"""The answer to a choice that leaves it as it is."""
MOST_TRIALS = 12
"""So many combinations of answers are tried before the user is asked."""


@dataclass(frozen=True)
class Choice:
    """A question with its *number* and its *answers*, each the text of fields and a note; *numbers* are theirs.

    Answer ``n`` is ``number.n``; it keeps its number where an answer to another question has ruled others out.
    """

    number: int
    what: str
    answers: tuple[tuple[str, str], ...]
    blocks: bool = True
    numbers: tuple[int, ...] = ()

    @property
    def numbered(self) -> dict[int, tuple[str, str]]:
        """The answers by their numbers."""
        return dict(zip(self.numbers or range(1, len(self.answers) + 1), self.answers, strict=True))

    @property
    def lines(self) -> tuple[str, ...]:
        """The alternatives, each with what to give to ``--choose``, as Python that a patch can hold."""
        told = [f"{self.number}.{n}  {text}  # {note}" for n, (text, note) in self.numbered.items()]
        return (*told, f"{self.number}.{NONE}  # none of these, the finding stays")


@dataclass
class Suggestion:
    """A patch that was tried: its *text*, empty where there is none, what it leaves, and why there is none.

    ``choices`` are open; ``unknown`` are those asked for that there are not, as ``--choose`` takes them.
    """

    text: str = ""
    before: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    worse: bool = False
    types: list[str] = field(default_factory=list)

    @property
    def writable(self) -> bool:
        """Is there a patch, better than none, that waits for no answer?"""
        return bool(self.text) and not self.worse and not any(choice.blocks for choice in self.choices)


@dataclass
class _Trials:
    """Dry runs of one checkpoint, each with what was suggested so far, in *file*."""

    zygote: Zygote
    model_dir: str
    versions: Mapping[str, str]
    env: Mapping[str, str]
    file: Path
    made: Suggestion = field(default_factory=Suggestion)
    numbers: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)
    started: bool = False

    def settle(self, chosen: Sequence[str] = ()) -> None:
        """Dry-run with the rules so far, and *chosen*, until that shows nothing more to add."""
        for turn in range(ROUNDS):
            answer = self._run(chosen)
            found = [finding_of(one) for one in answer["findings"]]
            if not self.started:
                self.made.before, self.made.types, self.started = found, list(answer["types"]), True
            self.made.left = found
            if not answer["more"] or turn == ROUNDS - 1:
                break
            self.made.text, chosen = answer["text"], ()
        self.made.choices = [self._choice(one) for one in answer["questions"]]

    def resolve(self) -> None:
        """Takes the answers of which exactly one combination leaves no fault; of several that do, none is better."""
        blocking = [choice for choice in self.made.choices if choice.blocks and choice.answers]
        ways = list(islice(product(*(choice.answers for choice in blocking)), MOST_TRIALS + 1))
        if not blocking or not 1 < len(ways) <= MOST_TRIALS:
            return
        right: list[_Trials] = []
        for way in ways:
            trial = replace(self, made=replace(self.made), numbers=dict(self.numbers), answers={**self.answers})
            trial.settle([text for text, _ in way])
            if not _weight(trial.made.left) and not any(choice.blocks for choice in trial.made.choices):
                right.append(trial)
            if len(right) > 1:
                return
        if right:
            self.made, self.numbers, self.answers = right[0].made, right[0].numbers, right[0].answers

    def _run(self, chosen: Sequence[str]) -> dict[str, Any]:
        base, env = "", self.env
        if self.made.text:
            self.file.write_text(self.made.text, encoding="utf-8")
            base, env = str(self.file), trial_env(self.env, self.file, self.made.types)
        arguments = {"model_dir": self.model_dir, "versions": dict(self.versions), "base": base, "chosen": list(chosen)}
        return call(self.zygote, "ascend_hotfix.doctor.suggest.propose:propose", env, **arguments)

    def _choice(self, data: Mapping[str, Any]) -> Choice:
        number = self.numbers.setdefault(data["what"], len(self.numbers) + 1)
        answers = tuple((text, note) for text, note in data["answers"])
        known = self.answers.setdefault(data["what"], [])
        known += [text for text, _ in answers if text not in known]
        numbers = tuple(known.index(text) + 1 for text, _ in answers)
        return Choice(number, data["what"], answers, data["blocks"], numbers)

    def choose(self, number: int, answer: int) -> bool:
        """Takes *answer* to choice *number* and tries it; False where there is no such choice.

        What the answers before it have settled needs no answer any more.
        """
        what = next((what for what, one in self.numbers.items() if one == number), None)
        if what is None or not NONE <= answer <= len(self.answers[what]):
            return False
        choice = next((one for one in self.made.choices if one.number == number), None)
        if choice is not None and answer in choice.numbered:
            self.settle([choice.numbered[answer][0]])
        return choice is None or answer == NONE or answer in choice.numbered


def suggestion(
    zygote: Zygote,
    model_dir: str,
    split: Split,
    versions: Mapping[str, str],
    env: Mapping[str, str],
    name: str = "suggested",
    choose: Mapping[int, int] | None = None,
) -> Suggestion:
    """Proposes a patch and dry-runs the checkpoint with it, until that shows nothing more to add.

    *env* is what the user's environment says; the trials differ from it in what selects the patch that is tried, which
    is called *name*. *choose*: number of a choice -> number of the answer. They are taken in order, each tried before the
    next, so that a number means the same in every run.
    """
    # inside of the folder that goes with the processes, where there is one
    with tempfile.TemporaryDirectory(dir=getattr(zygote, "scratch", None)) as folder:
        trials = _Trials(zygote, model_dir, versions, env, Path(folder) / f"{name}.py")
        trials.settle()
        trials.resolve()
        kept = set()
        for number, answer in sorted((choose or {}).items()):
            if not trials.choose(number, answer):
                trials.made.unknown.append(f"{number}.{answer}")
            elif answer == NONE:
                kept.add(number)
        made = trials.made
        made.choices = [choice for choice in made.choices if choice.number not in kept]
        if made.text and split != Split() and made.writable:
            trials.file.write_text(made.text, encoding="utf-8")
            made.left = run_split(zygote, model_dir, split, trial_env(env, trials.file, made.types))
    made.worse = bool(made.text) and _worse(made.before, made.left)
    return made


def trial_env(env: Mapping[str, str], file: Path, types: Iterable[str]) -> dict[str, str]:
    """*env* with the patch in *file*, which is for models of *types*, selected beside what the toggle selects."""
    paths = os.pathsep.join(filter(None, (str(file), env.get(ENV_PATH, os.environ.get(ENV_PATH, "")))))
    toggle = env.get(ENV_MODELS, os.environ.get(ENV_MODELS, ""))
    return {**env, ENV_PATH: paths, ENV_MODELS: _with_selected(toggle, file.stem.lower(), set(types))}


def _with_selected(toggle: str, name: str, types: Collection[str]) -> str:
    """*toggle* with patch *name*, for models of *types*, selected as well."""
    if toggles.means_off(toggle):
        return name
    terms = [term.strip() for term in toggle.split(",") if term.strip()]
    barred = {term[1:].strip() for term in terms if term.startswith("-")} & set(types)
    if barred:  # a model type that is taken out would take out the patch too: take the other fixes out by name
        terms = [term for term in terms if term[1:].strip() not in barred or not term.startswith("-")]
        sources = load_catalog({ENV_PATH: os.environ.get(ENV_PATH, "")}).sources
        fixes = ((name, fix) for name, source in sources.items() for fix in source.patch.fixes)
        terms += [f"-{name}.{fix.id}" for name, fix in fixes if barred.intersection(fix.model_types)]
    if any(not term.startswith("-") and term.lower() != "all" for term in terms):
        terms.append(name)
    return ",".join(terms)


def _weight(findings: Iterable[Finding]) -> int:
    return sum(f.count for f in findings if f.severity is Severity.FAULT)


def _worse(before: Iterable[Finding], after: Iterable[Finding]) -> bool:
    """Does the patch bring a fault that was not there, or mend nothing?"""
    codes = {finding.code for finding in before}
    new = [f for f in after if f.severity is Severity.FAULT and f.code not in codes]
    return bool(new) or _weight(after) >= _weight(before)


def write_or_tell(zygote: Zygote, report: Report, target: Path, split: Split, findings: list[Finding]) -> list[Finding]:
    """:func:`write_suggestion`; where that fails, a finding that says so, and what the dry run found stays."""
    try:
        return write_suggestion(zygote, report, target, split, findings)
    except Exception as error:
        if toggles.strict():
            raise
        params = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"}
        return [Finding("suggest-failed", str(target), params=params, stage="dry-run")]


def write_suggestion(
    zygote: Zygote,
    report: Report,
    target: Path,
    split: Split,
    findings: list[Finding],
) -> list[Finding]:
    """Write a patch to *target* and name it in the report; the findings that say why there is none."""
    found = Collector(stage="dry-run")
    if not any(finding.code in NAME_CODES for finding in findings):
        found.add("suggest-nothing", place=str(target))
        return found.findings()
    env = toggle_env()
    choose = dict(report.options.choose)
    made = suggestion(zygote, str(report.path), split, report.installed, env, target.stem, choose)
    for one in made.unknown:
        found.add("suggest-unknown", place=str(target), choice=one)
    if made.writable and not made.unknown:
        try:
            target.write_text(made.text, encoding="utf-8")
        except OSError as error:
            why = Phrase("failed", reason=error.strerror or str(error))
            report.suggested = Phrase("not written", file=target, stage="--suggest", why=why)
        else:
            report.suggested = _told(made, target, env)
            for left in made.left:
                if left.severity is Severity.FAULT:
                    found.add("suggest-left", place=str(target), what=left.message)
    elif made.worse and not any(choice.blocks for choice in made.choices):
        found.add("suggest-worse", place=str(target), left=", ".join(sorted({f.code for f in made.left})))
    elif not made.unknown and not made.choices:
        found.add("suggest-nothing", place=str(target))
    chosen = "".join(f"{number}.{answer}," for number, answer in choose.items())
    return [*found.findings(), *(_choice_finding(choice, target, chosen) for choice in made.choices)]


def _choice_finding(choice: Choice, target: Path, chosen: str) -> Finding:
    """*choice* as a finding; *chosen* is what ``--choose`` has to go on saying of those before it."""
    if not choice.answers:
        return Finding("suggest-no-name", str(target), params={"what": choice.what}, stage="dry-run")
    code = "suggest-choice" if choice.blocks else "suggest-option"
    params = {
        "number": str(choice.number),
        "what": choice.what,
        "first": f"{chosen}{choice.number}.{next(iter(choice.numbered), NONE)}",
    }
    params |= {"file": shlex.quote(str(target)), "alternatives": "\n".join(choice.lines)}
    return Finding(code, str(target), params=params, stage="dry-run")


def _told(made: Suggestion, target: Path, env: Mapping[str, str]) -> str:
    """What the written patch does, and how a server uses it."""
    left = [f for f in made.left if f.severity is Severity.FAULT]
    chosen = trial_env(env, target, made.types)
    wanted = " ".join(f"{name}={chosen[name]}" for name in (ENV_PATH, ENV_MODELS) if chosen[name])
    return Phrase("remain with it" if left else "clean with it", file=target, count=len(left), environment=wanted)
