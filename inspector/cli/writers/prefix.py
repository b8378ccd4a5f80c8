"""Where two requests stop sharing a prefix, as lines or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TextIO

from engine.frozen import frozen
from engine.protocol import Prefilled, Record, Tokenized
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.cli.inputs import Chat
from inspector.cli.writers.generation import PlainText
from inspector.display import visible
from inspector.scales import count, milliseconds
from inspector.state.prefixes import SENTENCES, Parting, SentPrompt, parting_of
from inspector.state.record_json import record_json

_BEFORE, _AFTER = 40, 40
"""Characters of the text that are told before and after the place."""


@frozen
class SecondRead:
    """How long the second prompt took behind the first."""

    ran: int
    """Tokens that were computed."""
    ms: float
    lost_ms: float
    """The part for tokens that the cache of the first had and lost, by their number."""


class PrefixWriter(PlainText):
    """Writes where two requests part, once both are cut.

    Args:
        chats: Both.
        out: Receives it.
        err: Receives the progress.
        request: Whether as JSON.
    """

    def __init__(self, chats: list[Chat], out: TextIO, err: TextIO | None, request: CliRequest) -> None:
        super().__init__(out, err, request)
        self._chats = chats
        self._requests: list[SentPrompt] = []
        self._read: list[Prefilled] = []

    def take(self, record: Record, text: str) -> None:
        """Take in a prompt that was cut, or read."""
        super().take(record, "")
        if isinstance(record, Tokenized):
            chat = self._chats[len(self._requests)]
            self._requests.append(SentPrompt(chat.messages, chat.options, record.pieces, record.answer))
        elif isinstance(record, Prefilled):
            self._read.append(record)

    def end(self, summary: Summary) -> None:
        """Write what both came to."""
        self._show("")
        if len(self._requests) < len(self._chats):
            return
        found = parting_of(*self._requests)
        timed = _timed(found, self._read[1]) if len(self._read) > 1 else None
        if self._request.jsonl:
            event = _event(found) | ({} if timed is None else record_json(timed))
            self._out.write(json.dumps(event, ensure_ascii=True, allow_nan=False) + "\n")
        else:
            self._out.write("".join(f"{line}\n" for line in _lines(found, self._requests, timed)))
        self._out.flush()


def _timed(found: Parting, read: Prefilled) -> SecondRead:
    ran = len(read.tokens) - read.kept - read.restored
    return SecondRead(ran, read.ttft_ms, read.ttft_ms * min(found.lost, found.anew) / ran)


def _event(found: Parting) -> dict[str, object]:
    return {
        "event": "prefix",
        "shared": found.shared,
        "lost": found.lost,
        "anew": found.anew,
        "cause": found.cause,
        "message": found.message,
        "before": found.before[-_BEFORE:],
        "first": found.one[:_AFTER],
        "second": found.other[:_AFTER],
    }


def _lines(found: Parting, requests: list[SentPrompt], timed: SecondRead | None) -> Iterator[str]:
    one, other = (len(each.pieces) for each in requests)
    answer = " with its answer" if requests[0].answer else ""
    yield f"tokens   {one:,} in A{answer}, {other:,} in B, {found.shared:,} in common"
    yield f"cost     B computes {found.anew:,} anew; it can't use {found.lost:,} of A's cached tokens"
    if timed is not None:
        lost = f", of which the lost ones about {milliseconds(timed.lost_ms)}" if found.lost else ""
        yield f"time     {count(timed.ran)} tokens of B after A's prompt took {milliseconds(timed.ms)}{lost}"
    if found.cause is None:
        same = f"{'A' if one < other else 'B'} is the beginning of the other"
        same = "A and B are the same prompt" if one == other else same
        yield f"part     nowhere: {same}"
        return
    yield f"part     at token {found.shared + 1:,}, after …{visible(found.before[-_BEFORE:])}"
    yield f"A        {visible(found.one[:_AFTER])}"
    yield f"B        {visible(found.other[:_AFTER])}"
    yield f"cause    {found.cause}: {SENTENCES[found.cause]}"
    if found.message is None:
        yield "request  the messages that both have are equal: the template or the encoding makes the difference"
    else:
        role = visible(requests[1].messages[found.message].role)
        yield f"request  message {found.message + 1} ({role}) differs in B"
