"""A generation as plain text, with its figures on standard error, or as JSON lines."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TextIO

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Command, Failure, FinishReason, Record
from engine.settings import Settings
from engine.timing import Tpot
from inspector.blocks.blocks import Block, Fact
from inspector.blocks.paint import plain_lines
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer, run
from inspector.cli.exit import output
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import visible
from inspector.scales import COLD, amount, counted, milliseconds, prompt_rate, rate, size
from inspector.state.conditions import NO_CACHE, defaults_of, draft, requested, settings_words
from inspector.state.segments import PathRun, PathSegments, Segments
from inspector.state.speculation import Speculation, SpeculationTotals, verdict
from inspector.state.speculation import figures as speculation_figures

ERASE = "\r\x1b[2K"
"""Returns to the beginning of the terminal's line and erases it."""


class Report:
    """The output of a subcommand about a run; by default the progress, the model's name, and in JSON every record."""

    streams = False
    """True if the text of the completion is written as it comes."""
    names: Collection[str] = ("model",)
    """Figures of the summary that are written as text; empty for all."""
    measures = ""
    """Words before the progress of a measurement."""
    on_terminal = False
    """True if the lines of text go to a terminal."""

    @property
    def width(self) -> int:
        """Width of a line, in cells."""
        return max(40, min(120, shutil.get_terminal_size((122, 24)).columns - 2))

    def drawn(self, blocks: Iterable[Block]) -> Iterator[str]:
        """The lines of a document, with tables that fit a terminal."""
        return plain_lines(blocks, self.width, self.on_terminal)

    def take(self, record: Record) -> None:
        """Add a record, before it is written."""

    def shown(self, record: Record) -> Record | None:
        """The part of a record to write as JSON; None to write nothing."""
        return record

    def end(self, summary: Summary) -> Struct | None:
        """The last line of JSON; None to write none."""
        return None

    def early(self, record: Record) -> Fact:
        """Name and text of a message on standard error, before work that may take minutes; no message without text."""
        return "warning", record.warning if isinstance(record, protocol.Loading) else ""

    def progress(self, record: Record) -> str | None:
        """The progress of the work, on one line; empty once it is done, None if a record doesn't change it."""
        match record:
            case protocol.Loading():
                share = f"{100 * record.done // record.total} % " if record.total else ""
                return f"loading: {record.stage} {share}{record.detail}".rstrip()
            case protocol.DraftLoading():
                return f"loading the draft: {record.done}/{record.total} {record.name}"
            case protocol.PromptOpened():
                return f"prefill 0/{len(record.tokens)}"
            case protocol.PrefillChunk():
                return f"prefill {record.done}/{record.total}"
            case protocol.Measuring():
                return f"{self.measures}{record.detail}, {record.done} of {record.total}"
            case protocol.DraftReady() | protocol.Prefilled():
                return ""
        return None

    def lines(self, record: Record) -> Iterable[str]:
        """The lines of text to write for a record."""
        return ()

    def rest(self) -> Iterable[str]:
        """The lines of text to write at the end."""
        return ()

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        """Figures by name, for standard error."""
        made = _made_with(request)
        lines = figures(summary, request)
        return [line for line in lines if not self.names or line[0] in self.names or line in made]


def writer(
    request: CliRequest, report: Report, out: TextIO | None = None, err: TextIO | None = None
) -> Writer:
    """The writer of text or of JSON lines, as the request says.

    Args:
        request: Says which.
        report: Makes the content.
        out: Receives the result; None for standard output, with standard error for the rest.
        err: Receives the progress if it is a terminal, and the summary.
    """
    if out is None:
        out, err = output(), sys.stderr
    return JsonLines(out, request, report) if request.jsonl else PlainText(out, err, request, report)


def report(request: CliRequest, report: Report, then: Iterable[Command] = (), **how: Any) -> int:
    """Drive the engine, and write text or JSON lines; returns the exit status.

    Args:
        request: The model, the settings and the prompt.
        report: Makes the content.
        then: Commands after the prompt.
        how: As for `run`.
    """
    return run(
        request, writer(request, report), then, **{"told": lambda failure: _of_flag(request, failure), **how}
    )


