"""A generation as plain text, its figures to standard error; or as JSON objects, one a line.

JSON is strict and in ASCII, so that any parser reads it and no terminal obeys it. `echo_ms` is the older name of
`prompt_logprobs_ms`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import TextIO

from engine import protocol
from engine.protocol import Intervention
from engine.settings import Settings
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.display import visible
from inspector.scales import COLD, amount, milliseconds, prompt_rate, rate, size
from inspector.state.conditions import NO_CACHE, defaults_of, draft, requested, settings_words
from inspector.state.record_json import Json, number, pick, record_json
from inspector.state.segments import PathSegments, Segments
from inspector.state.speculation import Speculation, verdict
from inspector.state.speculation import figures as speculation_figures

ERASE = "\r\x1b[2K"
"""Begin the terminal's line again."""


def text_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> PlainText | JsonLines:
    """The writer that a request asks for."""
    return JsonLines(out, request) if request.jsonl else PlainText(out, err, request)


# ---- as text ------------------------------------------------------------------------------------


class PlainText:
    """Streams the text and sums up.

    Args:
        out: Receives the text: unchanged where it is a pipe or a file, made visible where it is a terminal.
        err: Receives the progress, where it is a terminal, and the summary.
        request: Its seed and its notes are part of the summary.
    """

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest) -> None:
        self._out = out
        self._err = err
        self._request = request
        self._terminal = out.isatty()
        self._progress = ""
        self._notes: list[str] = []
        self._line_open = False
        self._warned = ""

    def take(self, record: protocol.Record, text: str) -> None:
        """Write what a record made certain of the text, and how far the work is."""
        match record:
            case protocol.Loading():
                self._warn(record.warning)
                self._show(loading(record))
            case protocol.DraftLoading():
                self._show(f"loading the draft: {record.done}/{record.total} {record.name}")
            case protocol.DraftReady():
                self._show("")
            case protocol.ModelFacts():
                self._notes += self._request.notes
                self._notes += (note for note in record.notes if note != self._warned)
            case protocol.PromptOpened():
                self._notes += record.notes
                self._show(f"prefill 0/{len(record.tokens)}")
            case protocol.PrefillChunk():
                self._show(f"prefill {record.done}/{record.total}")
            case protocol.Prefilled():
                self._show("")
            case _:
                pass
        self._stream(text)

    def end(self, summary: Summary) -> None:
        """Write the rest of the text and the figures."""
        self._show("")
        if self._line_open:
            self._stream("\n")
        self._sum_up(figures(summary, self._request))

    def _sum_up(self, lines: Collection[tuple[str, str]]) -> None:
        """Write figures by name to standard error, and the notes below them."""
        lines = [*lines, *(("note", note) for note in self._notes)]
        self._say("".join(f"{name:<12}{visible(value)}\n" for name, value in lines))

    def _stream(self, text: str) -> None:
        if text:
            self._out.write(for_terminal(text) if self._terminal else text)
            self._out.flush()
            self._line_open = not text.endswith("\n")

    def _warn(self, warning: str) -> None:
        """Write a warning once, when it comes: what it is about may take minutes."""
        if warning and warning != self._warned:
            self._show("")
            self._say(f"{'warning':<12}{visible(warning)}\n")
            self._warned = warning

    def _show(self, progress: str) -> None:
        """Show how far the work is in place of what was shown before; an empty text takes it away."""
        if self._err is not None and self._err.isatty() and progress != self._progress:
            self._say((ERASE if self._progress else "") + visible(progress))
            self._progress = progress

    def _say(self, text: str) -> None:
        """Write to standard error; that it is gone must not end what goes to standard output."""
        if self._err is None:
            return
        try:
            self._err.write(text)
            self._err.flush()
        except OSError:
            self._err = None


def for_terminal(text: str) -> str:
    """Model text that a terminal may show: its line breaks and tabs stay, all else is made visible."""
    return "".join(part if part in ("\n", "\t") else visible(part) for part in re.split(r"([\n\t])", text))


def loading(record: protocol.Loading) -> str:
    """How far the loading is, on one line."""
    if not record.total:
        return f"loading: {record.stage} {record.detail}".rstrip()
    share = 100 * record.done // record.total
    return f"loading: {record.stage} {share} % {record.detail}".rstrip()


def figures(summary: Summary, request: CliRequest, only: Collection[str] = ()) -> list[tuple[str, str]]:
    """The summary as names and values.

    Args:
        summary: Where the run ended; what it never came to is left out.
        request: Its seed is one of the figures, and so is what else the text is made with.
        only: The names that are wanted, beside what the text was made with; empty for all.
    """
    lines = []
    if summary.facts is not None:
        lines.append(("model", _model(summary.facts)))
    if (prefilled := summary.prefilled) is not None:
        lines.append(("prompt", f"{len(prefilled.tokens)} tokens, {prompt_rate(prefilled.prompt_tps)}"))
        cold = f", {COLD}" if prefilled.cold else ""
        lines.append(("first token", milliseconds(prefilled.ttft_ms) + cold))
    if (tpot := summary.tpot) is None:
        lines += [("each token", f"{milliseconds(summary.cold_ms)}, {COLD}")] if summary.cold_ms else []
    else:
        spread = f"p50 {milliseconds(tpot.p50)}, p95 {milliseconds(tpot.p95)}"
        overlap = ", pipelined" if summary.pipelined else ""
        first = f"; without the first, {milliseconds(summary.cold_ms)}, {COLD}" if summary.cold_ms else ""
        lines.append(
            ("each token", f"{milliseconds(tpot.mean)} ({spread}), {rate(tpot.tps)}{overlap}{first}")
        )
    made = [(each.name, each.words) for each in requested(request.settings, request.load) if each != NO_CACHE]
    lines += made  # without a KV cache, the figure of the cache says so
    if summary.speculation.rounds:
        lines += _speculation(summary.speculation)
    lines.append(("finished", _finish(summary)))
    if (kv := summary.kv) is not None:
        lines.append(("KV cache", _kv(kv)))
    if summary.memory is not None:
        lines.append(("memory", f"{size(summary.memory.peak_bytes)} at its peak"))
    lines.append(("sampling", _sampling(summary, request.settings)))
    lines.append(("seed", str(request.settings.seed)))
    return [line for line in lines if not only or line[0] in only or line in made]


