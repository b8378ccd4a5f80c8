"""A hundred requests as clients of mlx_lm.server send them, and what sends them."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

KEY = "sk-live/Tr0ub4dor&3+never=stored"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BEGINNINGS = (
    "Once upon a time", "One day, a little girl named Lily", "Tom had a red ball.", "The dog was sad because",
    "In the big forest lived", "Mia and her mom went to the park", "Tell me a story about a kite.",
    "What did the cat do?", "There was a boy who", "A bird sang",
)  # fmt: skip
SAMPLED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 0.9, "repetition_penalty": 1.2, "repetition_context_size": 20},
    {"temperature": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"temperature": 0.8, "top_p": 0.95, "logit_bias": {"300": 2.0, "301": -4.0}},
    {"temperature": 0.6, "stop": ["park", "\n"]},
)
WITH_LOGPROBS: tuple[dict[str, Any], ...] = (
    {}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 5},
    {"logprobs": True, "top_logprobs": 11},
)  # fmt: skip
TOOL = {
    "type": "function",
    "function": {
        "name": "open_door",
        "parameters": {"type": "object", "properties": {"password": {"type": "string"}}},
    },
}


@dataclass(frozen=True)
class Sent:
    """A request."""

    path: str
    body: dict[str, Any]

    @property
    def repeats(self) -> bool:
        """Whether the same request has the same answer whatever else the server does meanwhile."""
        return not self.body["temperature"]


def requests(count: int = 100) -> Iterator[Sent]:
    """Half of them chats, half of each streamed; half of those greedy, the others with a seed."""
    chance = random.Random(7)
    for number in range(count):
        chat, streamed, sampled = number % 2 == 0, number // 2 % 2 == 0, number // 4 % 2 == 0
        beginning = BEGINNINGS[number % len(BEGINNINGS)]
        body: dict[str, Any] = {"max_tokens": chance.randint(8, 60), "temperature": 0.0}
        if chat:
            body["messages"] = [{"role": "user", "content": beginning}]
            if number % 6 == 0:
                body["messages"].insert(0, {"role": "system", "content": "You tell short stories."})
            if number % 20 == 10:
                body["tools"] = [TOOL]
        else:
            body["prompt"] = beginning
        if streamed:
            body["stream"] = True
            if number % 3:
                body["stream_options"] = {"include_usage": True}
        body |= WITH_LOGPROBS[number // 8 % len(WITH_LOGPROBS)]
        if sampled:
            body |= SAMPLED[number // 8 % len(SAMPLED)] | {"seed": number}
        elif number % 5 == 0:
            body["stop"] = ["."]
        yield Sent(CHAT if chat else COMPLETIONS, body)


def send(port: int, sent: Sent, key: str = KEY) -> bytes:
    """The body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", sent.path, json.dumps(sent.body).encode(), headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    return body


def send_all(port: int, every: list[Sent], at_once: int = 1) -> list[bytes]:
    """The bodies of all answers, in the order of the requests."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda sent: send(port, sent), every))
