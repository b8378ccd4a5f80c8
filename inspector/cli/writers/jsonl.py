"""Records as JSON objects, one a line: strict JSON in ASCII, so that any parser reads it and no terminal obeys it.

Numbers that are none (a logprob of minus infinity, a rate of cold starts alone) are null; bytes are hexadecimal.
`echo_ms` is the older name of `prompt_logprobs_ms`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from engine import protocol
from inspector.cli.arguments import Request
from inspector.cli.summary import Summary
from inspector.state.conditions import draft, requested
from inspector.state.speculation import verdict

Json = dict[str, Any]
_LONG = ("special", "chat_template")
"""Facts that the screen shows and that would be tens of kilobytes in a line."""


class JsonLines:
    """Writes the events of a generation: `model`, `prefill`, `first_token`, `prompt`, `step`, `round`, `end`.

    `first_token` is written as soon as the token is drawn; its `step` follows with what its own forward gave. `prompt`
    comes between them, once its logprobs are read.

    Args:
        out: Where to; flushed after each line.
        request: Its settings and notes are part of the `model` event.
    """

    def __init__(self, out: TextIO, request: Request) -> None:
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
                self._write(model(record, self._request))
            case protocol.PromptOpened():
                self._opened, self._prefilled, self._read, self._read_ms = record, None, {}, 0.0
            case protocol.PrefillChunk():
                self._write(prefill(record))
            case protocol.PromptReadings():
                self._take_readings(record)
            case protocol.Prefilled():
                self._write({"event": "first_token", **_first_token(record.next), "ttft_ms": record.ttft_ms})
                self._prefilled = record
                if not record.unread:
                    self._write_prompt()
            case protocol.Step():
                self._write(step(record))
            case protocol.DraftRound():
                self._write(draft_round(record))
            case _:
                pass

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        self._write_prompt()
        event = end(summary, self._request.settings.seed)
        rounds = {"speculation": speculation(summary)} if summary.speculation.rounds else {}
        event["made_with"] = made_with(summary, self._request)
        self._write({**event, **rounds})

    def _take_readings(self, record: protocol.PromptReadings) -> None:
        self._read |= {token.node: token for token in record.tokens}
        self._read_ms += record.ms
        if not record.left:
            self._write_prompt()

    def _write_prompt(self) -> None:
        """Write the prompt that was prefilled, with as many logprobs as were read."""
        if self._opened is not None and self._prefilled is not None:
            tokens = [self._read.get(token.node, token) for token in self._prefilled.tokens]
            self._write(prompt(self._opened, self._prefilled, tokens, self._read_ms))
        self._prefilled = None

    def _write(self, event: Json) -> None:
        self._out.write(json.dumps(event, allow_nan=False) + "\n")
        self._out.flush()


def number(value: float | None) -> float | None:
    """The value, None where it is no number that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def model(facts: protocol.ModelFacts, request: Request) -> Json:
    """What is known of the model, and the settings it runs with."""
    settings = asdict(request.settings)
    notes = [*facts.notes, *request.notes]
    known = {name: value for name, value in asdict(facts).items() if name not in _LONG}
    made = [each.short for each in requested(request.settings, request.load)]
    return {
        "event": "model", **known, "notes": notes, "seed": settings["seed"], "settings": settings, "made_with": made,
    }  # fmt: skip


def prefill(chunk: protocol.PrefillChunk) -> Json:
    """One chunk of the prompt."""
    return {
        "event": "prefill",
        "done": chunk.done,
        "total": chunk.total,
        "ms": chunk.ms,
        "cold": chunk.cold,
        "kv": kv(chunk.kv),
    }


def prompt(
    opened: protocol.PromptOpened,
    prefilled: protocol.Prefilled,
    tokens: Sequence[protocol.PromptToken],
    logprobs_ms: float,
) -> Json:
    """The whole prompt, and what the model thought of its tokens."""
    return {
        "event": "prompt",
        "text": opened.text,
        "chat": opened.chat,
        "tokens": [prompt_token(token) for token in tokens],
        "notes": list(opened.notes),
        "ttft_ms": prefilled.ttft_ms,
        "cold": prefilled.cold,
        "prompt_logprobs_ms": logprobs_ms,
        "echo_ms": logprobs_ms,
        "prompt_tps": number(prefilled.prompt_tps) or None,
        "first_token": _first_token(prefilled.next),
        "kv": kv(prefilled.kv),
        "memory": asdict(prefilled.memory),
    }


def made_with(summary: Summary, request: Request) -> list[str]:
    """What the text was made with, beside the model and its sampler."""
    drafts = dict.fromkeys(draft(each.settings.name) for each in summary.speculation.rounds)
    return [each.short for each in (*requested(request.settings, request.load), *drafts)]