def _of_flag(request: CliRequest, failure: Failure) -> Failure:
    """A failure of the grammar, with the grammar's flag in its message."""
    if (grammar := request.settings.grammar) is None:
        return failure
    flag = {"regex": "--regex", "json-schema": "--json-schema"}.get(grammar.kind, "--grammar")
    return replace(failure, message=failure.message.replace("The grammar can't", f"{flag} can't", 1))


# ---- as text ------------------------------------------------------------------------------------


class PlainText:
    """Writes a report as text.

    Args:
        out: Receives the text: unchanged in a pipe or a file, made visible on a terminal.
        err: Receives the progress if it is a terminal, and the summary.
        request: Its seed and its notes are part of the summary.
        report: Makes the content.
    """

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, report: Report) -> None:
        self._out = out
        self._err = err
        self._request = request
        self._report = report
        report.on_terminal = out.isatty()
        self._progress = ""
        self._notes: list[str] = []
        self._line_open = False
        self._warned = ""

    def take(self, record: Record, text: str) -> None:
        """Write a record, or the text that it made certain."""
        self._report.take(record)
        name, early = self._report.early(record)
        if early and early != self._warned:
            self._show("")
            self._say([(name, early)])
            self._warned = early
        match record:
            case protocol.ModelFacts(notes=notes):
                self._notes += [*self._request.notes, *(note for note in notes if note != self._warned)]
            case protocol.PromptOpened(notes=notes) | protocol.LockstepOpened(notes=notes):
                self._notes += notes
            case protocol.BatchOpened(note=note, lanes=lanes):
                every = (note, *(each for lane in lanes for each in lane.notes))
                self._notes += filter(None, dict.fromkeys(every))
            case protocol.BeamOpened(note=note) if note:
                self._notes.append(note)
        if (progress := self._report.progress(record)) is not None:
            self._show(progress)
        self._write(self._report.lines(record))
        if self._report.streams:
            self._stream(text)

    def end(self, summary: Summary) -> None:
        """Write the rest of the text, and the figures and the notes to standard error."""
        self._show("")
        if self._line_open:
            self._stream("\n")
        self._write(self._report.rest())
        self._say([*self._report.costs(summary, self._request), *(("note", note) for note in self._notes)])

    def _write(self, lines: Iterable[str]) -> None:
        """Write lines instead of the progress."""
        if text := "".join(f"{line}\n" for line in lines):
            self._show("")
            self._out.write(text)
            self._out.flush()

    def _stream(self, text: str) -> None:
        if text:
            self._out.write(for_terminal(text) if self._out.isatty() else text)
            self._out.flush()
            self._line_open = not text.endswith("\n")

    def _show(self, progress: str) -> None:
        """Show the progress instead of the one shown before; an empty text erases it."""
        if self._err is not None and self._err.isatty() and progress != self._progress:
            self._print((ERASE if self._progress else "") + visible(progress))
            self._progress = progress

    def _say(self, lines: Iterable[Fact]) -> None:
        self._print("".join(f"{name:<12}{visible(value)}\n" for name, value in lines))

    def _print(self, text: str) -> None:
        """Write to standard error; if that fails, standard output continues without it."""
        if self._err is None:
            return
        try:
            self._err.write(text)
            self._err.flush()
        except OSError:
            self._err = None


def for_terminal(text: str) -> str:
    """Model text for a terminal: line breaks and tabs stay, other control characters are made visible."""
    return "".join(part if part in ("\n", "\t") else visible(part) for part in re.split(r"([\n\t])", text))


