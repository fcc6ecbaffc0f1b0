"""Findings: grouped by cause, worst first, and every sentence filled."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from ascend_hotfix.doctor.findings import Collector, Finding, Severity, exit_code, pattern
from ascend_hotfix.doctor.texts import LANGUAGES, TEXTS, text_of
from ascend_hotfix.doctor.texts_zh import TEXTS_ZH


def test_same_cause_is_one_finding_with_a_count_and_two_examples() -> None:
    found = Collector()
    for layer in range(61):
        found.add("companion-absent", f"model.layers.{layer}.mlp.up_proj", scheme="W8A8", leaf="deq_scale")
    found.add("companion-absent", "model.layers.0.mlp.up_proj", scheme="W8A8", leaf="quant_bias")
    first, second = found.findings()
    assert (first.count, second.count) == (61, 1)
    assert first.examples == ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj")
    assert first.patterns == ("model.layers.*.mlp.up_proj",)
    assert first.message == "61 layers of scheme W8A8 lack deq_scale"


def test_worst_first_and_exit_code() -> None:
    found = Collector()
    found.add("index-no-weight-map", place="i.json")
    assert exit_code(found.findings()) == 0
    found.add("tensor-unlisted", "a", place="i.json")
    assert exit_code(found.findings()) == 0
    found.add("file-truncated", place="m.safetensors", found=1, expected=2)
    assert [f.severity for f in found.findings()] == [Severity.FAULT, Severity.WARNING, Severity.NOTE]
    assert exit_code(found.findings()) == 1


def test_unknown_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no-such-code.*texts"):
        Finding("no-such-code")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", sorted(TEXTS))
def test_every_sentence_fills_from_its_params(code: str, language: str) -> None:
    finding = Finding(code, "FILE", params=dict.fromkeys(TEXTS[code].params, "VALUE"))
    for sentence in finding.sentences(language):
        assert sentence and "{" not in sentence.replace('{"weight_map"', "")
    assert finding.severity in Severity
    assert code == code.lower() and "_" not in code


NOUNS = "tensors|layers|weights|entries|experts|files|times|bytes|keys|routers|parameters|ranks|parts"
DISAGREES = re.compile(rf"\b1 ([a-z]+ )?({NOUNS})\b|\b1 [a-z]+ (of scheme X )?(are|have|lack|do|mix|ask|get)\b")


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_counts_agree_with_their_nouns(code: str) -> None:
    fields = [field for field in Formatter().parse(TEXTS[code].message) if "|" in (field[2] or "")]
    params = {
        **dict.fromkeys(TEXTS[code].params, "X"),
        **{str(name): "1" for _, name, _, _ in fields if name != "count"},
    }
    one, two = (Finding(code, "FILE", count, params=params).message for count in (1, 2))
    assert not DISAGREES.search(one)
    assert not re.search(r"\b2 [a-z]+ (is|has|lacks|does|mixes|asks|gets)\b", two)
    assert (one != two) == ("{count" in TEXTS[code].message)


def test_one_and_two_of_them() -> None:
    found = [Finding("tensor-absent", "i.json", count).message for count in (1, 2)]
    assert found == ["1 tensor is listed in i.json and in no file", "2 tensors are listed in i.json and in no file"]


def test_pattern_replaces_numeric_segments_only() -> None:
    assert pattern("model.layers.3.mlp.experts.12.w1.weight") == "model.layers.*.mlp.experts.*.w1.weight"


def test_every_code_is_translated() -> None:
    assert sorted(TEXTS_ZH) == sorted(TEXTS)


@pytest.mark.parametrize("code", sorted(TEXTS_ZH))
def test_translation_says_as_much_as_the_english(code: str) -> None:
    english, chinese = text_of(code), text_of(code, "zh")
    assert chinese.params == english.params and chinese.severity == english.severity
    assert [("DIR" in s) for s in (english.remedy, chinese.remedy)] in ([True, True], [False, False])


def test_code_without_a_translation_is_said_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TEXTS_ZH, "no-config")
    assert text_of("no-config", "zh") == text_of("no-config")
