"""What a probe says of servers that are right, and of servers that are wrong in one way each."""

from __future__ import annotations

import math

import pytest
from reading import Probed, check, states
from speaking import Behaviour, Guessing, Model, NotNumbers

from ascend_hotfix.probe.corpus import CONTINUATIONS, NEW_TOKENS, TEXTS

ALL = ("language", "answers", "batch", "decode")


def test_a_right_server(probed: Probed) -> None:
    code, report = probed(Behaviour())
    assert code == 0
    assert states(report) == dict.fromkeys(ALL, "right")
    assert report["server"]["way"] == "prompt_logprobs" and report["server"]["top_logprobs"] == 20
    assert check(report, "decode")["numbers"]["positions"] == len(CONTINUATIONS) * NEW_TOKENS
    assert [each["text"] for each in check(report, "language")["details"]] == [text.name for text in TEXTS]


def test_perplexity_is_that_of_the_servers_own_log_probabilities(probed: Probed) -> None:
    model = Model()
    total, count = 0.0, 0
    for text in TEXTS[:3]:
        ids = model.encode(text.content)
        rows = [model.row(ids[:at]) for at in range(2, len(ids))]
        total -= sum(row.get(token, row[-1]) for row, token in zip(rows, ids[2:]))
        count += len(rows)
    _, report = probed(Behaviour(model))
    numbers = check(report, "language")["numbers"]
    assert numbers["tokens_en"] == count
    assert numbers["perplexity_en"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_a_server_that_guesses_says_garbage(probed: Probed) -> None:
    """As random weights do: consistent with itself, at the perplexity of its vocabulary."""
    code, report = probed(Behaviour(Guessing()))
    assert code == 1
    found = check(report, "language")
    assert (found["state"], found["code"]) == ("wrong", "garbage")
    assert found["numbers"]["perplexity_en"] == pytest.approx(found["numbers"]["vocabulary_at_least"], rel=0.01)
    assert states(report)["batch"] == states(report)["decode"] == "right"


def test_values_that_are_no_numbers(probed: Probed) -> None:
    code, report = probed(Behaviour(NotNumbers()))
    assert code == 1
    assert {check(report, name)["code"] for name in ("language", "batch", "decode")} == {"not-numbers"}
    assert check(report, "answers")["code"] == "answers-degenerate"


@pytest.mark.parametrize(("knows", "weak"), [("en", "Chinese"), ("zh", "English")])
def test_a_model_of_one_language_is_right(knows: str, weak: str, probed: Probed) -> None:
    code, report = probed(Behaviour(Model((knows,))))
    assert code == 0, report
    [note] = check(report, "language")["notes"]
    assert note["code"] == "weak-in" and weak in note["message"]


class Forgetful(Model):
    """Knows which token follows on which, at a poor but better than guessing level, and attends to nothing before."""

    def row(self, context):
        row = super().row(context)
        return {**{token: value - 3.2 for token, value in row.items() if token >= 0}, -1: math.log(1 / 3100)}


def test_what_may_be_a_poor_model_or_a_wrong_server_is_left_open(probed: Probed) -> None:
    code, report = probed(Behaviour(Forgetful(attends=False)))
    assert code == 2
    assert check(report, "language")["code"] == "unclear-language"


def test_decoding_that_does_not_compute_what_prefill_does(probed: Probed) -> None:
    code, report = probed(Behaviour(decoding=Guessing()))
    assert code == 1
    assert states(report) == dict.fromkeys(ALL, "right") | {"decode": "wrong"}


def test_a_small_difference_of_decode_is_rounding_and_a_middling_one_is_left_open(probed: Probed) -> None:
    for temper, state, code in ((1.001, "right", 0), (1.6, "unclear", 2)):
        found, report = probed(Behaviour(decoding=Model(temper=temper)))
        assert (states(report)["decode"], found) == (state, code), temper


def test_a_batch_that_changes_answers(probed: Probed) -> None:
    code, report = probed(Behaviour(batched=Guessing()))
    assert code == 1
    assert states(report) == dict.fromkeys(ALL, "right") | {"batch": "wrong"}
    found = check(report, "batch")
    assert found["numbers"]["same"] < found["numbers"]["completions"] == len(found["details"])


class OneWrong(Model):
    """Wrong for the longest prompt alone."""

    def row(self, context):
        return Guessing().row(context) if len(context) > 40 else super().row(context)


def test_a_batch_that_changes_one_answer(probed: Probed) -> None:
    code, report = probed(Behaviour(batched=OneWrong()))
    assert code == 1
    assert len(check(report, "batch")["details"]) == 1


def test_near_ties_may_fall_either_way_in_a_batch(probed: Probed) -> None:
    """Other words, but log-probabilities that differ by rounding alone."""
    model = Model()

    class Tied(Model):
        def row(self, context):
            row = model.row(context)
            first = max((token for token in row if token >= 0), default=None)
            return row | ({first - 1: row[first] + 0.01} if first is not None else {})

    class TiedOtherwise(Model):
        def row(self, context):
            row = model.row(context)
            first = max((token for token in row if token >= 0), default=None)
            return row | ({first - 1: row[first] - 0.01} if first is not None else {})

    _, report = probed(Behaviour(model, decoding=Tied(), batched=TiedOtherwise()))
    found = check(report, "batch")
    assert found["state"] == "right" and found["numbers"]["same"] < found["numbers"]["completions"]


def test_a_server_that_takes_no_lists_is_asked_in_parallel(probed: Probed) -> None:
    be = Behaviour(lists=False)
    code, report = probed(be)
    assert code == 0
    assert check(report, "batch")["numbers"]["batch"] == len(CONTINUATIONS) + 2
    assert sum(isinstance((body or {}).get("prompt"), list) for _, body, _ in be.seen) > 0


def test_echo_where_there_are_no_prompt_logprobs(probed: Probed) -> None:
    code, report = probed(Behaviour(way="echo", strict=True, most_logprobs=5))
    assert (code, report["server"]["way"], report["server"]["top_logprobs"]) == (0, "echo", 5)
    with_ids = probed(Behaviour())[1]
    for name in ("perplexity_en", "perplexity_zh", "copy_gain_en"):
        assert check(report, "language")["numbers"][name] == check(with_ids, "language")["numbers"][name]


@pytest.mark.parametrize("way", ["generated", "nothing"])
def test_what_a_server_does_not_tell_is_said_to_be_unchecked(way: str, probed: Probed) -> None:
    code, report = probed(Behaviour(way=way))
    assert code == 2
    assert states(report) == {"language": "unchecked", "answers": "right", "batch": "right", "decode": "unchecked"}
    assert "neither by prompt_logprobs nor by echo" in check(report, "language")["message"]


def test_fewer_best_tokens_where_the_server_tells_no_more(probed: Probed) -> None:
    for most, told in ((7, 5), (0, 0)):
        code, report = probed(Behaviour(most_logprobs=most))
        assert (code, report["server"]["top_logprobs"]) == (0, told)


def test_texts_are_cut_to_a_short_context(probed: Probed) -> None:
    code, report = probed(Behaviour(longest=80))
    found = check(report, "language")
    assert (code, found["state"]) == (0, "right")
    assert [note["code"] for note in found["notes"]] == ["shortened"]
    code, report = probed(Behaviour(longest=18))
    assert code == 2
    assert check(report, "batch")["code"] == "batch-none"


# -- against --------------------------------------------------------------------------------------------------------------


def test_against_the_same_and_a_slightly_other_model(probed: Probed) -> None:
    code, report = probed(Behaviour(), against=Behaviour())
    found = check(report, "against")
    assert (code, found["numbers"]["kl_at_least"]) == (0, pytest.approx(0, abs=1e-6))
    assert found["numbers"]["same_best"] == found["numbers"]["positions"]
    assert "diverges-nowhere" in [note["code"] for note in found["notes"]]
    code, report = probed(Behaviour(Model(temper=1.1)), against=Behaviour())
    assert code == 0
    assert 0 < check(report, "against")["numbers"]["kl_at_least"] < 0.1


def test_against_a_server_of_another_model(probed: Probed) -> None:
    code, report = probed(Behaviour(Model(("en",))), against=Behaviour())
    assert code == 1
    found = check(report, "against")
    assert (found["state"], found["code"]) == ("wrong", "against-far")
    assert "diverges" in [note["code"] for note in found["notes"]]


def test_the_allowed_distance_can_be_named(probed: Probed) -> None:
    slightly = Behaviour(Model(temper=1.1))
    assert probed(slightly, "--max-kl", "0.001", against=Behaviour())[0] == 1


def test_against_a_reference_that_is_garbage_itself(probed: Probed) -> None:
    code, report = probed(Behaviour(), against=Behaviour(Guessing()))
    assert code == 1
    assert "against-garbage" in [note["code"] for note in check(report, "against")["notes"]]


def test_against_another_tokenizer_or_no_log_probabilities(probed: Probed) -> None:
    class Backwards(Model):
        def encode(self, text):
            return super().encode(text)[::-1]

    code, report = probed(Behaviour(), against=Behaviour(Backwards()))
    assert (code, check(report, "against")["code"]) == (2, "against-tokens")
    code, report = probed(Behaviour(), against=Behaviour(way="nothing"))
    assert (code, check(report, "against")["code"]) == (2, "against-no-logprobs")


def test_only_bounded_and_repeatable_requests_are_sent(probed: Probed) -> None:
    first, second = Behaviour(), Behaviour()
    probed(first)
    probed(second)
    assert [(path, body) for path, body, _ in first.seen] == [(path, body) for path, body, _ in second.seen]
    for _, body, _ in first.seen:
        assert body is None or (body["temperature"] == 0 and body["max_tokens"] <= NEW_TOKENS)
