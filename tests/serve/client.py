"""Asks a running server for log-probabilities, in the form that :mod:`reference` writes."""

from __future__ import annotations

from typing import Any

from prompts import CHAT, NEW_TOKENS, prompts

from ascend_hotfix.sim.server import Server

EXACT = {
    "model": "tiny",
    "max_tokens": NEW_TOKENS,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
}


def _row(entries: dict[str, float], size: int) -> list[float]:
    """Log-probabilities by token id, from ``token_id:7`` keys."""
    row = {int(name.removeprefix("token_id:")): value for name, value in entries.items()}
    return [row[token] for token in range(size)]


def text(server: Server, size: int) -> list[dict[str, Any]]:
    """The prompts through ``/v1/completions``, each with the log-probabilities of all ``size`` tokens."""
    found = []
    for ids in prompts():
        asked = {**EXACT, "prompt": ids, "logprobs": size, "prompt_logprobs": size, "add_special_tokens": False}
        choice = server.post("/v1/completions", asked)["choices"][0]
        prompt = [
            entry and [entry[str(token)]["logprob"] for token in range(size)] for entry in choice["prompt_logprobs"]
        ]
        steps = [_row(entry, size) for entry in choice["logprobs"]["top_logprobs"]]
        found.append({"prompt": prompt, "steps": steps, "tokens": choice["token_ids"]})
    return found


def image(server: Server, size: int, url: str) -> list[dict[str, Any]]:
    """One chat message with an image through ``/v1/chat/completions``."""
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": CHAT}]
    asked = {**EXACT, "messages": [{"role": "user", "content": content}], "logprobs": True, "top_logprobs": size}
    answer = server.post("/v1/chat/completions", asked)
    choice = answer["choices"][0]
    steps = [
        _row({top["token"]: top["logprob"] for top in entry["top_logprobs"]}, size)
        for entry in choice["logprobs"]["content"]
    ]
    return [{"prompt": [], "steps": steps, "tokens": choice["token_ids"], "prompt_tokens": answer["prompt_token_ids"]}]


def tokens(server: Server) -> list[list[int]]:
    """What greedy decoding adds to each prompt."""
    return [
        server.post("/v1/completions", {**EXACT, "prompt": ids, "add_special_tokens": False})["choices"][0]["token_ids"]
        for ids in prompts()
    ]
