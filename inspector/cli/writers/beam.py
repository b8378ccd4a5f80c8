"""A beam search as a table or as JSON lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

from rich.cells import cell_len

from engine import protocol
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.cli.writers.jsonl import Json, JsonLines
from inspector.cli.writers.plain import PlainText, figures
from inspector.display import pad, visible
from inspector.scales import milliseconds
from inspector.tools.beams.entries import endings

TABLE = "{:<8}  {:>9}  {:>9}  {:>6}  {:<{wide}}  {}\n"
FIGURES = ("model", "prompt", "first token")


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return BeamLines(out, request) if request.jsonl else BeamReport(out, err, request)


class SearchResult:
    """What a search came to, or where it was broken off."""

    def __init__(self) -> None:
        self.opened: protocol.BeamOpened | None = None
        self.step: protocol.BeamStep | None = None
        self.end: protocol.BeamEnded | None = None

    def take(self, record: protocol.Record) -> None:
        """Take in one record."""
        match record:
            case protocol.BeamOpened():
                self.opened = record
            case protocol.BeamStep():
                self.step = record
            case protocol.BeamEnded():
                self.end = record
            case _:
                pass

    @property
    def ranking(self) -> tuple[protocol.Hypothesis, ...]:
        """The final one, or the hypotheses that were finished when the search was broken off."""
        if self.end is not None:
            return self.end.ranking
        return self.step.finished if self.step is not None else ()

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.end.reason if self.end is not None else "cancelled"

    def is_greedy(self, hypothesis: protocol.Hypothesis) -> bool:
        """Whether greedy decoding comes to the same hypothesis."""
        return self.end is not None and hypothesis.node == self.end.greedy.node


# ---- JSON lines -------------------------------------------------------------------------------


class BeamLines(JsonLines):
    """Writes the events of a search: `model`, `prefill`, `prompt`, `beam_step`, `beam_end`."""

    def __init__(self, out: TextIO, request: Request) -> None:
        super().__init__(out, request)
        self._search = SearchResult()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        self._search.take(record)
        if isinstance(record, protocol.BeamStep):
            self._write({"event": "beam_step", **protocol.contents(record)})
        else:
            super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        self._write(ending(self._search))


def ending(search: SearchResult) -> Json:
    """The whole search."""
    opened, end = search.opened, search.end
    settings = ("width", "length_penalty", "early_stopping", "max_tokens", "note")
    ranking = [
        {"rank": rank, "greedy": search.is_greedy(hypothesis), **asdict(hypothesis)}
        for rank, hypothesis in enumerate(search.ranking, 1)
    ]
    return {
        "event": "beam_end",
        "reason": search.reason,
        "ranking": ranking,
        "greedy": asdict(end.greedy) if end else None,
        "left": [asdict(beam) for beam in end.left] if end else [],
        "steps": end.steps if end else search.step.step if search.step else 0,
        "ms": end.ms if end else None,
        **{name: getattr(opened, name) if opened else None for name in settings},
    }


# ---- the table --------------------------------------------------------------------------------


class BeamReport(PlainText):
    """Writes the final ranking, and what it took to standard error."""

    def __init__(self, out: TextIO, err: TextIO | None, request: Request) -> None:
        super().__init__(out, err, request)
        self._search = SearchResult()

    def take(self, record: protocol.Record, text: str) -> None:
        """Show how far the search is."""
        self._search.take(record)
        opened = self._search.opened
        if isinstance(record, protocol.BeamOpened) and record.note:
            self._notes.append(record.note)
        if isinstance(record, protocol.BeamStep) and opened is not None:
            self._show(f"beam search {record.step}/{opened.max_tokens}")
        else:
            super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the ranking and the figures."""
        self._show("")
        self._out.write(table(self._search))
        self._out.flush()
        self._sum_up([*figures(summary, self._request, FIGURES), ("beams", _cost(self._search))])


def table(search: SearchResult) -> str:
    """The ranking, best first, greedy marked in it or below it; empty where nothing is finished."""
    rows = [
        (f"{rank} greedy" if search.is_greedy(hypothesis) else str(rank), hypothesis)
        for rank, hypothesis in enumerate(search.ranking, 1)
    ]
    if search.end is not None and not any(map(search.is_greedy, search.ranking)):
        rows.append(("greedy", search.end.greedy))
    ends = endings([hypothesis for _, hypothesis in rows])
    wide = max([len("length"), *map(cell_len, ends)])
    head = TABLE.format("rank", "score", "logprob", "tokens", "ends", "text", wide=wide)
    lines = [_row(rank, hypothesis, end, wide) for (rank, hypothesis), end in zip(rows, ends, strict=True)]
    return head + "".join(lines) if rows else ""


def _row(rank: str, hypothesis: protocol.Hypothesis, end: str, wide: int) -> str:
    numbers = f"{hypothesis.score:.4f}", f"{hypothesis.logprob:.3f}", hypothesis.length
    return TABLE.format(rank, *numbers, pad(end, wide), visible(hypothesis.text), wide=wide)


def _cost(search: SearchResult) -> str:
    """How the search went, in a line."""
    opened, end = search.opened, search.end
    if opened is None or end is None:
        return "cancelled"
    went = f"width {opened.width}, {end.steps} steps, {milliseconds(end.ms)}"
    early = "" if end.reason == "length" else ", ended with enough finished hypotheses"
    return went + early
