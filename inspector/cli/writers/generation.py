"""A generation as plain text, its figures to standard error; or as JSON lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from typing import Any, Generic, TextIO, TypeVar

from msgspec import Struct

from engine import protocol
from engine.protocol import Command, FinishReason, Record
from engine.settings import Settings
from engine.timing import Tpot
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer, run
from inspector.cli.exit import output
from inspector.cli.writers.json_lines import EndFigures, JsonLines
from inspector.display import visible
from inspector.scales import COLD, amount, milliseconds, prompt_rate, rate, size
from inspector.state.conditions import NO_CACHE, defaults_of, draft, requested, settings_words
from inspector.state.segments import PathRun, PathSegments, Segments
from inspector.state.speculation import Speculation, SpeculationTotals, verdict
from inspector.state.speculation import figures as speculation_figures

ERASE = "\r\x1b[2K"
"""Begin the terminal's line again."""
Figures = TypeVar("Figures", bound=EndFigures)


def writer(
    request: CliRequest,
    table: type[PlainText[Figures]],
    figures: Figures,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> Writer:
    """The writer that a request asks for: a table or JSON lines.

    Args:
        request: Says which.
        table: Class of the table.
        figures: Adds up the records, for both.
        out: Receives the result; None for standard output, with standard error for the rest.
        err: Receives the progress if it is a terminal, and the summary.
    """
    if out is None:
        out, err = output(), sys.stderr
    return JsonLines(out, request, figures) if request.jsonl else table(out, err, request, figures)


def report(
    request: CliRequest,
    table: type[PlainText[Figures]],
    figures: Figures,
    then: Iterable[Command] = (),
    **how: Any,
) -> int:
    """Drive the engine, and write a table or JSON lines; returns the exit status.

    Args:
        request: The model, the settings and the prompt.
        table: Class of the table.
        figures: Adds up the records.
        then: Commands after the prompt.
        how: As for `run` and `drive`.
    """
    return run(request, writer(request, table, figures), then, **how)


# ---- as text ------------------------------------------------------------------------------------


class PlainText(Generic[Figures]):
    """Streams the text and sums up. A table of a subcommand has its own `_take`, `_rest` and `_costs`.

    Args:
        out: Receives the text: unchanged in a pipe or a file, made visible on a terminal.
        err: Receives the progress if it is a terminal, and the summary.
        request: Its seed and its notes are part of the summary.
        figures: Adds up the records.
    """

    streams = False
    """True if the text of the completion is written as it comes."""
    names: Collection[str] = ("model",)
    """Figures of the summary that are written; empty for all."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, figures: Figures) -> None:
        self._out = out
        self._err = err
        self._request = request
        self._figures = figures
        self._terminal = out.isatty()
        self._progress = ""
        self._notes: list[str] = []
        self._line_open = False
        self._warned = ""

    def take(self, record: Record, text: str) -> None:
        """Write a record, or the text that it made certain."""
        self._figures.take(record)
        self._take(record)
        if self.streams:
            self._stream(text)

    def _take(self, record: Record) -> None:
        """Write what a record shows: here the progress, and in tables more."""
        match record:
            case protocol.Loading():
                self._warn(record.warning)
                self._show(loading(record))
            case protocol.DraftLoading():
                self._show(f"loading the draft: {record.done}/{record.total} {record.name}")
            case protocol.ModelFacts():
                self._notes += self._request.notes
                self._notes += (note for note in record.notes if note != self._warned)
            case protocol.PromptOpened():
                self._notes += record.notes
                self._show(f"prefill 0/{len(record.tokens)}")
            case protocol.PrefillChunk():
                self._show(f"prefill {record.done}/{record.total}")
            case protocol.DraftReady() | protocol.Prefilled():
                self._show("")

    def end(self, summary: Summary) -> None:
        """Write the rest of the text, and the figures and the notes to standard error."""
        self._show("")
        if self._line_open:
            self._stream("\n")
        self._write(self._rest())
        lines = [*self._costs(summary), *(("note", note) for note in self._notes)]
        self._say("".join(f"{name:<12}{visible(value)}\n" for name, value in lines))

    def _rest(self) -> Iterable[str]:
        """The lines that come last."""
        return ()

    def _costs(self, summary: Summary) -> list[tuple[str, str]]:
        """Figures by name, for standard error."""
        return figures(summary, self._request, self.names)

    def _write(self, lines: Iterable[str]) -> None:
        """Write lines in place of the progress."""
        if text := "".join(f"{line}\n" for line in lines):
            self._show("")
            self._out.write(text)
            self._out.flush()

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


class GeneratedText(PlainText[EndFigures]):
    """The text of one completion, and all its figures."""

    streams = True
    names = ()


def for_terminal(text: str) -> str:
    """Model text that a terminal may show: its line breaks and tabs stay, all else is made visible."""
    return "".join(part if part in ("\n", "\t") else visible(part) for part in re.split(r"([\n\t])", text))


def loading(record: protocol.Loading) -> str:
    """The progress of the loading, on one line."""
    share = f"{100 * record.done // record.total} % " if record.total else ""
    return f"loading: {record.stage} {share}{record.detail}".rstrip()


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
        tokens = f"{len(prefilled.tokens)} tokens", prompt_rate(prefilled.prompt_tps)
        lines.append(("prompt", ", ".join(filter(None, tokens))))
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
    if (latest := summary.latest) is not None:
        lines.append(("KV cache", _kv(latest.kv)))
        lines.append(("memory", f"{size(latest.memory.peak_bytes)} at its peak"))
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
    """The contents of the cache; without one, the tokens that the last pass ran and dropped."""
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


class GenerationSummary(Struct, frozen=True, tag_field="event", tag="Summary"):
    """The end of a generation, and its figures so far."""

    reason: FinishReason
    detail: str
    text: str
    """Text of the completion, without the end-of-sequence token and cut before a stop string."""
    pending: bytes
    """Bytes of a character that the last token left unfinished."""
    steps: int
    seed: int
    ttft_ms: float | None
    first_token_ms: float | None
    """Time from the encoded prompt until the first token could be written."""
    tpot: Tpot | None
    """Time per step, without a cold start."""
    pipelined: bool
    """True if steps overlapped while they were timed."""
    cold: bool | None
    """True if `ttft_ms` holds a cold start."""
    cold_step_ms: float | None
    """Time of a first step that was a cold start."""
    prompt_tps: float | None
    generation_tps: float | None
    peak_bytes: int | None
    made_with: tuple[str, ...]
    """The methods with which the text was made, beside the model and its sampler."""
    segments: tuple[PathRun, ...]
    """The segments of the completion, by its steps."""
    speculation: SpeculationTotals | None


class GenerationFigures(EndFigures):
    """Sums a generation up.

    Args:
        request: Its seed is one of the figures, and so is what else the text is made with.
    """

    def __init__(self, request: CliRequest) -> None:
        self._request = request
        self._segments, self._reply = Segments(), PathSegments(())

    def take(self, record: protocol.Record) -> None:
        """Take in a record: marks in a reply say whose its tokens are."""
        self._segments.apply(record)
        if isinstance(record, protocol.Step):
            at = self._segments.state(record.node)
            self._reply.add(at.kind if at is not None else None, 0, record, at)

    def end(self, summary: Summary) -> GenerationSummary:
        """The whole generation."""
        tpot, prefilled, rounds = summary.tpot, summary.prefilled, summary.speculation.rounds
        drafts = dict.fromkeys(draft(each.settings.name) for each in rounds)
        made = (*requested(self._request.settings, self._request.load), *drafts)
        return GenerationSummary(
            reason=summary.reason,
            detail=summary.detail,
            text=summary.completion.text,
            pending=summary.pending,
            steps=summary.steps,
            seed=self._request.settings.seed,
            ttft_ms=prefilled.ttft_ms if prefilled else None,
            first_token_ms=summary.first_token_ms,
            tpot=tpot,
            pipelined=summary.pipelined,
            cold=prefilled.cold if prefilled else None,
            cold_step_ms=summary.cold_ms,
            prompt_tps=prefilled.prompt_tps or None if prefilled else None,
            generation_tps=tpot.tps if tpot else None,
            peak_bytes=summary.latest.memory.peak_bytes if summary.latest else None,
            made_with=tuple(each.short for each in made),
            segments=tuple(self._reply.runs),
            speculation=summary.speculation.totals if rounds else None,
        )
