"""Answers are tried together: the only clean ones are taken, numbers stay, what fails loses nothing. Without upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ascend_hotfix.doctor.dryrun import Split, finding_data
from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.doctor.report import Options, Report
from ascend_hotfix.doctor.suggest.trial import Choice, suggestion, write_or_tell

FAULT = finding_data(Finding("tensor-unused", params={"leaf": "weight"}))
QUESTIONS = {"which is a?": ["a=x", "a=y"], "which is b?": ["b=x", "b=y"]}


class Process:
    """Answers as the process with upstream does: *clean* are the combinations of answers that leave no fault."""

    def __init__(self, clean: list[set[str]], *, apart: bool = True) -> None:
        self.clean, self.apart, self.asked = clean, apart, 0

    def call(self, function: str, *, base: str, chosen: list[str], **_: Any) -> dict[str, Any]:
        self.asked += 1
        held = {*(Path(base).read_text().split() if base else ()), *chosen}
        before = set(Path(base).read_text().split()) if base else set()
        taken = {text[-1] for text in held}
        questions = [
            {"what": what, "answers": [[t, ""] for t in texts if self.apart or t[-1] not in taken], "blocks": True}
            for what, texts in QUESTIONS.items()
            if not held.intersection(texts)
        ]
        findings = [] if before in self.clean else [FAULT]
        text = " ".join(sorted(held))
        return {
            "findings": findings,
            "text": text,
            "questions": questions,
            "more": held != before,
            "types": ["made_up"],
        }


def tried(process: Any, choose: dict[int, int] | None = None) -> Any:
    return suggestion(process, "model", Split(), {}, {}, choose=choose)


def test_the_only_clean_combination_is_taken() -> None:
    made = tried(Process([{"a=x", "b=y"}]))
    assert (made.text, made.choices, made.left) == ("a=x b=y", [], [])


@pytest.mark.parametrize("clean", [[], [{"a=x", "b=y"}, {"a=y", "b=x"}]])
def test_of_several_clean_combinations_or_none_nothing_is_taken(clean: list[set[str]]) -> None:
    made = tried(Process(clean))
    assert made.text == "" and [choice.number for choice in made.choices] == [1, 2] and not made.writable


def test_numbers_of_answers_stay_where_another_answer_rules_one_out() -> None:
    made = tried(Process([], apart=False), {1: 1})
    (choice,) = made.choices
    assert choice.number == 2 and choice.numbered == {2: ("b=y", "")}
    assert choice.lines[0].startswith("2.2  b=y")
    made = tried(Process([{"a=x", "b=y"}], apart=False), {1: 1, 2: 2})
    assert made.text == "a=x b=y" and made.unknown == [] and made.choices == []
    assert tried(Process([], apart=False), {1: 1, 2: 1}).unknown == ["2.1"]


def test_a_suggestion_that_fails_is_a_finding_of_its_own(tmp_path: Path) -> None:
    class Broken:
        def call(self, *_: Any, **__: Any) -> Any:
            raise ValueError("no such segment")

    report: Any = Report(str(tmp_path), Options(), installed={})
    found = write_or_tell(
        Broken(), report, tmp_path / "mine.py", Split(), [Finding("tensor-unused", params={"leaf": "w"})]
    )  # type: ignore[arg-type]
    assert [one.code for one in found] == ["suggest-failed"] and "no such segment" in found[0].message
    assert not (tmp_path / "mine.py").exists()


def test_a_choice_without_numbers_counts_from_one() -> None:
    assert Choice(3, "what", (("x", ""), ("y", ""))).lines[1].startswith("3.2  y")
