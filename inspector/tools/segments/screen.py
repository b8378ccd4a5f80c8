"""The screen of segments: a line for each, beside the text, and what those of a kind come to together."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult

from engine.segments import MARKUP
from inspector.display import pad, truncate
from inspector.keys import key_for
from inspector.main.view import View
from inspector.scales import count, percent
from inspector.state.segments import LETTERS, WRONG, PathRun, Segments, left_out_words
from inspector.state.timeline import Timeline
from inspector.tools.segments.control import SEGMENTS_SCREEN
from inspector.tools.segments.evidence import (
    bits_of,
    call_words,
    checks,
    first_words,
    left_out,
    time_of,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred, wrapped

NAME = 11
"""Cells of the longest name."""
NARROW = 50
"""Cells below which a line has no time and no surprisal."""


def _numbers(tokens: str, time: str, bits: str, width: int) -> str:
    """Figures as columns."""
    return f"{tokens:>8}" + (f"{time:>9}{bits:>6}" if width >= NARROW else "") + "  "


class SegmentsScreen(View[None]):
    """Goes from segment to segment, and folds them in the text."""

    TOOL: ClassVar[str] = "segments"
    ACTIONS: ClassVar[ActionTable] = SEGMENTS_SCREEN

    def body(self) -> ComposeResult:
        yield DrawnPanel(id="segments-list")

    # ---- showing ----------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """The session's timeline."""
        return self.host.controller.timeline

    def show(self) -> None:
        """Show everything, now."""
        told, items = self.timeline.segments.told, self.timeline.items
        lines = self.query_one("#segments-list", DrawnPanel)
        lines.put("Segments", self._lines, f"{count(len(told))}, {count(len(items))} tokens")
        self.write()

    def _lines(self, on: Canvas, width: int, height: int) -> list[Row]:
        """A line for each segment, the one that is looked at in sight, and below them sums by kind."""
        timeline = self.timeline
        path = timeline.segments
        told = path.told
        if not path.several:
            texts = ("There is no conversation here, so the tokens have no segments.",
                     f"Press {key_for('prompt')} for a prompt through the chat template.")  # fmt: skip
            return centred([(text, on.ink("muted")) for text in texts], width, height)
        checked = checks(timeline.of(Segments), path)
        wrong = [words for each in checked.values() if (words := call_words(each, path)).startswith(WRONG)]
        below: list[Row] = [[Segment(line, on.ink("bad"))] for words in wrong[:2]
                            for line in wrapped(f"{words[:1]} A tool call {words[2:]}", width)]  # fmt: skip
        below += [[Segment(truncate(left_out_words(each), width), on.ink("warn"))]
                  for each in left_out(timeline)[:3]]  # fmt: skip
        below += _sums(on, timeline, width)
        below = below[: max(0, height - 6)]
        room = max(1, height - 1 - len(below) - bool(below))
        chosen = max((place for place, run in enumerate(told) if run.begin <= timeline.slot), default=0)
        top = max(0, min(chosen - room // 2, len(told) - room))
        rows: list[Row] = [
            [Segment(pad("", 4 + NAME) + _numbers("tokens", "time", "bits", width), on.ink("muted"))]
        ]
        for place, run in enumerate(told[top : top + room], top):
            words = call_words(checked.get(run.begin), path)
            rows.append(_line(on, timeline, run, place == chosen, words, width))
        return [*rows, *([[]] if below else []), *below]

    def situation(self) -> str:
        """A line on what is shown, and the keys for it."""
        timeline = self.timeline
        run = timeline.segments.at(timeline.slot)
        if run is None or run.kind is None:
            return "Walk with ↑ ↓ from segment to segment"
        place = f"token {timeline.slot - run.begin + 1:,} of {run.end - run.begin:,}"
        return f"{run.kind.capitalize()}, {place}. ↑ ↓ go to others, {key_for('segments.fold')} folds it in the text"

    # ---- keys -------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        if (slot := event.style.meta.get("slot")) is not None:
            self.look_at(slot)

    def look_at(self, slot: int) -> None:
        """Look at a token."""
        self.timeline.select(slot)
        self.host.changed()
        self.changed()

    def go(self, by: int) -> None:
        """Look at the first word of the next segment, or of the one before."""
        slot = self.timeline.slot
        begins = [run.word for run in self.timeline.segments.told]
        found = [begin for begin in begins if (begin > slot if by > 0 else begin < slot)]
        if found:
            self.look_at(found[0] if by > 0 else found[-1])

    def fold(self) -> None:
        """Fold the segment that is looked at, or unfold it."""
        timeline = self.timeline
        segments = timeline.of(Segments)
        run = timeline.segments.at(timeline.slot)
        if run is None or not run.told:
            self.say("This token is in no segment. ↑ ↓ go to one")
            return
        segments.folded ^= {timeline.items[run.begin].node}
        timeline.changes += 1
        self.host.changed()

    @property
    def wrong(self) -> list[int]:
        """Slots at which tool calls of the path went wrong, in its order."""
        wrong = self.timeline.of(Segments).wrong
        return [slot for slot, item in enumerate(self.timeline.items) if item.node in wrong] if wrong else []

    def go_wrong(self) -> None:
        """Look at the token where a tool call went wrong: the first after this one, or of all."""
        wrong = self.wrong
        if not wrong:
            self.say("No tool call here failed to parse")
            return
        self.look_at(next((slot for slot in wrong if slot > self.timeline.slot), wrong[0]))


def _line(on: Canvas, timeline: Timeline, run: PathRun, chosen: bool, words: str, width: int) -> Row:
    assert run.kind is not None
    figures = timeline.segments.figures([run])
    style = (on.ink("accent") if chosen else on.rich_style) + Style.from_meta({"slot": run.word})
    folded = timeline.items[run.begin].node in timeline.of(Segments).folded
    numbers = _numbers(count(figures.tokens), time_of(figures), bits_of(figures), width)
    signs = f"{'›' if chosen else ' '}{'▸' if folded else ' '}"
    begin = f"{signs}{LETTERS[run.kind]} {pad(run.kind, NAME)}{numbers}"
    room = max(0, width - len(begin))
    ink = on.ink("bad") if words.startswith(WRONG) else style
    text = truncate(words, room) if words else first_words(timeline.segments, run, room)
    return [Segment(begin, style), Segment(text, ink)]


def _sums(on: Canvas, timeline: Timeline, width: int) -> list[Row]:
    """A line for each kind, with its share of all tokens; markup comes last."""
    totals = timeline.segments.totals
    rows: list[Row] = []
    for kind, figures in sorted(totals.items(), key=lambda each: each[0] == MARKUP):
        numbers = _numbers(count(figures.tokens), time_of(figures), bits_of(figures), width)
        share = percent(figures.tokens / len(timeline.items))
        text = f"  {LETTERS[kind]} {pad(kind, NAME)}{numbers}{share} of all"
        rows.append([Segment(truncate(text, width), on.ink("muted"))])
    return rows
