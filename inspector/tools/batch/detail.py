"""The rows of one lane's panel, and of what all lanes came to."""

from __future__ import annotations

from rich.segment import Segment
from textual.content import Content

from engine.protocol import Candidate, Distribution
from inspector.display import pad, quoted, token_label, truncate, visible
from inspector.scales import milliseconds, percent, size
from inspector.state.batch import BatchSoFar, LaneSoFar
from inspector.tools.batch.words import compared_words, difference_words, ending, totals_words
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.fact_table import fact_rows
from inspector.widgets.inks import panel_css

LABEL = 14
"""Cells of a candidate's text; half of them where there is little room."""
FIGURES = 21
"""Cells of a candidate's probabilities, and of its mark."""


class LaneDetail(Canvas):
    """One lane: what its next token is drawn from, what it holds, and how it compares with its prompt alone."""

    DEFAULT_CSS = panel_css("LaneDetail")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lane: LaneSoFar | None = None

    def put(self, lane: LaneSoFar | None) -> None:
        """Show a lane; None for none."""
        self.lane = lane
        self.title(Content(f"Lane {lane.number} · {ending(lane)}" if lane is not None else "Lane"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        lane = self.lane
        if lane is None:
            return centred(
                [("Each lane has candidates and a draw of its own.", self.ink("muted"))], width, height
            )
        rows = self._choice(lane, width)
        facts = []
        if lane.opened.ids:
            facts.append(
                ("settings", visible(", ".join((f"seed {lane.opened.seed}", *lane.opened.settings))))
            )
            facts.append(("prompt", f"{len(lane.opened.ids)} tokens, {lane.padding} of padding"))
        if lane.kv is not None:
            facts.append(("KV", f"{size(lane.kv.used_bytes)}, {size(lane.kv.padding_bytes)} of padding"))
        if lane.started is not None:
            last = f", last after {milliseconds(lane.ended.ms)}" if lane.ended else ""
            facts.append(("tokens", f"{len(lane.tokens)}, first after {milliseconds(lane.started.ms)}{last}"))
        if lane.compared is not None:
            facts.append(("alone", difference_words(lane.compared)))
        return [*rows, *fact_rows(facts, width, self.ink("muted"), self.rich_style)][:height]

    def _choice(self, lane: LaneSoFar, width: int) -> list[Row]:
        """The candidates of the next token, or of the last one where there is none."""
        choice = lane.next or (lane.choice(len(lane.tokens) - 1) if lane.tokens else None)
        if choice is None:
            return []
        what = "next token" if lane.next else "last token"
        drawn = "greedy" if choice.draw is None else f"draw {choice.draw:.3f}"
        head = f"{what}: {quoted(token_label(_picked(choice)))}, {drawn}, {choice.entropy_bits:.2f} bits"
        return [
            [Segment(truncate(head, width), self.ink("muted"))],
            *(self._candidate(each, choice, width) for each in choice.candidates),
        ]

    def _candidate(self, each: Candidate, choice: Distribution, width: int) -> Row:
        picked = each.id == choice.picked
        wide = LABEL if width >= 2 * LABEL + FIGURES else LABEL // 2
        label, room = pad(token_label(each.text, each.raw), wide), max(0, width - wide - FIGURES)
        figures = f"{percent(each.prob):>9}{percent(each.sampler_prob) if each.cut_by is None else 'cut':>9}"
        ink = "strong" if picked else "" if each.cut_by is None else "faint"
        return [
            Segment("▶ " if picked else "  ", self.ink("accent")),
            Segment(label, self.ink(ink) if ink else self.rich_style),
            Segment(pad(bar(each.prob, room), room), self.data(each.prob)),
            Segment(figures, self.ink("muted")),
        ]


def _picked(choice: Distribution) -> str:
    return next((each.text for each in choice.candidates if each.id == choice.picked), "")


class BatchFigures(Canvas):
    """What all lanes came to: row-steps, time, and all at once against one after another."""

    DEFAULT_CSS = panel_css("BatchFigures")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown_batch: BatchSoFar | None = None

    def put(self, batch: BatchSoFar | None) -> None:
        """Show a batch; None for none."""
        self.shown_batch = batch
        self.title(Content("All lanes"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.shown_batch is None:
            words = "Row-steps of tokens, of padding, and after a lane's end; all at once against one after another."
            return centred([(words, self.ink("muted"))], width, height)
        facts = [*compared_words(self.shown_batch), *totals_words(self.shown_batch)]
        if self.shown_batch.opened.note:
            facts.append(("note", self.shown_batch.opened.note))
        return fact_rows(facts, width, self.ink("muted"), self.rich_style)[:height]
