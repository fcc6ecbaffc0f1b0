"""What ``explain`` says of one name, in each language; the way itself is found by the dry run."""

from __future__ import annotations

import unicodedata
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from writer import tiny

from ascend_hotfix import cli
from ascend_hotfix.doctor import explain
from ascend_hotfix.doctor.texts import LANGUAGES, PHRASES, phrase
from ascend_hotfix.doctor.texts_zh import PHRASES_ZH

TENSOR = {
    "name": "model.norm.weight",
    "dtype": "BF16",
    "shape": [64],
    "file": "m.safetensors",
    "scheme": "",
    "rules": ["mine.row: Prefix('a', 'b') -> b.norm"],
    "lands": [],
    "refused": [],
}
MODULE = {
    "role": "target",
    "prefix": "",
    "module": "",
    "answers": {"a.weight": "W8A8"},
    "missing": ["b.weight"],
    "method": "",
    "float": True,
    "error": "KeyError: 'b.weight'",
    "rules": [],
}
REFUSED = {**TENSOR, "scheme": "FLOAT", "rules": [], "refused": [["target", "KeyError x", "load_weights"]]}
LANDED = {**TENSOR, "lands": [["target", "model.norm.weight"]]}
KNOWN = {"name": "x", "tensors": [TENSOR, REFUSED, LANDED], "total": 4, "parts": [MODULE], "near": []}
UNKNOWN: dict[str, Any] = {"name": "x", "tensors": [], "total": 0, "parts": [], "described": [], "near": ["y"]}


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def test_every_phrase_has_its_translation() -> None:
    assert sorted(PHRASES) == sorted(PHRASES_ZH)
    assert [phrase("more", count=n) for n in (1, 2)] == ["... and 1 tensor more", "... and 2 tensors more"]


def test_a_name_in_english() -> None:
    text = "\n".join(explain.lines(KNOWN))
    for part in (
        "checkpoint   model.norm.weight  BF16 64  (m.safetensors)",
        "description  no entry of this name",
        "  rule       mine.row: Prefix('a', 'b') -> b.norm",
        "parameter    none: the loader leaves it aside without a word",
        "refused      by the target: KeyError x (load_weights)",
        "parameter    model.norm.weight  (target)",
        "... and 1 tensor more",
        "module       (not in the built model)  (target)",
        "  asks as    (an empty prefix)",
        "  finds      a.weight: W8A8",
        "  misses     b.weight",
        "  gets       none (float)",
        "  error      KeyError: 'b.weight'",
    ):
        assert part in text


@pytest.mark.parametrize("told", [KNOWN, UNKNOWN])
def test_a_name_in_chinese_says_the_same_in_straight_columns(told: dict[str, Any]) -> None:
    english, chinese = explain.lines(told), explain.lines(told, "zh")
    assert len(english) == len(chinese)
    for one, other in zip(english, chinese, strict=True):
        assert other != one or not one
        if one[:13].strip() and one[12] == " " and not one.startswith(("x:", "...")):
            start = next(n for n in range(len(other)) if columns(other[:n]) == 13)
            assert other[start - 1] == " " and other[start] != " "


@pytest.mark.parametrize("language", LANGUAGES)
def test_command_asks_and_answers_in_the_language_of_the_locale(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(explain, "start", nullcontext)
    monkeypatch.setattr(explain, "call", lambda *_, **arguments: asked.update(arguments) or UNKNOWN)
    monkeypatch.setenv("LC_ALL", {"zh": "zh_CN.UTF-8", "en": "C"}[language])
    assert cli.main(["explain", "x", str(tiny().write(tmp_path))]) == 1
    assert asked["language"] == language
    assert phrase("unknown", language, name="x") in capsys.readouterr().out


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_name_that_only_the_description_has(language: str) -> None:
    text = explain.lines({**UNKNOWN, "described": [["x.weight", "W8A8"]]}, language)
    assert "x.weight  W8A8" in text[0] and text[1] == phrase("only described", language, name="x")
    assert text[2].endswith("y")


def test_checkpoint_that_cannot_be_read_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "start", lambda: pytest.fail("the work has begun"))
    root = tiny().write(tmp_path)
    (root / "config.json").write_text("[]")
    assert cli.main(["explain", "x", str(root)]) == 2
    assert "config.json holds a list at its top" in capsys.readouterr().err
