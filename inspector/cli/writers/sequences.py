"""Several sequences at once, a batch and a beam search: tables, or JSON lines."""

from __future__ import annotations

from typing import TextIO

from msgspec import Struct
from rich.cells import cell_len

from engine import protocol
from engine.protocol import LaneEnd
from inspector.blocks.paint import plain_lines
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Completion, Summary, Writer
from inspector.cli.writers.generation import PlainText, figures
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import pad, visible
from inspector.documents.draws import frequencies, tree_lines
from inspector.scales import milliseconds
from inspector.state.batch import Batches, BatchSoFar, LaneSoFar, compared_words, ending, totals_words
from inspector.tools.beams.entries import endings

LANES = "{:>3}  {:>6}  {:>7}  {:>6}  {:>9}  {:>9}  {:<{wide}}  {}\n"
HYPOTHESES = "{:<8}  {:>9}  {:>9}  {:>6}  {:<{wide}}  {}\n"


def batch_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a batch asks for."""
    if request.jsonl:
        return JsonLines(out, request, BatchEnd(request))
    return BatchTable(out, err, request)


def beam_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a beam search asks for."""
    return JsonLines(out, request) if request.jsonl else BeamReport(out, err, request)


# ---- a batch ----------------------------------------------------------------------------------


def completion(lane: LaneSoFar, request: CliRequest) -> str:
    """What a lane says, cut before a stop string."""
    made = Completion(request.settings.stop)
    made.add(lane.text)
    made.close()
    return made.text


class LaneSummary(Struct, frozen=True):
    """What a lane came to."""

    lane: int
    reason: LaneEnd
    detail: str
    text: str
    """Cut before a stop string."""
    tokens: int


class BatchSummary(Struct, frozen=True, tag_field="event"):
    """What a batch came to, or as much of it as there was."""

    complete: bool
    lanes: tuple[LaneSummary, ...]
    generation_tps: float | None
    """Of all lanes together."""


class BatchEnd:
    """Sums a batch up.

    Args:
        request: Its stop strings cut the texts.
    """

    def __init__(self, request: CliRequest) -> None:
        self._request, self._seen = request, Batches()

    def take(self, record: protocol.Record) -> None:
        """Take in a record."""
        self._seen.apply(record)

    def end(self, summary: Summary) -> BatchSummary | None:
        """All lanes, those too that were broken off; None where there was no batch."""
        if (batch := self._seen.current) is None:
            return None
        lanes = tuple(self._lane(lane) for lane in batch.lanes)
        return BatchSummary(batch.over, lanes, batch.rate)

    def _lane(self, lane: LaneSoFar) -> LaneSummary:
        reason, detail = (lane.ended.reason, lane.ended.detail) if lane.ended else ("cancelled", "")
        text = completion(lane, self._request)
        return LaneSummary(lane.number, reason, detail, text, len(lane.tokens))


class BatchTable(PlainText):
    """Writes a line a lane; for draws the frequencies of the first token, and a tree of what came."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest) -> None:
        super().__init__(out, err, request)
        self._seen = Batches()

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in one record, and show how far the batch is."""
        self._seen.apply(record)
        batch = self._seen.current
        match record:
            case protocol.BatchOpened():
                notes = (record.note, *(note for lane in record.lanes for note in lane.notes))
                self._notes += [note for note in dict.fromkeys(notes) if note]
            case protocol.LanesPrefilled():
                self._show(f"prefill of {len(record.lanes)} prompts {record.done}/{record.columns}")
            case protocol.BatchStep() if batch is not None:
                self._show(f"step {record.step}: {len(batch.live)} of {len(batch.lanes)} lanes run")
            case protocol.Measuring():
                self._show(f"{record.detail}, {record.done} of {record.total}")
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the lanes and the figures."""
        self._show("")
        batch, drawn = self._seen.current, self._seen.drawn
        if drawn is not None:
            self._out.write("\n".join(plain_lines(frequencies(drawn), 100)) + "\n")
        if batch is not None and drawn is not None:
            self._out.write("\n" + "\n".join(tree_lines(batch)) + "\n")
        elif batch is not None:
            self._out.write(lanes_table(batch, self._request))
        self._out.flush()
        lines = figures(summary, self._request, ("model", "prompt", "seed"))
        if batch is not None:
            lines += totals_words(batch)
            lines += compared_words(batch)
        self._sum_up(lines)


def lanes_table(batch: BatchSoFar, request: CliRequest) -> str:
    """A line a lane, in the order of the prompts."""
    ends = [ending(lane) if lane.ended else "cancelled" for lane in batch.lanes]
    wide = max([len("ends"), *map(cell_len, ends)])
    head = LANES.format("row", "prompt", "padding", "tokens", "first", "last", "ends", "text", wide=wide)
    rows = [
        LANES.format(
            lane.number, len(lane.opened.ids), lane.padding, len(lane.tokens),
            milliseconds(lane.started.ms) if lane.started else "", milliseconds(lane.ended.ms) if lane.ended else "",
            pad(end, wide), visible(completion(lane, request)), wide=wide,
        )
        for lane, end in zip(batch.lanes, ends, strict=True)
    ]  # fmt: skip
    return head + "".join(rows)


# ---- a beam search ----------------------------------------------------------------------------


class SearchResult:
    """The result of a search, or where it was broken off."""

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

    def is_greedy(self, hypothesis: protocol.Hypothesis) -> bool:
        """True if greedy decoding comes to the same hypothesis."""
        return self.end is not None and hypothesis.node == self.end.greedy.node


class BeamReport(PlainText):
    """Writes the final ranking, and what it took to standard error."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest) -> None:
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
        self._out.write(ranking_table(self._search))
        self._out.flush()
        self._sum_up(
            [
                *figures(summary, self._request, ("model", "prompt", "first token")),
                ("beams", _cost(self._search)),
            ]
        )


def ranking_table(search: SearchResult) -> str:
    """The ranking, best first, greedy marked in it or below it; empty where nothing is finished."""
    rows = [
        (f"{rank} greedy" if search.is_greedy(hypothesis) else str(rank), hypothesis)
        for rank, hypothesis in enumerate(search.ranking, 1)
    ]
    if search.end is not None and not any(map(search.is_greedy, search.ranking)):
        rows.append(("greedy", search.end.greedy))
    ends = endings([hypothesis for _, hypothesis in rows])
    wide = max([len("length"), *map(cell_len, ends)])
    head = HYPOTHESES.format("rank", "score", "logprob", "tokens", "ends", "text", wide=wide)
    lines = [_row(rank, hypothesis, end, wide) for (rank, hypothesis), end in zip(rows, ends, strict=True)]
    return head + "".join(lines) if rows else ""


def _row(rank: str, hypothesis: protocol.Hypothesis, end: str, wide: int) -> str:
    numbers = f"{hypothesis.score:.4f}", f"{hypothesis.logprob:.3f}", hypothesis.length
    return HYPOTHESES.format(rank, *numbers, pad(end, wide), visible(hypothesis.text), wide=wide)


def _cost(search: SearchResult) -> str:
    """How the search went, in a line."""
    opened, end = search.opened, search.end
    if opened is None or end is None:
        return "cancelled"
    went = f"width {opened.width}, {end.steps} steps, {milliseconds(end.ms)}"
    early = "" if end.reason == "length" else ", ended with enough finished hypotheses"
    return went + early
