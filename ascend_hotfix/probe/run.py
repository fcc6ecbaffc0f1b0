"""Asks a server everything that a probe asks, in order, and keeps what it found even where it had to stop."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ascend_hotfix.probe import judge
from ascend_hotfix.probe.client import Client, ProbeError, Refused
from ascend_hotfix.probe.corpus import CONTINUATIONS, NEW_TOKENS, TEXTS, WARM_UP, Continuation, Text
from ascend_hotfix.probe.judge import RIGHT, UNCHECKED, WRONG, Check
from ascend_hotfix.probe.measure import (
    Agreement,
    Likelihood,
    agreement,
    distance,
    is_degenerate,
    likelihood,
    perplexity,
)
from ascend_hotfix.probe.options import Endpoint, Options
from ascend_hotfix.probe.protocol import Completion, Server, Step, connect
from ascend_hotfix.probe.texts import Said

__all__ = ["Result", "plan", "probe"]

TOO_LONG = re.compile(
    r"context length|context size|context window|max_model_len|model length|too long|longer than", re.I
)
HALVINGS = 3
Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Scored:
    """A text (perhaps shortened) with the log-probabilities of itself and of its control."""

    text: Text
    written: list[Step]
    control: list[Step]
    shortened: bool


@dataclass
class Result:
    """Everything that was found. ``server`` and ``other`` are None where nobody could be asked at all."""

    checks: list[Check] = field(default_factory=list)
    server: Server | None = None
    other: Server | None = None
    error: Said | None = None
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0: everything was checked and is right. 1: something is wrong. 2: something could not be checked or told."""
        states = {check.state for check in self.checks}
        if WRONG in states:
            return 1
        return 0 if states == {RIGHT} and self.error is None else 2


def plan(against: bool) -> dict[str, int]:
    """About how many requests and tokens a probe takes, before it knows the server's tokenizer; ``write`` is the most."""
    texts = [content for text in TEXTS for content in (text.content, text.control())]
    prompts = [each.prompt for each in CONTINUATIONS]
    halves = _halves(prompts)
    both = 2 if against else 1
    new = len(prompts) * NEW_TOKENS
    # the list of models, the version and a first look; texts and prompts; the batch; what was generated, as prompts
    requests = both * (3 + len(texts) + len(prompts)) + 1 + len(prompts)
    read = (
        both * sum(map(_tokens, [WARM_UP, *texts, *prompts])) + sum(map(_tokens, [*prompts, *prompts, *halves])) + new
    )
    write = both * (1 + len(texts) + new) + new + len(halves) * NEW_TOKENS + len(prompts)
    return {"requests": requests, "read": read, "write": write}


def _tokens(text: str) -> int:
    """About as many as tokenizers make: four letters, or one Chinese character, for one."""
    wide = sum(ord(character) > 0x2E7F for character in text)
    return wide + (len(text) - wide) // 4 + 1


def probe(endpoint: Endpoint, against: Endpoint | None, options: Options, say: Callable[[str], None]) -> Result:
    """Ask the server at *endpoint*, and the one at *against*; *say* is told what is being asked, for people who wait.

    Raises nothing for what a server does: what could not be asked is in the result.
    """
    started = time.monotonic()
    run = _Run(options, started + options.max_time, say)
    run.everything(endpoint, against)
    run.result.seconds = time.monotonic() - started
    return run.result