def _sampling(summary: Summary, settings: Settings) -> str:
    """The settings that are on, and whose defaults they are."""
    words = ", ".join(["greedy" if settings.temp == 0 else f"T {settings.temp:g}", *settings_words(settings)])
    whose = defaults_of(summary.facts, settings) if summary.facts is not None else ""
    return f"{words} ({whose} defaults)" if whose else words


def _speculation(speculation: Speculation) -> list[tuple[str, str]]:
    """Figures of the rounds, and whether they paid."""
    totals, last = speculation.totals, speculation.rounds[-1]
    begin = f"{last.settings.name}, {last.settings.num_draft_tokens} tokens a draft"
    notes = [(name, line) for name, line in (("speed", verdict(totals)), ("why", last.note)) if line]
    return [("draft", begin), *speculation_figures(totals), *notes]


def _kv(kv: protocol.KVReading) -> str:
    """What the cache holds; without one, what the last pass ran and dropped."""
    if kv.passed_tokens:
        return f"off: the last pass ran {kv.passed_tokens} tokens and dropped {size(kv.passed_bytes)}"
    return f"{kv.offset} tokens, {size(kv.used_bytes)} of {size(kv.allocated_bytes)}"


def _model(facts: protocol.ModelFacts) -> str:
    held = f" (files: {facts.stored})" if facts.stored else ""
    weights = f"{amount(facts.parameters)} parameters, {facts.quantization or facts.dtype}{held}"
    blas = f", {facts.blas}" if facts.blas else ""
    return f"{facts.name}: {facts.family}, {facts.layers} layers, {weights}, {facts.backend}{blas}"


def _finish(summary: Summary) -> str:
    """Why it ended and after how many tokens, which may be one and the same."""
    steps = f"{summary.steps} tokens"
    if not summary.detail:
        return f"{summary.reason}, {steps}"
    return f"{summary.reason}: {summary.detail}" + ("" if summary.detail.startswith(steps) else f", {steps}")


# ---- as JSON ------------------------------------------------------------------------------------


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
        self._segments, self._reply = Segments(), PathSegments(())

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        if isinstance(record, Segments.TAKES):
            self._segments.apply(record)
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
                self._write("step", step(record), self._segment(record))
            case protocol.DraftRound():
                self._write("round", record_json(record))
            case _:
                pass

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        self._write_prompt()
        rounds = {"speculation": speculation(summary)} if summary.speculation.rounds else {}
        made = {"made_with": made_with(summary, self._request)}
        runs = [{"kind": run.kind, "begin": run.begin, "end": run.end} for run in self._reply.runs]
        self._write("end", end(summary, self._request.settings.seed), made, {"segments": runs}, rounds)

    def _segment(self, record: protocol.Step) -> Json:
        """Whose a token is, and whether the next ones can't change that."""
        at = self._segments.state(record.node)
        self._reply.add(at.kind if at is not None else None, 0, record, at)
        return {"segment": self._reply.kinds[-1], "segment_certain": not self._reply.provisional}

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
    """The facts of the model, and the settings it runs with."""
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
        **pick(opened, "notes", "segments"),
        **pick(prefilled, "ttft_ms", "cold"),
        "prompt_logprobs_ms": logprobs_ms,
        "echo_ms": logprobs_ms,
        "prompt_tps": number(prefilled.prompt_tps) or None,
        "first_token": first_token(prefilled.next),
        **pick(prefilled, "kv", "memory"),
    }


def made_with(summary: Summary, request: CliRequest) -> list[str]:
    """The conditions of the text, beside the model and its sampler."""
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
    """The distribution from which a token was drawn.

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
    """Figures of the rounds."""
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


# ---- under steering -----------------------------------------------------------------------------


class SteeredWriter:
    """Hands everything on to another writer, and knows where the prompt ends.

    Args:
        writer: Receives the records and the summary.
        how: A direction, with its strength.
    """

    def __init__(self, writer: PlainText | JsonLines, how: Intervention) -> None:
        self._writer, self._how, self._end = writer, how, 0

    def take(self, record: protocol.Record, text: str) -> None:
        """Hand a record on."""
        if isinstance(record, protocol.PromptOpened):
            self._end = record.tokens[-1].node
        self._writer.take(record, text)

    def end(self, summary: Summary) -> None:
        """Hand the summary on."""
        self._writer.end(summary)

    def hold(self) -> protocol.Command:
        """The command that has the prompt's last token, and all after it, steered."""
        return protocol.HoldInterventions(self._end, (self._how,))
