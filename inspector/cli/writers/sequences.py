"""Several sequences at once, a batch and a beam search: tables, or JSON lines."""

from __future__ import annotations

import math
from typing import TextIO

from rich.cells import cell_len

from engine import protocol
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Completion, Summary, Writer
from inspector.cli.writers.generation import JsonLines, PlainText, chosen, figures, first_token
from inspector.display import pad, visible
from inspector.scales import milliseconds
from inspector.state.batch import Batches, BatchSoFar, LaneSoFar, compared_words, ending, totals_words
from inspector.state.record_json import Json, pick, record_json
from inspector.tools.beams.entries import endings
from inspector.tools.draws.evidence import frequency_lines, tree_lines

LANES = "{:>3}  {:>6}  {:>7}  {:>6}  {:>9}  {:>9}  {:<{wide}}  {}\n"
HYPOTHESES = "{:<8}  {:>9}  {:>9}  {:>6}  {:<{wide}}  {}\n"


def batch_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a batch asks for."""
    return BatchLines(out, request) if request.jsonl else BatchTable(out, err, request)


def beam_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a beam search asks for."""
    return BeamLines(out, request) if request.jsonl else BeamReport(out, err, request)


# ---- a batch ----------------------------------------------------------------------------------


def completion(lane: LaneSoFar, request: CliRequest) -> str:
    """What a lane says, cut before a stop string."""
    made = Completion(request.settings.stop)
    made.add(lane.text)
    made.close()
    return made.text


class BatchLines(JsonLines):
    """Writes the events of each lane with its `row`: `prompt`, `step`, `end`; beside `model`, `batch`, `batch_end`."""

    def __init__(self, out: TextIO, request: CliRequest) -> None:
        super().__init__(out, request)
        self._seen = Batches()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the events of a record, if it has any."""
        self._seen.apply(record)
        batch = self._seen.current
        match record:
            case protocol.BatchOpened():
                self._write("batch", pick(record, "size", "static", "node", "note"))
            case protocol.LanesJoined():
                self._write("join", {"rows": record.lanes}, pick(record, "padding"))
            case protocol.LanesPrefilled():
                self._write("prefill", record_json(record, lanes={"rows": record.lanes}))
            case protocol.LaneStarted() if batch is not None:
                self._write("prompt", lane_prompt(batch.lanes[record.lane], record))
            case protocol.BatchStep() if batch is not None:
                for token in record.tokens:
                    self._write("step", lane_step(batch.lanes[token.lane], token, record))
            case protocol.LaneEnded() if batch is not None:
                self._write("end", lane_end(batch.lanes[record.lane], self._request))
            case protocol.LaneCompared():
                self._write(
                    "compare", {"row": record.lane}, pick(record, "within"), record_json(record, lane={})
                )
            case protocol.DrawsCounted():
                self._write("draws", record_json(record))
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the ends of lanes that were broken off, and the last event."""
        batch = self._seen.current
        if batch is None:
            return
        for lane in batch.lanes:
            if lane.ended is None:
                self._write("end", lane_end(lane, self._request))
        self._write(
            "batch_end",
            {"reason": "finished" if batch.over else "cancelled", "lanes": len(batch.lanes)},
            record_json(batch.totals),
            {
                "generation_tps": batch.rate,
                "compared": record_json(batch.compared) if batch.compared else None,
            },
        )


def lane_prompt(lane: LaneSoFar, started: protocol.LaneStarted) -> Json:
    """A prompt that is read, with its first token."""
    return {
        "row": lane.number,
        **pick(lane.opened, "text", "ids", "seed", "reroll", "settings", "notes"),
        "padding": lane.padding,
        "ttft_ms": started.ms,
        "first_token": first_token(started.next),
        **pick(started, "kv"),
    }


def lane_step(lane: LaneSoFar, token: protocol.LaneToken, step: protocol.BatchStep) -> Json:
    """One token of a lane: how it was chosen, what it cost all of them."""
    choice = lane.choice(token.index)
    assert choice is not None
    return {
        "row": lane.number,
        "step": step.step,
        **pick(token, "index", "position", "id", "text", "raw", "special"),
        "origin": "greedy" if choice.draw is None else "sampled",
        **pick(token, "logprob", "prob", "sampler_prob", "rank"),
        **chosen(choice, max(0.0, -token.logprob / math.log(2))),
        **pick(token, "kv"),
        "ms": {"total": step.ms, "forward": step.forward_ms, "rows": step.rows},
    }


def lane_end(lane: LaneSoFar, request: CliRequest) -> Json:
    """A whole lane."""
    ended = lane.ended
    return {
        "row": lane.number,
        "finish_reason": ended.reason if ended else "cancelled",
        "finish_detail": ended.detail if ended else "",
        "text": completion(lane, request),
        "steps": len(lane.tokens),
        **pick(lane.opened, "seed", "reroll"),
        "ttft_ms": lane.started.ms if lane.started else None,
        **pick(ended, "ms"),
    }


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
            self._out.write("\n".join(frequency_lines(drawn)) + "\n")
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

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.end.reason if self.end is not None else "cancelled"

    def is_greedy(self, hypothesis: protocol.Hypothesis) -> bool:
        """True if greedy decoding comes to the same hypothesis."""
        return self.end is not None and hypothesis.node == self.end.greedy.node


class BeamLines(JsonLines):
    """Writes the events of a search: `model`, `prefill`, `prompt`, `beam_step`, `beam_end`."""

    def __init__(self, out: TextIO, request: CliRequest) -> None:
        super().__init__(out, request)
        self._search = SearchResult()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        self._search.take(record)
        if isinstance(record, protocol.BeamStep):
            self._write("beam_step", record_json(record))
        else:
            super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        search, end = self._search, self._search.end
        ranking = [
            {"rank": rank, "greedy": search.is_greedy(hypothesis), **record_json(hypothesis)}
            for rank, hypothesis in enumerate(search.ranking, 1)
        ]
        self._write(
            "beam_end",
            {"reason": search.reason, "ranking": ranking},
            pick(end, "greedy"),
            pick(end, "left") if end else {"left": []},
            {"steps": end.steps if end else search.step.step if search.step else 0},
            pick(end, "ms"),
            pick(search.opened, "width", "length_penalty", "early_stopping", "max_tokens", "note"),
        )


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
