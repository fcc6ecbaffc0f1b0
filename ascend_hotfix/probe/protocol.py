"""How a server is asked for log-probabilities, and what its answers look like once read.

Three ways, tried in this order; each is the OpenAI completions API with what servers add to it:

* ``prompt_logprobs``: vLLM's own field of ``/v1/completions``; tokens come as ids.
* ``echo``: ``echo`` with ``logprobs``, of the OpenAI API (SGLang and others); tokens come as text.
* ``completions``: nothing about the prompt; perhaps ``logprobs`` of what is generated.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ascend_hotfix.probe.client import Client, ProbeError, Refused

__all__ = ["Completion", "Served", "Server", "Step", "connect"]

TOP = (20, 5, 1, 0)
"""Numbers of best tokens to ask for at each position, until the server grants one: vLLM's default limit is 20, OpenAI's 5."""

Prompt = str | list[int]


@dataclass(frozen=True)
class Step:
    """One token and its log-probability (nats); ``top``: the best tokens of the position with theirs, by the same keys."""

    token: str
    logprob: float
    top: Mapping[str, float]

    @property
    def best(self) -> str | None:
        """The likeliest token, where the server told it; of equals the one that was taken."""
        if not self.top:
            return None
        highest = max(self.top.values())
        return self.token if self.logprob >= highest else max(self.top, key=self.top.__getitem__)

    @property
    def margin(self) -> float | None:
        """By how many nats the likeliest token is ahead of the second, where the server told both."""
        ranked = sorted(self.top.values(), reverse=True)
        return ranked[0] - ranked[1] if len(ranked) > 1 else None


@dataclass(frozen=True)
class Completion:
    """A greedy continuation. ``tokens`` and ``steps`` are empty where the server does not tell them; ``ids``: prompt and
    generated token ids, where it tells those."""

    text: str
    steps: tuple[Step, ...]
    ids: tuple[list[int], list[int]] | None = None

    @property
    def tokens(self) -> list[str]:
        return [step.token for step in self.steps]


@dataclass(frozen=True)
class Served:
    """What a server says about itself. ``version`` and ``longest`` (prompt and answer, in tokens) may be unknown."""

    model: str
    models: tuple[str, ...]
    version: str | None
    longest: int | None


@dataclass
class Server:
    """A server and the way in which it is asked. ``top`` is how many best tokens it tells per position."""

    client: Client
    served: Served
    way: str = "completions"
    top: int = 0
    has_logprobs: bool = True
    read: int = 0
    generated: int = 0
    highest: int = 0
    """The highest token id seen: the vocabulary has more than that many tokens."""
    why_not: str = ""
    """What the server answered when it was asked for log-probabilities of a prompt, where it offers none."""

    # -- asking -------------------------------------------------------------------------------------------------------

    def score(self, prompt: Prompt) -> list[Step]:
        """The prompt's tokens but for the first, of which no model says anything. Not for the way ``completions``."""
        body = self._body(prompt, 1)
        body |= {"echo": True} if self.way == "echo" else {"prompt_logprobs": self.top}
        [choice], usage = self._ask(body, 1)
        found = _echoed(choice, usage) if self.way == "echo" else _prompt_steps(choice)
        if found is None:
            raise ProbeError("protocol", url=self.client.url, words=f"no log-probabilities of the prompt ({self.way})")
        self._note(found)
        return found

    def complete(self, prompt: str, tokens: int, salt: str) -> Completion:
        """The greedy continuation by at most *tokens* tokens. *salt* keeps a cache of an earlier prompt from being used."""
        [choice], _ = self._ask(self._body(prompt, tokens, salt), 1)
        return self._completion(choice)

    def complete_together(self, prompts: Sequence[str], tokens: int, salt: str) -> list[Completion]:
        """All of them in one request; at the same time in several where the server takes no list."""
        try:
            choices, _ = self._ask(self._body(list(prompts), tokens, salt), len(prompts))
        except Refused:
            with ThreadPoolExecutor(len(prompts)) as pool:
                return list(pool.map(lambda prompt: self.complete(prompt, tokens, salt), prompts))
        return [self._completion(choice) for choice in choices]

    def _body(self, prompt: Prompt | list[str], tokens: int, salt: str = "") -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.served.model, "prompt": prompt, "max_tokens": tokens}
        body |= {"temperature": 0, "seed": 0}
        if self.has_logprobs:
            body["logprobs"] = self.top
        if self.way == "prompt_logprobs":
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
            body |= {"cache_salt": salt} if salt else {}
        return body

    def _ask(self, body: Mapping[str, Any], count: int) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
        """The choices in the order of the prompts, and the usage."""
        answer = self.client.post("/v1/completions", body)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or len(choices) != count or not all(isinstance(c, dict) for c in choices):
            raise ProbeError("protocol", url=f"{self.client.url}/v1/completions", words=f"not {count} choices")
        choices = sorted(choices, key=lambda choice: _whole(choice.get("index")))
        usage = answer.get("usage") if isinstance(answer.get("usage"), dict) else {}
        self.read += _whole(usage.get("prompt_tokens"))
        self.generated += _whole(usage.get("completion_tokens"))
        return choices, usage

    def _completion(self, choice: Mapping[str, Any]) -> Completion:
        text = choice.get("text")
        steps = _generated(choice)
        self._note(steps)
        prompt, answer = _ids(choice.get("prompt_token_ids")), _ids(choice.get("token_ids"))
        ids = (prompt, answer) if prompt is not None and answer is not None else None
        return Completion(text if isinstance(text, str) else "", tuple(steps), ids)

    def _note(self, steps: Sequence[Step]) -> None:
        if self.way == "prompt_logprobs":
            seen = (int(token) for step in steps for token in (step.token, *step.top) if token.isdecimal())
            self.highest = max(self.highest, *seen, 0)

    # -- finding the way ----------------------------------------------------------------------------------------------

    def find_way(self, prompt: str) -> None:
        """Set ``way``, ``top`` and ``has_logprobs`` to the most that the server grants, by asking about *prompt*."""
        for self.way in ("prompt_logprobs", "echo"):
            for self.top in TOP:
                try:
                    self.score(prompt)
                    return
                except Refused as refused:
                    self._unless_hopeless(refused)
                    self.why_not = self.why_not or f"HTTP {refused.status}: {refused.words}"
                    if not re.search("logprobs", refused.words):
                        break
                except ProbeError as error:
                    if error.said.code != "protocol":
                        raise
                    break
        self.way = "completions"
        for self.has_logprobs, self.top in ((True, 5), (True, 1), (False, 0)):
            try:
                self.has_logprobs = bool(self.complete(prompt, 1, "").steps)
                return
            except Refused as refused:
                self._unless_hopeless(refused)
                last = refused
        raise last

    def _unless_hopeless(self, refused: Refused) -> None:
        """Raises where no other way of asking can help."""
        if refused.status in (404, 405):
            missing = "model" in refused.words.lower() and self.served.model in refused.words
            if missing:
                raise refused
            raise ProbeError("no-completions", url=f"{self.client.url}/v1/completions", words=refused.words)