class _Run:
    def __init__(self, options: Options, deadline: float, say: Callable[[str], None]) -> None:
        self.options, self.deadline, self.say = options, deadline, say
        self.result = Result()
        self.scored: list[Scored] = []
        self.completions: dict[str, Completion] = {}

    def everything(self, endpoint: Endpoint, against: Endpoint | None) -> None:
        try:
            server = self.result.server = self._reach(endpoint)
            other = self.result.other = self._reach(against) if against is not None else None
        except ProbeError as error:
            self.result.error = error.said
            return
        checks: list[tuple[str, Callable[[], Check]]] = [
            ("language", lambda: self._language(server)),
            ("answers", lambda: self._answers(server)),
            ("batch", lambda: self._batch(server)),
            ("decode", lambda: self._decode(server)),
        ]
        if other is not None:
            checks.append(("against", lambda: self._against(server, other)))
        while checks:
            name, ask = checks.pop(0)
            self.say(name)
            try:
                self.result.checks.append(ask())
            except ProbeError as error:
                self.result.checks.append(_unreached(name, error.said))
                if name == "answers":  # what the next two compare
                    self.result.checks += [_unreached(later, error.said) for later in ("batch", "decode")]
                    checks = [each for each in checks if each[0] not in ("batch", "decode")]

    def _reach(self, endpoint: Endpoint) -> Server:
        self.say("server")
        client = Client(endpoint.url, endpoint.key, self.options.timeout, self.deadline)
        server = connect(client, endpoint.model, self.options.wait)
        server.find_way(WARM_UP)
        return server

    # -- the checks ---------------------------------------------------------------------------------------------------

    def _language(self, server: Server) -> Check:
        if server.way == "completions":
            why = f" ({server.why_not})" if server.why_not else ""
            return Check("language", UNCHECKED, Said("no-prompt-logprobs", {"why": why}))
        self.scored = [_scored(server, text) for text in TEXTS]
        check = judge.judge_language(_by_language(self.scored), server.highest)
        cut = [each.text.name for each in self.scored if each.shortened]
        if cut:
            check.notes.append(Said("shortened", {"names": ", ".join(cut)}))
        check.details = [_text_details(each) for each in self.scored]
        return check

    def _answers(self, server: Server) -> Check:
        asked = [(each, _if_it_fits(_completing(server, each.prompt))) for each in CONTINUATIONS]
        found = [(each, answer) for each, answer in asked if answer is not None]
        self.completions = {each.prompt: answer for each, answer in found}
        language = next((check.state for check in self.result.checks if check.name == "language"), UNCHECKED)
        hits = sum(_is_expected(each, answer) for each, answer in found)
        degenerate = sum(is_degenerate(answer.text, answer.tokens) for _, answer in found)
        check = judge.judge_answers(hits, degenerate, len(found), language)
        check.details = [
            {"prompt": each.prompt, "text": answer.text, "expected": _is_expected(each, answer)}
            for each, answer in found
        ]
        return check

    def _batch(self, server: Server) -> Check:
        prompts = list(self.completions)
        if len(prompts) < 2:
            return judge.judge_batch([], [True] * len(prompts), len(prompts))
        batch = [*prompts, *_halves(prompts)]
        together = server.complete_together(batch, NEW_TOKENS, "together")
        pairs = [(alone, other) for alone, other in zip(self.completions.values(), together)]
        check = judge.judge_batch(
            [agreement(alone.steps, other.steps) for alone, other in pairs],
            [alone.text == other.text for alone, other in pairs],
            len(batch),
        )
        check.details = [
            {"prompt": prompt, "alone": alone.text, "in_batch": other.text, **_agreement(alone, other)}
            for prompt, (alone, other) in zip(prompts, pairs)
            if alone.text != other.text
        ]
        return check

    def _decode(self, server: Server) -> Check:
        if server.way == "completions":
            return Check("decode", UNCHECKED, Said("decode-no-logprobs"))
        if not any(each.steps for each in self.completions.values()):
            return Check("decode", UNCHECKED, Said("decode-cannot"))
        found = (_as_prompt(server, prompt, each) for prompt, each in self.completions.items() if each.steps)
        return judge.judge_decode([one for one in found if one is not None])

    def _against(self, server: Server, other: Server) -> Check:
        silent = [each for each in (server, other) if each.way == "completions" or each.top == 0]
        if silent:
            check = Check("against", UNCHECKED, Said("against-no-logprobs", {"which": silent[0].client.url}))
        else:
            reference = [_scored(other, each.text) for each in self.scored]
            check = self._distance(reference, server, other)
        if self.completions:
            check.notes.append(self._divergence(other))
        return check

    def _distance(self, reference: Sequence[Scored], server: Server, other: Server) -> Check:
        pairs = [
            (ours, theirs) for ours, theirs in zip(self.scored, reference) if _tokens_of(ours) == _tokens_of(theirs)
        ]
        if not pairs:
            return Check("against", UNCHECKED, Said("against-tokens" if reference else "against-no-texts"))
        ours = [step for each, _ in pairs for step in each.written]
        theirs = [step for _, each in pairs for step in each.written]
        check = judge.judge_against(
            distance(theirs, ours, server.top), other.client.url, self.options.max_kl, min(server.top, other.top)
        )
        if judge.judge_language(_by_language(reference), other.highest).state == WRONG:
            check.notes.append(Said("against-garbage"))
        return check

    def _divergence(self, other: Server) -> Said:
        """Where the greedy completions of the two part, at the earliest token of all prompts."""
        parted = []
        for prompt, ours in self.completions.items():
            theirs = other.complete(prompt, NEW_TOKENS, "against")
            if ours.text != theirs.text:
                parted.append((_parting(ours, theirs), prompt, ours.text, theirs.text))
        count = len(self.completions)
        if not parted:
            return Said("diverges-nowhere", {"count": count})
        index, prompt, one, two = min(parted)
        params = {"prompt": prompt, "index": index + 1, "ours": one, "theirs": two}
        return Said("diverges", params | {"same": count - len(parted), "count": count})


