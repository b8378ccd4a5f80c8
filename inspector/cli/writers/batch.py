"""A batch as a table or as JSON lines."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TextIO

from rich.cells import cell_len

from engine import protocol
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Completion, Summary
from inspector.cli.writers.jsonl import Json, JsonLines, chosen, number
from inspector.cli.writers.plain import PlainText, figures
from inspector.display import pad, visible
from inspector.scales import milliseconds
from inspector.state.batch import Batches, BatchSoFar, LaneSoFar
from inspector.tools.batch.words import compared_words, ending, totals_words
from inspector.tools.draws.report import frequency_lines, tree_lines

FIGURES = ("model", "prompt", "seed")
TABLE = "{:>3}  {:>6}  {:>7}  {:>6}  {:>9}  {:>9}  {:<{wide}}  {}\n"


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return BatchLines(out, request) if request.jsonl else BatchTable(out, err, request)


def completion(lane: LaneSoFar, request: Request) -> str:
    """What a lane says, cut before a stop string."""
    made = Completion(request.settings.stop)
    made.add(lane.text)
    made.close()
    return made.text


# ---- JSON lines -------------------------------------------------------------------------------


class BatchLines(JsonLines):
    """Writes the events of each lane with its `row`: `prompt`, `step`, `end`; beside `model`, `batch`, `batch_end`."""

    def __init__(self, out: TextIO, request: Request) -> None:
        super().__init__(out, request)
        self._seen = Batches()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the events of a record, if it has any."""
        self._seen.apply(record)
        batch = self._seen.last
        match record:
            case protocol.BatchOpened():
                known = protocol.contents(record)
                self._write(
                    {"event": "batch", **{key: known[key] for key in ("size", "static", "node", "note")}}
                )
            case protocol.LanesJoined():
                self._write({"event": "join", "rows": record.lanes, "padding": record.padding})
            case protocol.LanesPrefilled():
                self._write(
                    {"event": "prefill", "rows": record.lanes, **_without(protocol.contents(record), "lanes")}
                )
            case protocol.LaneStarted() if batch is not None:
                self._write(lane_prompt(batch.lanes[record.lane], record))
            case protocol.BatchStep() if batch is not None:
                for token in record.tokens:
                    self._write(lane_step(batch.lanes[token.lane], token, record))
            case protocol.LaneEnded() if batch is not None:
                self._write(lane_end(batch.lanes[record.lane], self._request))
            case protocol.LaneCompared():
                self._write({"event": "compare", "row": record.lane, "within": record.within,
                             **_without(protocol.contents(record), "lane")})  # fmt: skip
            case protocol.DrawsCounted():
                self._write({"event": "draws", **protocol.contents(record)})
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the ends of lanes that were broken off, and the last event."""
        batch = self._seen.last
        if batch is None:
            return
        for lane in batch.lanes:
            if lane.ended is None:
                self._write(lane_end(lane, self._request))
        together = protocol.contents(batch.compared) if batch.compared else None
        self._write(
            {
                "event": "batch_end",
                "reason": "finished" if batch.over else "cancelled",
                "lanes": len(batch.lanes),
                **asdict(batch.totals),
                "generation_tps": batch.rate,
                "compared": together,
            }
        )


def _without(values: Json, *names: str) -> Json:
    return {name: value for name, value in values.items() if name not in names}


def lane_prompt(lane: LaneSoFar, started: protocol.LaneStarted) -> Json:
    """A prompt that is read, with its first token."""
    picked = next(each for each in started.next.candidates if each.id == started.next.picked)
    return {
        "event": "prompt",
        "row": lane.number,
        "text": lane.opened.text,
        "ids": lane.opened.ids,
        "seed": lane.opened.seed,
        "reroll": lane.opened.reroll,
        "settings": lane.opened.settings,
        "notes": lane.opened.notes,
        "padding": lane.padding,
        "ttft_ms": started.ms,
        "first_token": {"id": picked.id, "text": picked.text, "raw": picked.raw.hex()},
        "kv": asdict(started.kv),
    }


def lane_step(lane: LaneSoFar, token: protocol.LaneToken, step: protocol.BatchStep) -> Json:
    """One token of a lane: how it was chosen, what it cost all of them."""
    choice = lane.choice(token.index)
    assert choice is not None
    return {
        "event": "step",
        "row": lane.number,
        "step": step.step,
        "index": token.index,
        "position": token.position,
        "id": token.id,
        "text": token.text,
        "raw": token.raw.hex(),
        "special": token.special,
        "origin": "greedy" if choice.draw is None else "sampled",
        "logprob": number(token.logprob),
        "prob": number(token.prob),
        "sampler_prob": number(token.sampler_prob),
        "rank": token.rank,
        **chosen(choice, max(0.0, -token.logprob / math.log(2))),
        "kv": asdict(token.kv) if token.kv else None,
        "ms": {"total": step.ms, "forward": step.forward_ms, "rows": step.rows},
    }


def lane_end(lane: LaneSoFar, request: Request) -> Json:
    """A whole lane."""
    ended = lane.ended
    return {
        "event": "end",
        "row": lane.number,
        "finish_reason": ended.reason if ended else "cancelled",
        "finish_detail": ended.detail if ended else "",
        "text": completion(lane, request),
        "steps": len(lane.tokens),
        "seed": lane.opened.seed,
        "reroll": lane.opened.reroll,
        "ttft_ms": lane.started.ms if lane.started else None,
        "ms": ended.ms if ended else None,
    }


# ---- the table --------------------------------------------------------------------------------


class BatchTable(PlainText):
    """Writes a line a lane; for draws the frequencies of the first token, and a tree of what came."""

    def __init__(self, out: TextIO, err: TextIO | None, request: Request) -> None:
        super().__init__(out, err, request)
        self._seen = Batches()

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in one record, and show how far the batch is."""
        self._seen.apply(record)
        batch = self._seen.last
        match record:
            case protocol.BatchOpened():
                notes = (record.note, *(note for lane in record.lanes for note in lane.notes))
                self._notes += [note for note in dict.fromkeys(notes) if note]
            case protocol.LanesPrefilled():
                self._show(f"prefill of {len(record.lanes)} prompts {record.done}/{record.columns}")
            case protocol.BatchStep() if batch is not None:
                self._show(f"step {record.step}: {len(batch.live)} of {len(batch.lanes)} lanes go on")
            case protocol.Measuring():
                self._show(f"{record.detail}, {record.done} of {record.total}")
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the lanes and the figures."""
        self._show("")
        batch, drawn = self._seen.last, self._seen.drawn
        if drawn is not None:
            self._out.write("\n".join(frequency_lines(drawn)) + "\n")
        if batch is not None and drawn is not None:
            self._out.write("\n" + "\n".join(tree_lines(batch)) + "\n")
        elif batch is not None:
            self._out.write(table(batch, self._request))
        self._out.flush()
        lines = figures(summary, self._request, FIGURES)
        if batch is not None:
            lines += totals_words(batch)
            lines += compared_words(batch)
        self._sum_up(lines)


def table(batch: BatchSoFar, request: Request) -> str:
    """A line a lane, in the order of the prompts."""
    ends = [ending(lane) if lane.ended else "cancelled" for lane in batch.lanes]
    wide = max([len("ends"), *map(cell_len, ends)])
    head = TABLE.format("row", "prompt", "padding", "tokens", "first", "last", "ends", "text", wide=wide)
    rows = [
        TABLE.format(
            lane.number, len(lane.opened.ids), lane.padding, len(lane.tokens),
            milliseconds(lane.started.ms) if lane.started else "", milliseconds(lane.ended.ms) if lane.ended else "",
            pad(end, wide), visible(completion(lane, request)), wide=wide,
        )
        for lane, end in zip(batch.lanes, ends, strict=True)
    ]  # fmt: skip
    return head + "".join(rows)