# -- who is there -----------------------------------------------------------------------------------------------------


def connect(client: Client, model: str | None, wait: float) -> Server:
    """The server with the model to ask. Raises ProbeError: nobody there, no such model, several models and none named."""
    try:
        answer = client.get_when_ready("/v1/models", wait)
    except Refused as refused:
        if refused.status not in (404, 405):
            raise
        if model is None:
            raise ProbeError("no-models", url=f"{client.url}/v1/models", words=refused.words) from None
        answer = {"data": [{"id": model}]}
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ProbeError("protocol", url=f"{client.url}/v1/models", words='no list "data"')
    cards = [card for card in listed if isinstance(card, dict) and isinstance(card.get("id"), str)]
    chosen = _chosen(cards, model, client.url)
    longest = chosen.get("max_model_len")
    known = tuple(card["id"] for card in cards)
    served = Served(chosen["id"], known, _version(client), longest if isinstance(longest, int) else None)
    return Server(client, served)


def _chosen(cards: Sequence[Mapping[str, Any]], model: str | None, url: str) -> Mapping[str, Any]:
    names = [card["id"] for card in cards]
    if not cards:
        raise ProbeError("no-model", url=url)
    if model is not None:
        if model not in names:
            near = difflib.get_close_matches(model, names, 1)
            raise ProbeError("unknown-model", url=url, model=model, known=", ".join(near or names))
        return cards[names.index(model)]
    bases = [card for card in cards if not card.get("parent")]  # adapters name their base as parent
    roots = {card.get("root") or card["id"] for card in bases}
    if len(roots) != 1:
        raise ProbeError("several-models", url=url, known=", ".join(names))
    return bases[0]