# -- pieces of the checks -----------------------------------------------------------------------------------------------


def _unreached(name: str, why: Said) -> Check:
    return Check(name, UNCHECKED, Said("not-reached", {"why": why}))


def _if_it_fits(ask: Callable[[], Asked]) -> Asked | None:
    """The answer, or None where the server says that the prompt is longer than its context."""
    try:
        return ask()
    except Refused as refused:
        if not TOO_LONG.search(refused.words):
            raise
        return None


def _completing(server: Server, prompt: str) -> Callable[[], Completion]:
    return lambda: server.complete(prompt, NEW_TOKENS, "alone")


def _scored(server: Server, text: Text) -> Scored:
    """*text* with its control, halved until both fit; raises ProbeError where even little does not.

    The first token that the server tells is left out. Where it puts a begin token before the text, that token's surprise
    is of the begin token: a chat model expects a role there, and 16 nats for one token would hide the rest.
    """
    for halvings in range(HALVINGS + 1):
        try:
            return Scored(text, server.score(text.content)[1:], server.score(text.control())[1:], halvings > 0)
        except Refused as refused:
            if halvings == HALVINGS or not TOO_LONG.search(refused.words):
                raise
            text = text.shortened()
    raise AssertionError("unreachable")


def _by_language(scored: Iterable[Scored]) -> dict[str, Likelihood]:
    by_language: dict[str, list[tuple[list[Step], list[Step]]]] = {}
    for each in scored:
        by_language.setdefault(each.text.language, []).append((each.written, each.control))
    return {language: likelihood(pairs) for language, pairs in by_language.items()}


def _tokens_of(each: Scored) -> list[str]:
    return [step.token for step in each.written]


def _text_details(each: Scored) -> dict[str, object]:
    one = likelihood([(each.written, each.control)])
    return {
        "text": each.text.name,
        "language": each.text.language,
        "tokens": one.tokens,
        "perplexity": perplexity(one.written),
        "shuffled": perplexity(one.shuffled),
        "repeated": perplexity(one.repeated),
    }


def _is_expected(each: Continuation, answer: Completion) -> bool:
    """As a whole word: the 8 of 1789 is none. Chinese has no spaces between words."""
    return any(
        re.search(rf"(?<!\w){word}(?!\w)" if word.isascii() else word, answer.text, re.ASCII) for word in each.expected
    )


def _halves(prompts: Sequence[str]) -> list[str]:
    """The first halves of the two longest prompts: they go into the batch so that its lengths are mixed, and they fit."""
    return [prompt[: len(prompt) // 2] for prompt in sorted(prompts, key=len)[-2:]]


def _agreement(alone: Completion, other: Completion) -> dict[str, object]:
    one = agreement(alone.steps, other.steps)
    if not one.positions:
        return {}
    margin = alone.steps[one.diverged].margin if one.diverged is not None and one.diverged < len(alone.steps) else None
    return {"diverged": one.diverged, "margin": margin, "mean_gap": one.mean_gap, "worst_gap": one.worst_gap}


def _as_prompt(server: Server, prompt: str, decoded: Completion) -> Agreement | None:
    """The generated tokens as they were decoded, beside the same at the end of a prompt; None where they do not come back."""
    whole = [*decoded.ids[0], *decoded.ids[1]] if decoded.ids is not None else prompt + decoded.text
    steps = _if_it_fits(lambda: server.score(whole))
    tail = steps[-len(decoded.steps) :] if steps is not None else []
    if [step.token for step in tail] != decoded.tokens:
        return None
    return agreement(decoded.steps, tail)


def _parting(ours: Completion, theirs: Completion) -> int:
    """The index of the first token that differs; of the first character where tokens are not told."""
    one, two = (ours.tokens, theirs.tokens) if ours.tokens and theirs.tokens else (list(ours.text), list(theirs.text))
    return next((index for index, pair in enumerate(zip(one, two)) if pair[0] != pair[1]), min(len(one), len(two)))