def _first_token(choice: protocol.Distribution) -> Json:
    """The token that was picked after the prompt: known here, a forward before its `step`."""
    picked = next(candidate for candidate in choice.candidates if candidate.id == choice.picked)
    return {"id": picked.id, "text": picked.text, "raw": picked.raw.hex()}


def prompt_token(token: protocol.PromptToken) -> Json:
    """One token of the prompt, and what the model thought of it."""
    return {
        "node": token.node,
        "position": token.position,
        "id": token.id,
        "text": token.text,
        "raw": token.raw.hex(),
        "special": token.special,
        "logprob": number(token.logprob),
        "prob": number(token.prob),
        "rank": token.rank,
        "entropy_bits": number(token.entropy_bits),
    }


def step(record: protocol.Step) -> Json:
    """One token: how it was chosen, what it cost."""
    choice = record.choice
    return {
        "event": "step",
        "index": record.index,
        "position": record.position,
        "node": record.node,
        "parent": record.parent,
        "id": record.id,
        "text": record.text,
        "raw": record.raw.hex(),
        "pending": record.pending.hex(),
        "special": record.special,
        "origin": record.origin,
        "logprob": number(record.logprob),
        "prob": number(record.prob),
        "sampler_prob": number(record.sampler_prob),
        "rank": record.rank,
        **chosen(choice, record.surprisal_bits),
        "kv": kv(record.kv),
        "ms": asdict(record.ms),
        "memory": asdict(record.memory),
    }


def chosen(choice: protocol.Distribution, surprisal_bits: float) -> Json:
    """What a token was drawn from.

    Args:
        choice: The distribution.
        surprisal_bits: Of the token.
    """
    return {
        "entropy_bits": number(choice.entropy_bits),
        "sampler_entropy_bits": number(choice.sampler_entropy_bits),
        "surprisal_bits": number(surprisal_bits),
        "draw": choice.draw,
        "draw_from": choice.draw_from,
        "draw_to": choice.draw_to,
        "candidates": _candidates(choice.candidates),
        "others": {
            "count": choice.others,
            "prob": number(choice.others_prob),
            "sampler_prob": number(choice.others_sampler_prob),
        },
        "stages": [asdict(stage) for stage in choice.stages],
        "grammar": grammar(choice.grammar),
    }


def grammar(reading: protocol.GrammarReading | None) -> Json | None:
    """What a grammar allowed where a token was chosen."""
    if reading is None:
        return None
    return {
        "allowed": reading.allowed,
        "mass": number(reading.mass),
        "state": reading.state,
        "forced": reading.forced.hex(),
    }


def _candidates(candidates: Sequence[protocol.Candidate]) -> list[Json]:
    return [
        {
            "id": candidate.id,
            "text": candidate.text,
            "raw": candidate.raw.hex(),
            "special": candidate.special,
            "logprob": number(candidate.logprob),
            "prob": number(candidate.prob),
            "rank": candidate.rank,
            "sampler_prob": number(candidate.sampler_prob),
            "cut_by": candidate.cut_by,
        }
        for candidate in candidates
    ]


def draft_round(record: protocol.DraftRound) -> Json:
    """One round of speculative decoding, after the steps of its tokens."""
    return {
        "event": "round",
        **asdict(record),
        "drafts": [{**asdict(draft), "raw": draft.raw.hex()} for draft in record.drafts],
        "instead": {**asdict(record.instead), "raw": record.instead.raw.hex()} if record.instead else None,
    }


def speculation(summary: Summary) -> Json:
    """What the rounds came to."""
    totals = summary.speculation.totals
    return {
        **asdict(totals),
        "tokens_a_forward": totals.tokens_a_forward,
        "acceptance": totals.acceptance,
        "slower_than_plain": totals.slower,
        "saved_ms": totals.saved_ms,
        "verdict": verdict(totals),
    }


def kv(reading: protocol.KVReading) -> Json:
    """The KV cache at one moment."""
    return asdict(reading)


def end(summary: Summary, seed: int) -> Json:
    """The whole generation."""
    tpot, prefilled, memory = summary.tpot, summary.prefilled, summary.memory
    return {
        "event": "end",
        "finish_reason": summary.reason,
        "finish_detail": summary.detail,
        "text": summary.text,
        "pending": summary.pending.hex(),
        "steps": summary.steps,
        "seed": seed,
        "ttft_ms": prefilled.ttft_ms if prefilled else None,
        "first_token_ms": summary.first_token_ms,
        "tpot_ms": tpot.mean if tpot else None,
        "tpot_p50_ms": tpot.p50 if tpot else None,
        "tpot_p95_ms": tpot.p95 if tpot else None,
        "pipelined": summary.pipelined,
        "cold": prefilled.cold if prefilled else None,
        "cold_step_ms": summary.cold_ms,
        "prompt_tps": number(prefilled.prompt_tps) or None if prefilled else None,
        "generation_tps": number(tpot.tps) if tpot else None,
        "peak_bytes": memory.peak_bytes if memory else None,
    }
