"""The lanes of a batch, a line each: padding, prompt, what was decoded, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from inspector.display import pad, truncate, visible
from inspector.state.batch import BatchSoFar, LaneSoFar
from inspector.tools.batch.words import ending, held_words
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import FREE
from inspector.widgets.inks import panel_css

MARKS = {"waiting": "·", "prefill": "▒", "live": "●", "ended": "■"}
ABOUT = (
    "Several prompts at once: a lane for each, one forward for all",
    "",
    "Shorter prompts get padding before them (░), which the masks hide.",
    "A lane that ends makes room for one that waits,",
    "or runs on for nothing until all have ended, if the batch is static.",
    "",
)
MOST_PADDING = 12
"""Cells of padding that are drawn at most: its number stands behind them."""
LEAST_TEXT = 8
MOST_LINES = 4
"""Lines of a lane at most, where there is room."""
HEAD, END = 7, 12
"""Cells of a lane's number and state, and of how it ended."""
NARROW = 60
"""Cells below which the words of these are short."""


class LaneList(Canvas):
    """All lanes; the highlighted one stays in sight."""

    DEFAULT_CSS = panel_css("LaneList")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown_batch: BatchSoFar | None = None
        self.place, self.advice = 0, ""
        self._top = 0

    def put(self, batch: BatchSoFar | None, place: int, advice: str) -> None:
        """Show a batch.

        Args:
            batch: None for none.
            place: Number of the highlighted lane.
            advice: What to press where there is none.
        """
        self.shown_batch, self.place, self.advice = batch, place, advice
        if batch is None:
            self.title(Content("Lanes"))
        else:
            live, waiting = len(batch.live), sum(lane.state == "waiting" for lane in batch.lanes)
            ended = len(batch.lanes) - live - waiting
            counts = [f"{live} live", *([f"{waiting} wait"] if waiting else []), f"{ended} ended"]
            kv = Content(f"KV {held_words(batch)}") if live else None
            self.title(Content(f"Lanes · {', '.join(counts)}"), kv)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.shown_batch is None:
            muted = self.ink("muted")
            return centred(
                [*((line, muted) for line in ABOUT), (self.advice, self.rich_style)], width, height
            )
        lanes = self.shown_batch.lanes
        lines = max(1, min(MOST_LINES, height // max(1, len(lanes))))
        fit = max(1, height // lines)
        self._top = max(0, min(self._top, self.place, len(lanes) - fit), self.place - fit + 1)
        shown = lanes[self._top : self._top + fit]
        return [row for lane in shown for row in self._lane(lane, width, lines)]

    def _lane(self, lane: LaneSoFar, width: int, lines: int) -> list[Row]:
        """A lane on as many lines: its number and state, its text, its tokens and how it ended."""
        mark = self.ink({"live": "good", "ended": "faint"}.get(lane.state, "muted"))
        head = [
            Segment("▶" if lane.number == self.place else " ", self.ink("accent")),
            Segment(f"{lane.number:>3} ", self.ink("muted")),
            Segment(MARKS[lane.state] + " ", mark),
        ]
        count, wide = (
            (f" {len(lane.tokens):>4} tok ", END) if width >= NARROW else (f" {len(lane.tokens)} ", END // 2)
        )
        end = truncate(ending(lane) if lane.state != "live" else "", wide)
        tail = [
            Segment(count, self.ink("muted")),
            Segment(pad(end, wide), self.ink("warn" if lane.ended else "muted")),
        ]
        room = max(LEAST_TEXT, width - HEAD - len(count) - wide)
        first, *more = laid_out(self._parts(lane), room, lines, self.ink("faint"))
        filled = Segment(" " * (room - sum(segment.cell_length for segment in first)))
        indented = [[Segment(" " * HEAD), *row] for row in more]
        return [[*head, *first, filled, *tail], *indented, *([] for _ in range(lines - 1 - len(more)))]

    def _parts(self, lane: LaneSoFar) -> list[tuple[str, Style]]:
        """Padding, prompt and what was decoded, the last token of a lane that goes on by itself."""
        padding = FREE * min(lane.padding, MOST_PADDING)
        padding += f"{lane.padding} " if lane.padding > MOST_PADDING else ""
        prompt, said = visible(lane.opened.text), visible(lane.text)
        if self.shown_batch is not None and self.shown_batch.opened.node is not None:
            padding, prompt = "", f"draw {lane.opened.reroll} "
        parts = [(padding, self.ink("faint")), (prompt, self.ink("muted"))]
        last = visible(lane.said[-1].text) if lane.said and lane.state == "live" else ""
        if not said.endswith(last):  # a mark that joins what is before it
            last = ""
        return [*parts, (said[: len(said) - len(last)], self.rich_style), (last, self.ink("accent"))]


def laid_out(parts: Sequence[tuple[str, Style]], room: int, lines: int, cut: Style) -> list[Row]:
    """Texts on some lines; where they don't fit, their beginning is left out.

    Args:
        parts: Texts and their styles, printable.
        room: Cells of a line.
        lines: How many there are, 1 or more.
        cut: Style of the mark of what was left out.

    Returns:
        A line or more.
    """
    chars = [(char, style) for text, style in parts for char in text[-(room * lines + 1) :]]
    rows = _broken(chars, room)
    while len(rows) > lines:
        chars = [("…", cut), *chars[max(2, (len(rows) - lines - 1) * room // 2) :]]
        rows = _broken(chars, room)
    return [list(Segment.simplify(Segment(char, style) for char, style in row)) for row in rows]


def _broken(chars: Sequence[tuple[str, Style]], room: int) -> list[list[tuple[str, Style]]]:
    """Characters in lines of `room` cells, broken behind a blank where one is near the end."""
    rows: list[list[tuple[str, Style]]] = [[]]
    used = 0
    for char in chars:
        if used + (cells := cell_len(char[0])) > room:
            blank = next((n for n in range(len(rows[-1]), 0, -1) if rows[-1][n - 1][0] == " "), 0)
            cut = blank if blank > room * 2 // 3 else len(rows[-1])
            rows[-1], after = rows[-1][:cut], rows[-1][cut:]
            rows.append(after)
            used = sum(cell_len(each) for each, _ in after)
        rows[-1].append(char)
        used += cells
    return rows
