"""Records as JSON objects, one a line: strict JSON in ASCII, so that any parser reads it and no terminal obeys it.

`echo_ms` is the older name of `prompt_logprobs_ms`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from engine import protocol
from inspector.cli.arguments import CliRequest
from inspector.cli.summary import Summary
from inspector.state.conditions import draft, requested
from inspector.state.record_json import Json, number, pick, record_json
from inspector.state.speculation import verdict


class JsonLines:
    """Writes the events of a generation: `model`, `prefill`, `first_token`, `prompt`, `step`, `round`, `end`.

    `first_token` is written as soon as the token is drawn; its `step` follows with what its own forward gave. `prompt`
    comes between them, once its logprobs are read.

    Args:
        out: Where to; flushed after each line.
        request: Its settings and notes are part of the `model` event.
    """

    def __init__(self, out: TextIO, request: CliRequest) -> None:
        self._out = out
        self._request = request
        self._opened: protocol.PromptOpened | None = None
        self._prefilled: protocol.Prefilled | None = None
        """The end of a prompt that isn't written yet."""
        self._read: dict[int, protocol.PromptToken] = {}
        """By node, the prompt's tokens with their logprobs."""
        self._read_ms = 0.0

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        match record:
            case protocol.ModelFacts():
                self._write("model", model(record, self._request))
            case protocol.PromptOpened():
                self._opened, self._prefilled, self._read, self._read_ms = record, None, {}, 0.0
            case protocol.PrefillChunk():
                self._write("prefill", pick(record, "done", "total", "ms", "cold", "kv"))
            case protocol.PromptReadings():
                self._take_readings(record)
            case protocol.Prefilled():
                self._write("first_token", first_token(record.next), pick(record, "ttft_ms"))
                self._prefilled = record
                if not record.unread:
                    self._write_prompt()
            case protocol.Step():
                self._write("step", step(record))
            case protocol.DraftRound():
                self._write("round", record_json(record))
            case _:
                pass

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        self._write_prompt()
        rounds = {"speculation": speculation(summary)} if summary.speculation.rounds else {}
        made = {"made_with": made_with(summary, self._request)}
        self._write("end", end(summary, self._request.settings.seed), made, rounds)

    def _take_readings(self, record: protocol.PromptReadings) -> None:
        self._read |= {token.node: token for token in record.tokens}
        self._read_ms += record.ms
        if not record.left:
            self._write_prompt()

    def _write_prompt(self) -> None:
        """Write the prompt that was prefilled, with as many logprobs as were read."""
        if self._opened is not None and self._prefilled is not None:
            tokens = [self._read.get(token.node, token) for token in self._prefilled.tokens]
            self._write("prompt", prompt(self._opened, self._prefilled, tokens, self._read_ms))
        self._prefilled = None

    def _write(self, event: str, *content: Json) -> None:
        """Write one event: its name, and the names and values of all its parts."""
        whole: Json = {"event": event}
        for part in content:
            whole |= part
        self._out.write(json.dumps(whole, allow_nan=False) + "\n")
        self._out.flush()


def model(facts: protocol.ModelFacts, request: CliRequest) -> Json:
    """What is known of the model, and the settings it runs with."""
    notes = {"notes": [*facts.notes, *request.notes]}
    known = record_json(
        facts, notes=notes, special={}, chat_template={}
    )  # the last two are tens of kilobytes
    made = [each.short for each in requested(request.settings, request.load)]
    settings = record_json(request.settings)
    return {**known, "seed": settings["seed"], "settings": settings, "made_with": made}


def prompt(
    opened: protocol.PromptOpened,
    prefilled: protocol.Prefilled,
    tokens: Sequence[protocol.PromptToken],
    logprobs_ms: float,
) -> Json:
    """The whole prompt, and what the model thought of its tokens."""
    return {
        **pick(opened, "text", "chat"),
        "tokens": [prompt_token(token) for token in tokens],
        **pick(opened, "notes"),
        **pick(prefilled, "ttft_ms", "cold"),
        "prompt_logprobs_ms": logprobs_ms,
        "echo_ms": logprobs_ms,
        "prompt_tps": number(prefilled.prompt_tps) or None,
        "first_token": first_token(prefilled.next),
        **pick(prefilled, "kv", "memory"),
    }


def made_with(summary: Summary, request: CliRequest) -> list[str]:
    """What the text was made with, beside the model and its sampler."""
    drafts = dict.fromkeys(draft(each.settings.name) for each in summary.speculation.rounds)
    return [each.short for each in (*requested(request.settings, request.load), *drafts)]


def first_token(choice: protocol.Distribution) -> Json:
    """The token that was picked after the prompt: known here, a forward before its `step`."""
    picked = next(candidate for candidate in choice.candidates if candidate.id == choice.picked)
    return pick(picked, "id", "text", "raw")


def prompt_token(token: protocol.PromptToken) -> Json:
    """One token of the prompt, and what the model thought of it."""
    return record_json(token, candidates={}, others_prob={})


def candidate(of: protocol.Candidate) -> Json:
    """A candidate where nothing is drawn."""
    return pick(of, "id", "text", "raw", "logprob", "rank")


def step(record: protocol.Step) -> Json:
    """One token: how it was chosen, what it cost."""
    drawn = chosen(record.choice, record.surprisal_bits)
    return record_json(record, surprisal_bits={}, choice=drawn, next={})


def chosen(choice: protocol.Distribution, surprisal_bits: float) -> Json:
    """What a token was drawn from.

    Args:
        choice: The distribution.
        surprisal_bits: Of the token.
    """
    return {
        **pick(choice, "entropy_bits", "sampler_entropy_bits"),
        "surprisal_bits": number(surprisal_bits),
        **pick(choice, "draw", "draw_from", "draw_to", "candidates"),
        "others": {
            "count": choice.others,
            "prob": number(choice.others_prob),
            "sampler_prob": number(choice.others_sampler_prob),
        },
        **pick(choice, "stages", "grammar"),
    }


def speculation(summary: Summary) -> Json:
    """What the rounds came to."""
    totals = summary.speculation.totals
    return {
        **record_json(totals),
        **pick(totals, "tokens_a_forward", "acceptance"),
        "slower_than_plain": totals.slower,
        **pick(totals, "saved_ms"),
        "verdict": verdict(totals),
    }


def end(summary: Summary, seed: int) -> Json:
    """The whole generation."""
    tpot, prefilled = summary.tpot, summary.prefilled
    return {
        "finish_reason": summary.reason,
        "finish_detail": summary.detail,
        **pick(summary, "text", "pending", "steps"),
        "seed": seed,
        **pick(prefilled, "ttft_ms"),
        **pick(summary, "first_token_ms"),
        "tpot_ms": tpot.mean if tpot else None,
        "tpot_p50_ms": tpot.p50 if tpot else None,
        "tpot_p95_ms": tpot.p95 if tpot else None,
        **pick(summary, "pipelined"),
        **pick(prefilled, "cold"),
        "cold_step_ms": summary.cold_ms,
        "prompt_tps": number(prefilled.prompt_tps) or None if prefilled else None,
        "generation_tps": number(tpot.tps) if tpot else None,
        **pick(summary.memory, "peak_bytes"),
    }