def figures(summary: Summary, request: CliRequest) -> Iterator[Fact]:
    """The summary as names and values.

    Args:
        summary: Figures that the run didn't reach are left out.
        request: Its seed is one of the figures, and so are the methods that it asks for.
    """
    if summary.facts is not None:
        yield "model", _model(summary.facts)
    if (prefilled := summary.prefilled) is not None:
        tokens = counted(len(prefilled.tokens), "token"), prompt_rate(prefilled.prompt_tps)
        yield "prompt", ", ".join(filter(None, tokens))
        cold = f", {COLD}" if prefilled.cold else ""
        yield "first token", milliseconds(prefilled.ttft_ms) + cold
    first = f"{milliseconds(summary.cold_ms)}, {COLD}" if summary.cold_ms else ""
    if (tpot := summary.tpot) is not None:
        spread = f"p50 {milliseconds(tpot.p50)}, p95 {milliseconds(tpot.p95)}"
        overlap = ", pipelined" if summary.pipelined else ""
        without = f"; not counted: the first, {first}" if first else ""
        yield "each token", f"{milliseconds(tpot.mean)} ({spread}), {rate(tpot.tps)}{overlap}{without}"
    elif first:
        yield "each token", first
    yield from _made_with(request)
    if summary.speculation.rounds:
        yield from _speculation(summary.speculation)
    yield "finished", _finish(summary)
    if (latest := summary.latest) is not None:
        yield "KV cache", _kv(latest.kv)
        yield "memory", f"{size(latest.memory.peak_bytes)} at its peak"
    yield "sampling", _sampling(summary, request.settings)
    yield "seed", str(request.settings.seed)


def _made_with(request: CliRequest) -> list[Fact]:
    """The methods besides the model and its sampler; the figure of the KV cache says if there is no cache."""
    made = requested(request.settings, request.load)
    return [(each.name, each.words) for each in made if each != NO_CACHE]


def _sampling(summary: Summary, settings: Settings) -> str:
    """The settings in effect, and whose defaults they are."""
    words = ", ".join(["greedy" if settings.temp == 0 else f"T {settings.temp:g}", *settings_words(settings)])
    whose = defaults_of(summary.facts, settings) if summary.facts is not None else ""
    return f"{words} ({whose} defaults)" if whose else words


def _speculation(speculation: Speculation) -> list[Fact]:
    """Figures of the rounds, and whether they saved time."""
    totals, last = speculation.totals, speculation.rounds[-1]
    begin = f"{last.settings.name}, {last.settings.num_draft_tokens} tokens a draft"
    notes = [(name, line) for name, line in (("speed", verdict(totals)), ("why", last.note)) if line]
    return [("draft", begin), *speculation_figures(totals), *notes]


def _kv(kv: protocol.KVReading) -> str:
    """The contents of the cache; without one, the tokens that the last pass ran and dropped."""
    if kv.passed_tokens:
        return f"off: the last pass ran {kv.passed_tokens} tokens and dropped {size(kv.passed_bytes)}"
    return f"{counted(kv.offset, 'token')}, {size(kv.used_bytes)} of {size(kv.allocated_bytes)}"


def _model(facts: protocol.ModelFacts) -> str:
    held = f" (files: {facts.stored})" if facts.stored else ""
    weights = f"{amount(facts.parameters)} parameters, {facts.quantization or facts.dtype}{held}"
    blas = f", {facts.blas}" if facts.blas else ""
    return f"{facts.name}: {facts.family}, {facts.layers} layers, {weights}, {facts.backend}{blas}"


def _finish(summary: Summary) -> str:
    """Why the run ended and after how many tokens, which may be the reason itself."""
    steps = counted(summary.steps, "token")
    if not summary.detail:
        return f"{summary.reason}, {steps}"
    if summary.steered:
        return f"{summary.reason}: {summary.detail}, {summary.steps} of them new: the prompt's last one was recomputed"
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
    """True if `ttft_ms` includes a cold start."""
    cold_step_ms: float | None
    """Time of a first step that was a cold start."""
    prompt_tps: float | None
    generation_tps: float | None
    peak_bytes: int | None
    made_with: tuple[str, ...]
    """The methods with which the text was made, besides the model and its sampler."""
    segments: tuple[PathRun, ...]
    """The segments of the completion, by its steps."""
    speculation: SpeculationTotals | None


class GenerationFigures(Report):
    """The text of one completion, and all its figures.

    Args:
        request: Its seed is one of the figures, and so are the methods that it asks for.
    """

    streams = True
    names = ()

    def __init__(self, request: CliRequest) -> None:
        self._request = request
        self._segments, self._reply = Segments(), PathSegments(())

    def take(self, record: protocol.Record) -> None:
        """Add a record: the marks in a reply divide it into segments."""
        self._segments.apply(record)
        if isinstance(record, protocol.Step):
            at = self._segments.state(record.node)
            self._reply.add(at.kind if at is not None else None, 0, record, at)

    def end(self, summary: Summary) -> GenerationSummary:
        """The summary of the generation."""
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
