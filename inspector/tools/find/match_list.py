"""Tokens that a search found, the most probable first, with what model and sampler make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message

from engine.records import Candidate
from inspector import scales
from inspector.display import pad, token_label, visible
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.charts import bar

MARK, PERCENT = 3, 9
"""Cells of the marks and of the model's probability, with its left gap."""
EXTRA = {"sampler": 9, "rank": 8, "logprob": 9, "id": 8}
"""Cells of the columns that give way, their left gap included; the last goes first."""
TOKEN = 26
"""Cells that a token's text gets at most."""


@dataclass(frozen=True, slots=True)
class MatchColumns:
    """Which columns fit, and how wide those are that give way."""

    token: int
    bar: int
    extra: tuple[str, ...]


def fitting(width: int) -> MatchColumns:
    """The columns that fit in `width` cells."""
    extra = list(EXTRA)
    while extra and width - MARK - PERCENT - sum(EXTRA[name] for name in extra) < 20:
        extra.pop()
    free = width - MARK - PERCENT - sum(EXTRA[name] for name in extra)
    token = max(6, min(TOKEN, free * 2 // 3))
    return MatchColumns(token, max(0, free - token - 1), tuple(extra))


class MatchList(Canvas):
    """The matches; one of them is highlighted."""

    class MatchChosen(Message):
        """The highlighted match was clicked: take it."""

    class MatchHighlighted(Message):
        """Another match is highlighted, or there are others."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.matches: tuple[Candidate, ...] = ()
        self.highlighted = 0
        self._taken: int | None = None
        self._top = 0

    @property
    def match(self) -> Candidate | None:
        """The highlighted match, None where there is none."""
        return self.matches[self.highlighted] if self.highlighted < len(self.matches) else None

    def put(self, matches: Sequence[Candidate], taken: int | None) -> None:
        """Show some matches, the first of them highlighted.

        Args:
            matches: The most probable first.
            taken: Id of the token in this place, for its mark.
        """
        self.matches, self._taken, self.highlighted, self._top = tuple(matches), taken, 0, 0
        self.post_message(self.MatchHighlighted())
        self.redraw()

    def move(self, by: int) -> None:
        """Highlight the match `by` rows below (above if negative), as far as there are any."""
        place = max(0, min(len(self.matches) - 1, self.highlighted + by))
        if place != self.highlighted:
            self.highlighted = place
            self.post_message(self.MatchHighlighted())
            self.redraw()

    @property
    def page(self) -> int:
        """How many matches are visible at once."""
        return max(1, self.size.height - 1)

    # ---- events -----------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        place = self._top + event.y - 1
        if event.y < 1 or place >= len(self.matches):
            return
        if place == self.highlighted:
            self.post_message(self.MatchChosen())
        self.move(place - self.highlighted)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-1)

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.matches:
            return []
        room = max(1, height - 1)
        self._top = max(min(self._top, self.highlighted), self.highlighted - room + 1, 0)
        shown = range(self._top, min(len(self.matches), self._top + room))
        columns = fitting(width)
        return [self._head(columns), *(self._row(place, columns, width) for place in shown)]

    def _head(self, columns: MatchColumns) -> Row:
        text = " " * MARK + pad("token", columns.token + 1 + columns.bar) + pad("model", PERCENT, right=True)
        return [
            Segment(text + "".join(pad(n, EXTRA[n], right=True) for n in columns.extra), self.ink("muted"))
        ]

    def _row(self, place: int, columns: MatchColumns, width: int) -> Row:
        match = self.matches[place]
        cut, here = match.cut_by is not None, place == self.highlighted
        ink = self.ink("muted" if here else "faint") if cut else self.rich_style
        words = self.ink("special") if match.special and not cut else ink
        row = [
            Segment("▌" if here else " ", self.ink("primary")),
            Segment("▶ " if match.id == self._taken else "  ", self.ink("accent")),
            Segment(pad(token_label(match.text, match.raw), columns.token) + " ", words),
            Segment(bar(match.prob, columns.bar), ink if cut else ink + self.data()),
            Segment(pad(scales.tiny(match.prob), PERCENT, right=True), ink),
            *(self._number(match, name, ink) for name in columns.extra),
        ]
        return self._grounded(row, width) if here else row

    def _number(self, match: Candidate, name: str, ink: Style) -> Segment:
        muted = ink if match.cut_by else self.ink("muted")
        match name:
            case "sampler":
                after = visible(match.cut_by) if match.cut_by else scales.percent(match.sampler_prob)
                return Segment(" " + pad(after, EXTRA[name] - 1, right=True), ink)
            case "rank":
                return Segment(pad(scales.count(match.rank), EXTRA[name], right=True), muted)
            case "logprob":
                return Segment(pad(f"{match.logprob:.2f}", EXTRA[name], right=True), muted)
            case _:
                return Segment(pad(str(match.id), EXTRA[name], right=True), muted)

    def _grounded(self, row: Row, width: int) -> Row:
        """The highlighted row on its own ground, up to the edge."""
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True)
        row = [*row, Segment(" " * max(0, width - Segment.get_line_length(row)))]
        return [Segment(text, (style or Style()) + ground) for text, style, _ in row]
