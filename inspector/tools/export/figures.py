"""The figures of a recording in words: the model, the settings, and what a path came to. All of it printable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine import protocol
from engine.protocol import PromptToken, Step
from engine.settings import FIELDS, LoadSettings, Settings
from engine.timing import tpot, warm
from inspector.display import truncate, visible
from inspector.scales import COLD, amount, bits, count, milliseconds, prompt_rate, rate, size
from inspector.state.branches import ROOT
from inspector.state.conditions import draft, in_short, made_with
from inspector.state.session_tree import Item
from inspector.state.speculation import Speculation, verdict
from inspector.state.speculation import figures as speculation_figures
from inspector.state.timeline import Timeline
from inspector.tools.export.recording import Recording

Figure = tuple[str, str]
"""A name and a value."""
_TITLE = 72
"""Cells of a text's beginning, in a title."""


def heading(recording: Recording) -> str:
    """How the text begins, and what it was made with: over a picture."""
    return " · ".join(filter(None, (title(recording), in_short(recording.made))))


def title(recording: Recording) -> str:
    """How the text begins."""
    text = visible("".join(item.text for item in recording.items[:200] if not item.special)).strip(" ↵")
    short = truncate(text, _TITLE)
    return (short if short == text or " " not in short else short.rpartition(" ")[0] + " …") or "Nothing yet"


def model(recording: Recording) -> Iterator[Figure]:
    """What is known of the model and how it was loaded. Its directory is private, so it is left out."""
    facts, load = recording.timeline.facts, recording.load or LoadSettings()
    if facts is None:
        return
    yield "model", visible(facts.name)
    yield "family", f"{visible(facts.family)}, {facts.layers} layers"
    yield "parameters", amount(facts.parameters)
    yield "weights", f"{size(facts.weight_bytes)}, {visible(facts.quantization or facts.dtype)}"
    yield "vocabulary", f"{count(facts.vocabulary)} tokens"
    if facts.context_window is not None:
        yield "context window", f"{count(facts.context_window)} tokens"
    if facts.kv_bytes_per_token is not None:
        yield "KV of a token", size(facts.kv_bytes_per_token)
    if load.adapter_path:
        yield "adapter", visible(load.adapter_path.rstrip("/").rpartition("/")[2])
    if load.kv_bits is not None:
        yield "KV cache", f"{load.kv_bits} bits from token {count(load.quantized_kv_start)} on"
    if load.max_kv_size is not None:
        yield "KV cache", f"{count(load.max_kv_size)} tokens at most, the oldest go"
    if load.no_kv_cache:
        yield "KV cache", "off"
    yield "computed on", visible(facts.backend) + (f", by {load.ranks} processes" if load.ranks > 1 else "")
    for note in facts.notes:
        yield "note", visible(note)


def settings(recording: Recording) -> Iterator[Figure]:
    """The sampling settings of the path's end that differ from greedy defaults, temperature and seed always."""
    chosen, default = recording.in_force, Settings()
    if chosen is None:
        return
    for field in FIELDS:
        value = getattr(chosen, field.name)
        if field.name not in ("temp", "seed") and value == getattr(default, field.name):
            continue
        for element in value if field.kind == "texts" else (value,):
            shown = element if field.kind == "texts" else field.format(element)
            yield field.label, visible(shown) + (" (greedy)" if field.name == "temp" and not value else "")
    if chosen.grammar is not None:
        yield "grammar", visible(chosen.grammar.summary)


def totals(timeline: Timeline, items: Sequence[Item]) -> Iterator[Figure]:
    """What a path was made with, and what it came to."""
    yield from (each.figure for each in made_with(timeline.tree, items))
    steps = [item for item in items if isinstance(item, Step)]
    yield "prompt", _prompt(timeline, len(items) - len(steps))
    yield from _worth("prompt ", [item for item in items if isinstance(item, PromptToken)])
    yield "completion", f"{count(len(steps))} token{'s' * (len(steps) != 1)}"
    if (finish := finished(timeline, items)) is not None:
        yield "finished", finish
    yield from _worth("", steps)
    if (prefilled := timeline.prompts.prefilled) is not None:
        yield "first token", milliseconds(prefilled.ttft_ms) + (f", {COLD}" if prefilled.cold else "")
    if (times := tpot(warm(step.ms for step in steps))) is not None:
        spread = f"p50 {milliseconds(times.p50)}, p95 {milliseconds(times.p95)}"
        overlap = ", pipelined" if any(step.ms.pipelined for step in steps) else ""
        cold = next((step.ms.total for step in steps if step.ms.cold), None)
        first = f"; without the first, {milliseconds(cold)}, {COLD}" if cold else ""
        yield "each token", f"{milliseconds(times.mean)} ({spread}), {rate(times.tps)}{overlap}{first}"
    yield from _speculation(timeline, items)
    if steps:
        yield "KV cache", kv(steps[-1].kv)
        yield "memory", f"{size(max(step.memory.peak_bytes for step in steps))} at its peak"


def _speculation(timeline: Timeline, items: Sequence[Item]) -> Iterator[Figure]:
    """What rounds of speculative decoding came to, on the path that has their end."""
    rounds = timeline.of(Speculation).rounds
    if not rounds or all(item.node != rounds[-1].end for item in items):
        return
    last, totals = rounds[-1], timeline.of(Speculation).totals
    yield (
        "speculation",
        f"{draft(last.settings.name).short}, {last.settings.num_draft_tokens} tokens a round",
    )
    yield from speculation_figures(totals)
    if told := verdict(totals):
        yield "speed", told


def _prompt(timeline: Timeline, tokens: int) -> str:
    text, prefilled = f"{count(tokens)} token{'s' * (tokens != 1)}", timeline.prompts.prefilled
    return text if prefilled is None else f"{text}, {prompt_rate(prefilled.prompt_tps)}"


def finished(timeline: Timeline, items: Sequence[Item]) -> str | None:
    """Why a path ended, None where it did not."""
    finish = timeline.finished.get(items[-1].node if items else ROOT)
    if finish is None:
        return None
    return finish.reason + (f": {visible(finish.detail)}" if finish.detail else "")


def _worth(what: str, items: Sequence[Item]) -> Iterator[Figure]:
    logprobs = [item.logprob for item in items if item.logprob is not None]
    known = [logprob for logprob in logprobs if math.isfinite(logprob)]
    if not known:
        return
    mean = sum(known) / len(known)
    yield f"{what}perplexity", f"{math.exp(min(700.0, -mean)):.2f}"
    barred = len(logprobs) - len(known)
    without = f" ({barred} of no probability left out)" if barred else ""
    yield f"{what}surprisal", f"{bits(-mean / math.log(2))} bits a token{without}"


def kv(reading: protocol.KVReading) -> str:
    """What the cache holds; without one, what the last pass ran and dropped."""
    if reading.passed_tokens:
        return f"off: the last pass ran {count(reading.passed_tokens)} tokens"
    return f"{count(reading.offset)} tokens, {size(reading.used_bytes)} of {size(reading.allocated_bytes)}"


def source(recording: Recording) -> str:
    """What recorded it, and when; empty where that isn't known."""
    when = recording.created.partition("T")
    day = f"{when[0]} {when[2][:5]} UTC" if when[2] else when[0]
    return " · ".join(visible(part) for part in (recording.program, day) if part)
