"""`inspector beam`: a beam search as a table or as JSON lines, through the same run as `inspector generate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

from rich.cells import cell_len

from engine import commands, records
from engine.beam_settings import BeamSettings
from engine.commands import Command
from inspector.cli.arguments import Request
from inspector.cli.generate import Writer
from inspector.cli.jsonl import Json, JsonLines
from inspector.cli.plain import PlainText, figures
from inspector.cli.summary import Summary
from inspector.display import pad, visible
from inspector.scales import milliseconds
from inspector.tools.beams.view import endings

TABLE = "{:<8}  {:>9}  {:>9}  {:>6}  {:<{wide}}  {}\n"
FIGURES = ("model", "prompt", "first token")


def command(settings: BeamSettings) -> Command:
    """What the engine is asked for after the prompt."""
    return commands.SearchBeams(settings)


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return BeamLines(out, request) if request.jsonl else BeamReport(out, err, request)


class Found:
    """What a search came to, or where it was broken off."""

    def __init__(self) -> None:
        self.opened: records.BeamOpened | None = None
        self.step: records.BeamStep | None = None
        self.end: records.BeamEnded | None = None

    def take(self, record: records.Record) -> None:
        """Take in one record."""
        match record:
            case records.BeamOpened():
                self.opened = record
            case records.BeamStep():
                self.step = record
            case records.BeamEnded():
                self.end = record
            case _:
                pass

    @property
    def ranking(self) -> tuple[records.Hypothesis, ...]:
        """The final one, or the hypotheses that were finished when the search was broken off."""
        if self.end is not None:
            return self.end.ranking
        return self.step.finished if self.step is not None else ()

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.end.reason if self.end is not None else "cancelled"

    def is_greedy(self, each: records.Hypothesis) -> bool:
        """Whether a hypothesis is what greedy decoding says."""
        return self.end is not None and each.node == self.end.greedy.node


# ---- JSON lines -------------------------------------------------------------------------------


class BeamLines(JsonLines):
    """Writes the events of a search: `model`, `prefill`, `prompt`, `beam_step`, `beam_end`."""

    def __init__(self, out: TextIO, request: Request) -> None:
        super().__init__(out, request)
        self._found = Found()

    def take(self, record: records.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        self._found.take(record)
        if isinstance(record, records.BeamStep):
            self._write({"event": "beam_step", **asdict(record)})
        else:
            super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        self._write(ending(self._found))


def ending(found: Found) -> Json:
    """The whole search."""
    opened, end = found.opened, found.end
    asked = ("width", "length_penalty", "early_stopping", "max_tokens", "note")
    ranking = [
        {"rank": rank, "greedy": found.is_greedy(each), **asdict(each)}
        for rank, each in enumerate(found.ranking, 1)
    ]
    return {
        "event": "beam_end",
        "reason": found.reason,
        "ranking": ranking,
        "greedy": asdict(end.greedy) if end else None,
        "left": [asdict(beam) for beam in end.left] if end else [],
        "steps": end.steps if end else found.step.step if found.step else 0,
        "ms": end.ms if end else None,
        **{name: getattr(opened, name) if opened else None for name in asked},
    }


# ---- the table --------------------------------------------------------------------------------


class BeamReport(PlainText):
    """Writes the final ranking, and what it took to standard error."""

    def __init__(self, out: TextIO, err: TextIO | None, request: Request) -> None:
        super().__init__(out, err, request)
        self._found = Found()

    def take(self, record: records.Record, text: str) -> None:
        """Show how far the search is."""
        self._found.take(record)
        opened = self._found.opened
        if isinstance(record, records.BeamOpened) and record.note:
            self._notes.append(record.note)
        if isinstance(record, records.BeamStep) and opened is not None:
            self._show(f"beam search {record.step}/{opened.max_tokens}")
        else:
            super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the ranking and the figures."""
        self._show("")
        self._out.write(table(self._found))
        self._out.flush()
        lines = [line for line in figures(summary, self._request) if line[0] in FIGURES]
        lines += [("beams", _cost(self._found)), *(("note", note) for note in self._notes)]
        self._say("".join(f"{name:<12}{visible(value)}\n" for name, value in lines))


def table(found: Found) -> str:
    """The ranking, best first, greedy marked in it or below it; empty where nothing is finished."""
    rows = [
        (f"{rank} greedy" if found.is_greedy(each) else str(rank), each)
        for rank, each in enumerate(found.ranking, 1)
    ]
    if found.end is not None and not any(map(found.is_greedy, found.ranking)):
        rows.append(("greedy", found.end.greedy))
    ends = endings([each for _, each in rows])
    wide = max([len("length"), *map(cell_len, ends)])
    head = TABLE.format("rank", "score", "logprob", "tokens", "ends", "text", wide=wide)
    lines = [_row(rank, each, end, wide) for (rank, each), end in zip(rows, ends, strict=True)]
    return head + "".join(lines) if rows else ""


def _row(rank: str, each: records.Hypothesis, end: str, wide: int) -> str:
    figures = f"{each.score:.4f}", f"{each.logprob:.3f}", each.length
    return TABLE.format(rank, *figures, pad(end, wide), visible(each.text), wide=wide)


def _cost(found: Found) -> str:
    """How the search went, in a line."""
    opened, end = found.opened, found.end
    if opened is None or end is None:
        return "cancelled"
    went = f"width {opened.width}, {end.steps} steps, {milliseconds(end.ms)}"
    early = "" if end.reason == "length" else ", ended with enough finished hypotheses"
    return went + early
