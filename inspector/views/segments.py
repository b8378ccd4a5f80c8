"""The list of segments with their costs, and folding them in the text."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult

from engine.segments import MARKUP
from inspector.display import pad, truncate
from inspector.documents.segments import call_words, checks, figure_texts, first_words, left_out
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import count, counted, percent
from inspector.state.segments import LETTERS, WRONG, PathRun, Segments, left_out_words
from inspector.widgets.actions import Action, ActionTable, back, both, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, paragraph
from inspector.widgets.charts import in_sight

NAME = 11
"""Cells of the longest name."""
PARTS = "The parts of a conversation, from the system's message to tool calls, with tokens, time and surprisal of each."
NARROW = 50
"""Cells below which a line has no time and no surprisal."""


SEGMENTS_KEYS = screen_table(
    "In the segments",
    *both(("segments.above", "segments.below"), ("Previous segment", "Next segment"),
          "Look at the first token of the previous or the next segment.",
          lambda own, by: own.go(by), hint="segment", worth=8),
    Action("segments.fold", "Fold", "Fold the segment in the text, or unfold it; copying leaves out folded segments.",
           lambda own: own.fold(), hint="fold", worth=7),
    Action("segments.wrong", "Where parsing failed",
           "Look at the token where parsing a tool call failed: the first one after this token.",
           lambda own: own.go_wrong(), hint=lambda own: "wrong token" if own.wrong else "", worth=6),
    back("segments.leave", "Go back; folded segments stay folded."),
    text="In a prompt the chat template decides which segment each token belongs to: the program fills it again with "
        "marks around every string. In a reply the marks of the model's family decide; a token that may belong to a "
        "mark is provisional, with `?` in the margin, until the next token decides. `{metric}` colours the text by "
        "segment; `{breakpoints}` makes runs stop where thinking ends or a tool call begins. The program parses tool "
        "calls as mlx_lm's server does.",
)  # fmt: skip


class SegmentsView(View):
    """A line for each segment, and the totals of each kind."""

    TOOL: ClassVar[str] = "segments"
    ACTIONS: ClassVar[ActionTable] = SEGMENTS_KEYS

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="segments-list")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        told, items = self.timeline.segments.told, self.timeline.items
        subtitle = f"{count(len(told))}, {counted(len(items), 'token')}"
        self.query_one("#segments-list", DrawnPanel).put("Segments", self._lines, subtitle)
        self.write()

    def _lines(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The lines around the selected segment, and below them tool calls that failed and sums by kind."""
        timeline, path = self.timeline, self.timeline.segments
        muted, told = on.ink("muted"), path.told
        if not path.several:
            return self.empty(on, width, height, PARTS)
        checked = checks(timeline.of(Segments), path)
        words = {begin: call_words(each, path) for begin, each in checked.items()}
        wrong = [f"{WRONG} A tool call {each[2:]}" for each in words.values() if each.startswith(WRONG)]
        below = paragraph(on.ink("bad"), width, *wrong[:2])
        for each in left_out(timeline)[:3]:
            below.append([Segment(truncate(left_out_words(each), width), on.ink("warn"))])
        for kind, figures in sorted(path.totals.items(), key=lambda each: each[0] == MARKUP):
            share = percent(figures.tokens / len(timeline.items))
            text = (
                f"  {LETTERS[kind]} {pad(kind, NAME)}{_columns(*figure_texts(figures), width)}{share} of all"
            )
            below.append([Segment(truncate(text, width), muted)])
        below = below[: max(0, height - 6)]
        room = max(1, height - 1 - len(below) - bool(below))
        chosen = max((place for place, run in enumerate(told) if run.begin <= timeline.slot), default=0)
        heads = pad("", 4 + NAME) + _columns("tokens", "time", "bits", width)
        rows: list[Row] = [[Segment(heads, muted)]]
        for place in in_sight(len(told), room, chosen):
            run = told[place]
            rows.append(self._line(on, run, place == chosen, words.get(run.begin, ""), width))
        return [*rows, *([[]] if below else []), *below]

    def _line(self, on: Canvas, run: PathRun, chosen: bool, words: str, width: int) -> Row:
        """A segment with its figures, and the result of its check or its first words."""
        assert run.kind is not None
        path = self.timeline.segments
        style = (on.ink("accent") if chosen else on.rich_style) + Style.from_meta({"slot": run.word})
        folded = path.items[run.begin].node in self.timeline.of(Segments).folded
        signs = f"{'›' if chosen else ' '}{'▸' if folded else ' '}"
        numbers = _columns(*figure_texts(path.figures([run])), width)
        begin = f"{signs}{LETTERS[run.kind]} {pad(run.kind, NAME)}{numbers}"
        room = max(0, width - len(begin))
        text = truncate(words, room) if words else first_words(path, run, room)
        return [Segment(begin, style), Segment(text, on.ink("bad") if words.startswith(WRONG) else style)]

    def situation(self) -> str:
        """The selected segment, and the keys."""
        timeline = self.timeline
        if not timeline.segments.several:
            return f"This text has one part: {key_for('prompt')} writes a prompt through the chat template"
        run = timeline.segments.at(timeline.slot)
        if run is None or run.kind is None:
            return "↑ ↓ go from segment to segment"
        place = f"token {timeline.slot - run.begin + 1:,} of {run.end - run.begin:,}"
        return f"{run.kind.capitalize()}, {place}. ↑ ↓ go to others, {key_for('segments.fold')} folds it in the text"

    # ---- keys -------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        if (slot := event.style.meta.get("slot")) is not None:
            self.look_at(slot)

    def look_at(self, slot: int) -> None:
        self.timeline.select(slot)
        self.host.changed()

    def go(self, by: int) -> None:
        """Select the first word of the next segment, or of the one before."""
        slot = self.timeline.slot
        begins = [run.word for run in self.timeline.segments.told]
        found = [begin for begin in begins if (begin > slot if by > 0 else begin < slot)]
        if found:
            self.look_at(found[0] if by > 0 else found[-1])

    def fold(self) -> None:
        """Fold the selected segment, or unfold it."""
        timeline = self.timeline
        run = timeline.segments.at(timeline.slot)
        if run is None or not run.told:
            self.say("This token is in no segment. ↑ ↓ go to one")
            return
        timeline.of(Segments).folded ^= {timeline.items[run.begin].node}
        timeline.changes += 1
        self.host.changed()

    @property
    def wrong(self) -> list[int]:
        """Slots of the path at which parsing a tool call failed, in order."""
        wrong = self.timeline.of(Segments).wrong
        return [slot for slot, item in enumerate(self.timeline.items) if item.node in wrong] if wrong else []

    def go_wrong(self) -> None:
        """Select the next token at which parsing a tool call failed, or the first of all."""
        if wrong := self.wrong:
            self.look_at(next((slot for slot in wrong if slot > self.timeline.slot), wrong[0]))
        else:
            self.say("No tool call here failed to parse")


def _columns(tokens: str, time: str, bits: str, width: int) -> str:
    return f"{tokens:>8}" + (f"{time:>9}{bits:>6}" if width >= NARROW else "") + "  "
