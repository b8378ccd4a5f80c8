"""The ranks that compute a model together: each one's part of it, and a step's time in compute and communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult

from engine import protocol
from engine.protocol import RankFacts, RanksLoaded, RanksMeasured, RankTime
from inspector.blocks.blocks import Bar, Block, Cell, Column, Facts, Table, TableRow, number
from inspector.blocks.paint import Painter
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import milliseconds, size
from inspector.session.requests import failure_words
from inspector.state.measured import Measured
from inspector.widgets.actions import Action, ActionTable, Needs, back, note, screen_table
from inspector.widgets.canvas import Canvas, PageView, Row

ALONE = "This session runs in one process. Start with --ranks 2 to compare"


# ---- the page -----------------------------------------------------------------------------------


def document(loaded: RanksLoaded | None, measured: RanksMeasured | None) -> Iterator[Block]:
    """All that is known of the ranks.

    Args:
        loaded: How the model was divided; None in a recording that has only the measurement.
        measured: The last measurement; None before there is one.
    """
    latest = measured or loaded
    assert latest is not None
    times = {time.rank: time for time in measured.times} if measured is not None else {}
    longest = max((max(time.compute_ms, time.communication_ms) for time in times.values()), default=0.0)
    columns = [Column("rank"), Column("host", priority=2), number("layers", 4), number("weights", 3), number("KV", 3),
               number("memory", 2)]  # fmt: skip
    if times:
        bars = (Column(cells=(10, 999), priority=priority, top=longest) for priority in (1, 0))
        columns += [number("compute"), next(bars), number("communication", short="comm."), next(bars)]
    rows = [_row(rank, times.get(rank.rank), measured) for rank in latest.ranks]
    yield Table(tuple(columns), rows, whole=True)
    yield Facts(tuple(_facts(latest, measured)))


def _row(rank: RankFacts, time: RankTime | None, measured: RanksMeasured | None) -> TableRow:
    layers = f"{rank.first_layer + 1}-{rank.first_layer + rank.layers}" if rank.layers else "none"
    cells: list[Cell] = [
        str(rank.rank), visible(rank.host), layers, size(rank.weight_bytes), size(rank.kv_used_bytes) if time else "?",
        size(rank.memory_bytes) if rank.memory_bytes else "?",
    ]  # fmt: skip
    if time is not None:
        for ms in (time.compute_ms, time.communication_ms):
            cells += [milliseconds(ms), Bar(ms)]
    elif measured is not None:
        cells += ["?", "", "?", ""]
    slowest = measured is not None and measured.slowest == rank.rank and len(measured.ranks) > 1
    return TableRow(tuple(cells), "strong" if slowest else "")


def _facts(latest: RanksLoaded | RanksMeasured, measured: RanksMeasured | None) -> list[tuple[str, str]]:
    """The totals of all ranks, as names and sentences; not yet printable."""
    count, weights = len(latest.ranks), size(sum(rank.weight_bytes for rank in latest.ranks))
    divided = f"pipeline: each of {count} ranks has some layers, and hands what they computed to the next"
    if latest.sharding == "tensor":
        divided = f"tensor: each of {count} ranks has a part of every layer, and all add up what they computed in each"
    whole = "what each has whole (embedding, norms, head) counts on each"
    facts = [("divided", divided), ("weights", f"{weights} on all ranks together; {whole}")]
    if measured is None:
        return facts
    used = size(sum(rank.kv_used_bytes for rank in measured.ranks))
    allocated = size(sum(rank.kv_allocated_bytes for rank in measured.ranks))
    spread = milliseconds(measured.step_spread_ms)
    best = f"the best of {measured.rounds} (they differ by {spread})"
    step = f"{milliseconds(measured.step_ms)} undivided, {best}"
    kv = f"{used} used of {allocated} allocated on all ranks, after {measured.tokens:,} tokens"
    parts = "compute and communication, waiting included, are timed one by one"
    facts += [("KV", kv), ("a step", f"{step}; {parts}")]
    slow = next((time for time in measured.times if time.rank == measured.slowest), None)
    others = [time.compute_ms for time in measured.times if time.rank != measured.slowest]
    if slow is not None and others:
        computes, beside = milliseconds(slow.compute_ms), milliseconds(max(others))
        waits = f"rank {slow.rank} computes {computes}, the next one {beside}: the others wait for it"
        facts.append(("slowest", waits))
    return facts


# ---- the view ---------------------------------------------------------------------------------

RANKS_KEYS = screen_table(
    "While ranks are shown",
    Action("ranks.measure", "Measure", "Measure a step on all ranks, part by part; while it is measured, stop.",
           lambda own: own.measure(), Needs.ENGINE, worth=6,
           hint=lambda own: "stop" if own.job.running else "measure"),
    note("up down", "Scroll.", "scroll", 3, place=-1),
    back("ranks.leave", "Go back; a measurement stops."),
    text="All ranks run the same session; the screen shows the records of rank 0. `--ranks 2` begins so.",
)  # fmt: skip


class RanksView(View):
    """Shows each rank's part of the model, and measures a step on all ranks; the session stays as it is."""

    TOOL: ClassVar[str] = "ranks"
    ACTIONS: ClassVar[ActionTable] = RANKS_KEYS
    MEASURES: ClassVar[str] = "A step on ranks"
    STARTS = (protocol.MeasureRanks,)
    TELLING = (RanksLoaded, RanksMeasured)
    OUTDATES = (RanksMeasured, protocol.Ended, protocol.Failure)
    AUTO_FOCUS = "#ranks-view"

    def body(self) -> ComposeResult:
        yield PageView(id="ranks-view")

    @property
    def measured(self) -> Measured:
        """The measurements of the session, live or recorded."""
        return self.timeline.of(Measured)

    def refusal(self) -> str:
        """See `View.refusal`: a session of one process has no ranks."""
        if self.measured.ranks or self.measured.loaded:
            return ""
        return "No ranks were recorded up to here" if self.recorded else ALONE

    def show(self) -> None:
        latest = self.measured.ranks or self.measured.loaded
        title = f"{len(latest.ranks)} ranks" if latest is not None else ""
        self.query_one("#ranks-view", PageView).put(title, self._draw)
        self.write(" · ".join(filter(None, ("Ranks", "recorded" if self.recorded else "", self.model_name))))

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        loaded, ranks = self.measured.loaded, self.measured.ranks
        if loaded is None and ranks is None:  # another model was loaded
            return []
        return Painter(on).draw(document(loaded, ranks), width, height)

    def situation(self) -> str:
        """The state of the measurement, and the keys that matter now."""
        if self.recorded:
            return self.needs_model
        if (failure := self.job.failure) is not None:
            return failure_words(failure)
        if self.job.running:
            if (now := self.job.progress) is None:
                return "Getting ready"
            return f"A step on all ranks, round {now.done + 1} of {now.total}"
        if self.measured.loaded is None:
            return ALONE
        again = " again" if self.measured.ranks is not None else ""
        return f"Press {key_for('ranks.measure')} to measure a step on all ranks{again}"

    def measure(self) -> None:
        """Measure, or stop."""
        if self.measured.loaded is None:
            self.say(ALONE)
        elif not self.job.stop():
            self.job.start(protocol.MeasureRanks())
