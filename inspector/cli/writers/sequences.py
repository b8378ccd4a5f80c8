"""Tables of several sequences at once: a batch and a beam search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from engine import protocol
from engine.protocol import LaneEnd, Record
from inspector.blocks.blocks import Column, Fact, number
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Completion, Summary
from inspector.cli.exit import table
from inspector.cli.writers.generation import Report
from inspector.documents.beams import endings
from inspector.documents.draws import frequencies, tree_lines
from inspector.scales import milliseconds
from inspector.state.batch import (
    Batches,
    LaneSoFar,
    compared_words,
    drawn_tree,
    ending,
    totals_words,
)
from inspector.state.beams import BeamSearch

# ---- a batch ----------------------------------------------------------------------------------


def completion(lane: LaneSoFar, request: CliRequest) -> str:
    """The text of a lane, cut before a stop string."""
    made = Completion(request.settings.stop)
    made.add(lane.text)
    made.close()
    return made.text


class LaneSummary(Struct, frozen=True):
    """The result of a lane."""

    lane: int
    reason: LaneEnd
    detail: str
    text: str
    """The lane's text, cut before a stop string."""
    tokens: int


class BatchSummary(Struct, frozen=True, tag_field="event"):
    """The result of a batch, or of the part that ran."""

    complete: bool
    lanes: tuple[LaneSummary, ...]
    generation_tps: float | None
    """Tokens per second of all lanes together."""


class BatchReport(Report):
    """A line per lane; for draws the frequencies of the first token, and a tree of the continuations.

    Args:
        request: Its stop strings cut the texts.
    """

    names = ("model", "prompt", "seed")

    def __init__(self, request: CliRequest) -> None:
        self._state, self._request = Batches(), request

    def take(self, record: Record) -> None:
        self._state.apply(record)

    def end(self, summary: Summary) -> BatchSummary | None:
        """All lanes, including interrupted ones; None without a batch."""
        if (batch := self._state.current) is None:
            return None
        return BatchSummary(batch.over, tuple(map(self._lane, batch.lanes)), batch.rate)

    def _lane(self, lane: LaneSoFar) -> LaneSummary:
        reason, detail = (lane.ended.reason, lane.ended.detail) if lane.ended else ("cancelled", "")
        text = completion(lane, self._request)
        return LaneSummary(lane.number, reason, detail, text, len(lane.tokens))

    def progress(self, record: Record) -> str | None:
        match record:
            case protocol.LanesPrefilled():
                return f"prefill of {len(record.lanes)} prompts {record.done}/{record.columns}"
            case protocol.BatchStep() if (batch := self._state.current) is not None:
                return f"step {record.step}: {len(batch.live)} of {len(batch.lanes)} lanes run"
        return super().progress(record)

    def rest(self) -> Iterator[str]:
        """The lanes, or the draws."""
        batch, drawn = self._state.current, self._state.drawn
        if drawn is not None:
            yield from self.drawn(frequencies(drawn))
        if batch is not None and drawn is not None:
            yield from ("", *tree_lines(drawn_tree(batch.lanes)))
        elif batch is not None:
            numbers = map(number, ("row", "prompt", "padding", "tokens", "first", "last"))
            yield from table((*numbers, Column("ends"), Column("text")), map(self._row, batch.lanes))

    def _row(self, lane: LaneSoFar) -> Iterable[str]:
        times = (milliseconds(each.ms) if each else "" for each in (lane.started, lane.ended))
        counts = lane.number, len(lane.opened.ids), lane.padding, len(lane.tokens)
        end = ending(lane) if lane.ended else "cancelled"
        return (*map(str, counts), *times, end, completion(lane, self._request))

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        batch = self._state.current
        of_batch = [] if batch is None else [*totals_words(batch), *compared_words(batch)]
        return super().costs(summary, request) + of_batch


# ---- a beam search ----------------------------------------------------------------------------


class BeamReport(Report):
    """The ranking of a beam search."""

    names = ("model", "prompt", "first token")
    search: BeamSearch | None = None

    def take(self, record: Record) -> None:
        match record:
            case protocol.BeamOpened():
                self.search = BeamSearch(record)
            case protocol.BeamStep() if self.search is not None:
                self.search.steps.append(record)
            case protocol.BeamEnded() if self.search is not None:
                self.search.ended = record

    def progress(self, record: Record) -> str | None:
        if isinstance(record, protocol.BeamStep) and self.search is not None:
            return f"beam search {record.step}/{self.search.opened.max_tokens}"
        return super().progress(record)

    def rest(self) -> Iterator[str]:
        """The final ranking, or the finished hypotheses of an interrupted search, best first; greedy decoding is marked
        in the ranking, or added below it."""
        search = self.search
        if search is None:
            return
        ended, found = search.ended, search.step.finished if search.step is not None else ()
        greedy = None if ended is None else ended.greedy
        rows = [
            (f"{rank} greedy" if greedy is not None and each.node == greedy.node else str(rank), each)
            for rank, each in enumerate(found if ended is None else ended.ranking, 1)
        ]
        if greedy is not None and all(each.node != greedy.node for _, each in rows):
            rows.append(("greedy", greedy))
        cells = (
            (rank, f"{each.score:.4f}", f"{each.logprob:.3f}", str(each.length), end, each.text)
            for (rank, each), end in zip(rows, endings([each for _, each in rows]), strict=True)
        )
        columns = Column("rank"), *map(number, ("score", "logprob", "tokens")), Column("ends"), Column("text")
        yield from table(columns, cells) if rows else ()

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        search, went = self.search, "cancelled"
        if search is not None and (ended := search.ended) is not None:
            early = "" if ended.reason == "length" else ", ended with enough finished hypotheses"
            went = f"width {search.opened.width}, {ended.steps} steps, {milliseconds(ended.ms)}{early}"
        return [*super().costs(summary, request), ("beams", went)]
