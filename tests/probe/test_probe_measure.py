"""The numbers themselves, and the sentences around them."""

from __future__ import annotations

import math
from itertools import pairwise
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speaking import Behaviour, speaking

from ascend_hotfix.cli import main
from ascend_hotfix.probe.corpus import CONTINUATIONS, TEXTS
from ascend_hotfix.probe.measure import agreement, distance, is_degenerate, perplexity
from ascend_hotfix.probe.protocol import Step
from ascend_hotfix.probe.run import plan
from ascend_hotfix.probe.texts import LABELS, SENTENCES

SIZE = 12
weights = st.lists(st.floats(0.001, 1.0), min_size=SIZE, max_size=SIZE)


def step(values: list[float], count: int) -> tuple[Step, list[float]]:
    shares = [value / sum(values) for value in values]
    best = sorted(range(SIZE), key=lambda token: -shares[token])[:count]
    return Step("0", math.log(shares[0]), {str(token): math.log(shares[token]) for token in {0, *best}}), shares


@given(weights, weights, st.integers(1, SIZE))
def test_kl_of_the_best_tokens_is_a_lower_bound(one: list[float], other: list[float], count: int) -> None:
    (reference, p), (run, q) = step(one, count), step(other, count)
    whole = sum(a * math.log(a / b) for a, b in zip(p, q))
    found = distance([reference], [run], count)
    assert found.kl <= whole + 1e-9
    if count == SIZE:
        assert found.kl == pytest.approx(whole, abs=1e-9)
        assert found.covered == pytest.approx(1)


def test_agreement_ends_with_the_first_token_that_differs() -> None:
    one = [Step("a", -0.1, {"a": -0.1}), Step("b", -0.5, {"b": -0.5, "c": -0.6}), Step("x", -9, {})]
    other = [Step("a", -0.2, {"a": -0.2}), Step("c", -0.4, {"c": -0.4, "b": -0.7}), Step("y", -1, {})]
    found = agreement(one, other)
    assert (found.positions, found.diverged) == (2, 1)
    assert found.mean_gap == pytest.approx(0.15) and found.worst_gap == pytest.approx(0.2)


def test_agreement_where_the_other_run_does_not_list_the_token() -> None:
    found = agreement([Step("a", -0.1, {})], [Step("b", -0.2, {"b": -0.2, "c": -3.0})])
    assert found.worst_gap == pytest.approx(2.9)  # at least: a is below c


def test_agreement_of_runs_of_different_length_and_of_none() -> None:
    steps = [Step("a", -0.1, {})]
    assert agreement(steps, steps * 2).diverged == 1
    assert agreement([], []).positions == 0
    assert math.isnan(agreement([Step("a", math.nan, {})], steps).worst_gap)


@pytest.mark.parametrize("text", ["!!!!!!!!!!!!", " the the the the the the", "ab" * 40, "的的的的的的的的"])
def test_degenerate(text: str) -> None:
    assert is_degenerate(text, [])


@pytest.mark.parametrize(
    "text", ["", " Paris, the capital of France and", " 8, 9, 10, 11, 1", "ha ha", "北京，北京是中国的首都"]
)
def test_not_degenerate(text: str) -> None:
    assert not is_degenerate(text, [])


def test_perplexity_has_no_overflow() -> None:
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(9999.0) == math.inf and math.isnan(perplexity(math.nan))


# -- what is sent ---------------------------------------------------------------------------------------------------------


def test_a_control_has_the_words_of_its_text_twice_in_another_order() -> None:
    for text in TEXTS:
        assert sorted(text.units * 2) == sorted(
            text.control().split() if text.language == "en" else list(text.control())
        )
        pairs = set(pairwise(text.units))
        shuffled = text.shuffled().split() if text.language == "en" else list(text.shuffled())
        kept = sum(pair in pairs for pair in pairwise(shuffled))
        assert kept <= len(text.units) // 8, text.name
        assert len(text.shortened().units) == len(text.units) // 2


def test_both_languages_are_asked() -> None:
    assert {text.language for text in TEXTS} == {"en", "zh"}
    assert len({each.prompt for each in CONTINUATIONS}) == len(CONTINUATIONS)


@pytest.mark.parametrize("against", [False, True])
def test_the_plan_is_what_is_sent(against: bool, capsys) -> None:
    one, other = Behaviour(), Behaviour()
    with speaking(one) as url, speaking(other) as reference:
        main(["probe", url, *(["--against", reference] if against else [])])
    planned = plan(against)
    bodies = [body for _, body, _ in one.seen + other.seen if body]
    written = sum(body["max_tokens"] * (len(body["prompt"]) if _is_batch(body["prompt"]) else 1) for body in bodies)
    assert planned["requests"] == len(one.seen + other.seen)
    assert planned["write"] == written
    assert f"about {planned['requests']} requests" in capsys.readouterr().err


def _is_batch(prompt: object) -> bool:
    return isinstance(prompt, list) and isinstance(prompt[0], str)


# -- what is said ---------------------------------------------------------------------------------------------------------


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("code", SENTENCES)
def test_every_sentence_has_its_chinese_twin(code: str) -> None:
    english, chinese = SENTENCES[code]
    assert fields(english) == fields(chinese)
    assert english.strip() and chinese.strip()


@pytest.mark.parametrize("locale", ["zh_CN.UTF-8", "en_GB.UTF-8"])
def test_the_report_speaks_the_locales_language(locale: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    with speaking() as url:
        assert main(["probe", url]) == 0
    found = capsys.readouterr()
    chinese = locale.startswith("zh")
    assert ("困惑度" in found.out) is chinese and ("perplexity" in found.out) is not chinese
    assert ("个请求" in found.err) is chinese
    for word in ("language", "answers", "batch", "decode", "right"):
        assert LABELS[word][chinese] in found.out


def test_the_json_is_the_same_in_every_language(monkeypatch, capsys) -> None:
    outputs = []
    for locale in ("zh_CN.UTF-8", "C"):
        monkeypatch.setenv("LC_ALL", locale)
        with speaking() as url:
            main(["probe", url, "--json"])
            outputs.append(capsys.readouterr().out.replace(url, "URL").partition('"seconds"')[0])
    assert outputs[0] == outputs[1]