def _version(client: Client) -> str | None:
    """As vLLM tells it; other servers have no such place."""
    try:
        answer = client.get("/version")
    except ProbeError:
        return None
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, str) else None


# -- reading answers --------------------------------------------------------------------------------------------------


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(isinstance(token, int) for token in value) else None


def _number(value: Any) -> float:
    """A log-probability; what is none (``null``, a word) counts as not a number, as NaN does."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def _prompt_steps(choice: Mapping[str, Any]) -> list[Step] | None:
    """vLLM's ``prompt_logprobs``: for each position an object {token id: {logprob, rank, decoded_token}}, the first null.

    The object holds the best tokens and the prompt's own. ``prompt_token_ids`` tells which that is; without it, the
    first, where vLLM puts it.
    """
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list):
        return None
    ids = _ids(choice.get("prompt_token_ids")) or []
    own = [str(token) for token in ids] if len(ids) == len(rows) else [""] * len(rows)
    steps = []
    for row, token in zip(rows, own, strict=True):
        if isinstance(row, dict) and row:
            top = {key: _number(entry.get("logprob")) for key, entry in row.items() if isinstance(entry, dict)}
            token = token if token in row else next(iter(row))
            steps.append(Step(token, top.get(token, math.nan), top))
    return steps or None


def _echoed(choice: Mapping[str, Any], usage: Mapping[str, Any]) -> list[Step] | None:
    """The prompt's part of ``logprobs`` where ``echo`` put it before what was generated."""
    steps = _generated(choice)
    count = _whole(usage.get("prompt_tokens"))
    steps = steps[:count] if count else steps[: len(steps) - max(_whole(usage.get("completion_tokens")), 1)]
    told = steps[1:]  # nothing precedes the first
    return told if told and not all(math.isnan(step.logprob) for step in told) else None


def _generated(choice: Mapping[str, Any]) -> list[Step]:
    """``logprobs`` of the completions API (parallel lists), or as of the chat API (a list of objects)."""
    held = choice.get("logprobs")
    if not isinstance(held, dict):
        return []
    if isinstance(held.get("content"), list):
        return list(_from_content(held["content"]))
    tokens, values, tops = (held.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(tokens, list) or not isinstance(values, list):
        return []
    rows = tops if isinstance(tops, list) else []
    rows = rows + [None] * (len(tokens) - len(rows))
    return [_step(str(token), value, row) for token, value, row in zip(tokens, values, rows)]


def _from_content(content: Sequence[Any]) -> Iterator[Step]:
    for entry in content:
        if isinstance(entry, dict) and isinstance(entry.get("token"), str):
            tops = entry.get("top_logprobs")
            rows = {t["token"]: t.get("logprob") for t in tops if isinstance(t, dict)} if isinstance(tops, list) else {}
            yield _step(entry["token"], entry.get("logprob"), rows)


def _step(token: str, logprob: Any, top: Any) -> Step:
    row = {_bare(key): _number(value) for key, value in top.items()} if isinstance(top, dict) else {}
    return Step(_bare(token), _number(logprob), row)


def _bare(token: str) -> str:
    """``token_id:7``, as ``return_tokens_as_token_ids`` makes it, is the key ``7`` of ``prompt_logprobs``."""
    return token.removeprefix("token_id:")
