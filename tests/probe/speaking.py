"""An OpenAI-compatible server in this process, with a language model of a few lines, that can be wrong in many ways.

The model knows which token follows which in the probe's own texts, and repeats what it has read before: enough to be sane
by the probe's measures. It speaks the protocol as vLLM does (``prompt_logprobs``), as others do (``echo``), or less.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ascend_hotfix.probe.corpus import CONTINUATIONS, TEXTS

SIZE = 3000  # tokens of the vocabulary
TOKEN = re.compile(r"\s?[A-Za-z0-9]+|\s?[^\sA-Za-z0-9]|\s")
UNUSED = re.compile(r" word(\d+)")  # how a token without a text of its own is written


class Model:
    """Next-token distributions. ``knows``: languages it has learnt. ``temper``: another sharpness (a slightly other model)."""

    def __init__(self, knows: Sequence[str] = ("en", "zh"), temper: float = 1.0, attends: bool = True) -> None:
        self.knows, self.temper, self.attends = knows, temper, attends
        self.words: dict[int, str] = {}

    @cached_property
    def ids(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for text in self._lessons(("en", "zh")) + [each.control() for each in TEXTS]:
            for token in TOKEN.findall(text):
                self._learn(token, found)
        return found

    @cached_property
    def follows(self) -> dict[tuple[int, int], int]:
        """What comes after two tokens."""
        found: dict[tuple[int, int], int] = {}
        for text in self._lessons(self.knows):
            ids = self.encode(text)
            found.update({(a, b): c for a, b, c in zip(ids, ids[1:], ids[2:])})
        return found

    def _lessons(self, languages: Sequence[str]) -> list[str]:
        texts = [each.content for each in TEXTS if each.language in languages]
        prompts = [each for each in CONTINUATIONS if each.prompt.isascii() or "zh" in languages]
        return [each.prompt + (" " if each.prompt.isascii() else "") + each.expected[0] for each in prompts] + texts

    def encode(self, text: str) -> list[int]:
        return [self._id(token) for token in TOKEN.findall(text)]

    def _id(self, token: str) -> int:
        unused = UNUSED.fullmatch(token)
        if unused:
            return int(unused[1])
        if token not in self.ids:
            self._learn(token, self.ids)
        return self.ids[token]

    def _learn(self, token: str, ids: dict[str, int]) -> None:
        number = ids.setdefault(token, SIZE - 1 - len(ids))
        self.words[number] = token

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words.get(number, f" word{number}") for number in ids)

    def row(self, context: Sequence[int]) -> dict[int, float]:
        """Log-probabilities by id of what may follow: what the lessons say and what stood here before; all others alike (-1)."""
        likely: dict[int, float] = {}
        last = tuple(context[-2:])
        if last in self.follows:
            likely[self.follows[last]] = 0.7
        before = [at for at in range(2, len(context)) if tuple(context[at - 2 : at]) == last] if self.attends else []
        if before:
            likely.setdefault(context[before[-1]], 0.2 if likely else 0.8)
        likely = {token: share**self.temper for token, share in likely.items()}
        rest = (1 - sum(likely.values())) / (SIZE - len(likely))
        return {**{token: math.log(share) for token, share in likely.items()}, -1: math.log(rest)}


class Guessing(Model):
    """Guesses: every token alike, up to a little noise, whatever was read."""

    def row(self, context: Sequence[int]) -> dict[int, float]:
        return {(context[-1] * 7 + 3) % SIZE: math.log(2 / SIZE), -1: math.log((1 - 2 / SIZE) / (SIZE - 1))}


class NotNumbers(Model):
    def row(self, context: Sequence[int]) -> dict[int, float]:
        return {0: math.nan, -1: math.nan}


@dataclass
class Behaviour:
    """How the server behaves. ``decoding`` and ``batched``: the model for generated tokens, and for prompts in a list."""

    model: Model = field(default_factory=Model)
    decoding: Model | None = None
    batched: Model | None = None
    way: str = "prompt_logprobs"  # or echo, generated, nothing
    strict: bool = False  # unknown fields are an error
    lists: bool = True
    most_logprobs: int = 20
    longest: int = 4096
    models: tuple[dict[str, Any], ...] = ({"id": "tiny"},)
    key: str | None = None
    delay: float = 0.0
    loading: int = 0  # so many requests are answered with 503 first
    answer: tuple[int, str, str] | None = None  # status, media type and body of every answer
    answer_path: str = "/"  # only below this path
    seen: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)


class Refuse(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any] | None) -> None:
        be = self.behaviour
        be.seen.append((self.path, body, dict(self.headers)))
        time.sleep(be.delay)
        if be.loading > 0:
            be.loading -= 1
            return self._error(503, "Loading model")
        if be.answer is not None and self.path.startswith(be.answer_path):
            return self._send(*be.answer)
        if be.key and self.headers.get("Authorization") != f"Bearer {be.key}":
            return self._error(401, f"Unauthorized: {self.headers.get('Authorization')}")
        if self.path == "/v1/models":
            return self._json({"object": "list", "data": list(be.models)})
        if self.path == "/v1/completions" and body is not None:
            try:
                return self._json(_complete(be, body))
            except Refuse as refusal:
                return self._error(400, str(refusal))
        return self._error(404, "Not Found")

    def _error(self, status: int, words: str) -> None:
        self._send(status, "application/json", json.dumps({"error": {"message": words, "code": status}}))

    def _json(self, content: Any) -> None:
        self._send(200, "application/json", json.dumps(content))

    def _send(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if 300 <= status < 400:
            self.send_header("Location", "http://elsewhere.invalid/")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # of one that no longer waits
            self.wfile.write(content)


VLLM_ONLY = ("prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids", "cache_salt")


def _complete(be: Behaviour, body: dict[str, Any]) -> dict[str, Any]:
    if be.strict and any(name in body for name in VLLM_ONLY):
        raise Refuse("Unrecognized request arguments supplied")
    for name in ("logprobs", "prompt_logprobs"):
        if (body.get(name) or 0) > be.most_logprobs:
            raise Refuse(f"Requested {name} of {body[name]}, which is greater than max allowed: {be.most_logprobs}")
    assert body["temperature"] == 0 and "seed" in body
    if body["model"] not in {card["id"] for card in be.models}:
        raise Refuse(f"The model `{body['model']}` does not exist.")
    prompt = body["prompt"]
    many = isinstance(prompt, list) and all(isinstance(each, str) for each in prompt)
    if many and not be.lists:
        raise Refuse("prompt: a string is expected")
    parts = [_choice(be, body, each, index, many) for index, each in enumerate(prompt if many else [prompt])]
    usage = {
        "prompt_tokens": sum(read for _, read, _ in parts),
        "completion_tokens": sum(written for *_, written in parts),
    }
    choices = [choice for choice, _, _ in parts]
    return {"choices": choices[::-1], "usage": usage}  # the order is told by index alone


def _choice(
    be: Behaviour, body: dict[str, Any], prompt: Any, index: int, many: bool
) -> tuple[dict[str, Any], int, int]:
    model = be.model
    ids = model.encode(prompt) if isinstance(prompt, str) else prompt
    if len(ids) + body["max_tokens"] > be.longest:
        raise Refuse(f"This model's maximum context length is {be.longest} tokens. However, you requested {len(ids)}")
    used = be.batched if many and be.batched is not None else be.decoding or model
    answer, context = [], list(ids)
    for _ in range(body["max_tokens"]):
        row = used.row(context)
        answer.append(max((token for token in row if token >= 0), key=row.__getitem__, default=model.encode(".")[0]))
        context.append(answer[-1])
    choice: dict[str, Any] = {"index": index, "text": model.decode(answer), "finish_reason": "length"}
    count = body.get("logprobs")
    if body.get("echo"):
        choice["text"] = model.decode(ids) + choice["text"]
    if be.way == "prompt_logprobs":
        if body.get("return_token_ids"):
            choice |= {"prompt_token_ids": ids, "token_ids": answer}
        if "prompt_logprobs" in body:
            rows = [_told(model.row(ids[:at]), ids[at], body["prompt_logprobs"]) for at in range(1, len(ids))]
            choice["prompt_logprobs"] = [None] + [
                {str(token): {"logprob": value, "decoded_token": "?"} for token, value in row.items()} for row in rows
            ]
    if count is not None and be.way != "nothing":
        echoed = body.get("echo") and be.way == "echo"
        start = 0 if echoed else len(ids)
        as_ids = be.way == "prompt_logprobs" and body.get("return_tokens_as_token_ids")
        held: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        for at in range(start, len(context)):
            name = (lambda token: f"token_id:{token}") if as_ids else (lambda token: model.decode([token]))
            row = _told((model if at < len(ids) else used).row(context[:at]), context[at], count) if at else None
            held["tokens"].append(name(context[at]))
            held["token_logprobs"].append(row and row[context[at]])
            held["top_logprobs"].append(row and {name(token): value for token, value in row.items()})
        choice["logprobs"] = held
    return choice, len(ids), len(answer)


def _told(row: dict[int, float], own: int, count: int) -> dict[int, float]:
    """The token's own log-probability first, then those of the best *count*."""
    others = (token for token in range(SIZE - 1, 0, -1) if token not in row)
    best = sorted((token for token in row if token >= 0), key=lambda token: -row[token])
    best += [next(others) for _ in range(max(count - len(best), 0))]
    return {own: row.get(own, row[-1]), **{token: row.get(token, row[-1]) for token in best[:count]}}


@contextmanager
def speaking(behaviour: Behaviour | None = None) -> Iterator[str]:
    """The URL of a server that behaves so."""
    handler = type("Handler", (_Handler,), {"behaviour": behaviour or Behaviour()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
