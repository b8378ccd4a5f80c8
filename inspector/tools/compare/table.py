"""Two branches side by side, a line a pair of tokens: only lines that are seen are made."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from engine.frozen import frozen
from inspector import scales
from inspector.display import pad, token_label, truncate
from inspector.state.session_tree import Item
from inspector.tools.compare.alignment import Pair
from inspector.tools.compare.comparison import Comparison
from inspector.tools.compare.lines import (
    BITS,
    LEFT,
    POSITION_CELLS,
    PROB,
    RIGHT,
    SUM_CELLS,
    Line,
    PairColumn,
    PairColumns,
    Rule,
    fitting,
    lines,
    places,
    summary,
)
from inspector.widgets.canvas import Row, colourful, is_dark, strip_of
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.token_styles import heat_style

HEAD = 2
"""Lines above the tokens: whose half it is, and the names of its columns."""
_MARK, _GUTTER = 2, 3
_CACHED = 512
_BESIDE = {(True, True): " ═ ", (True, False): " = ", (False, False): "   "}
"""Between the halves, by whether the two tokens are the same, and whether they are part of a meeting."""


@frozen
class _Inks:
    """Styles of one token's line."""

    words: Style
    numbers: Style
    ground: Style
    heat: bool
    """Whether its surprisal is coloured."""


class CompareTable(ScrollView, Inked, can_focus=True):
    """Both continuations, token for token, with a cursor on one side."""

    DEFAULT_CSS = panel_css("CompareTable") + "CompareTable { overflow-x: hidden; scrollbar-gutter: stable; }"

    class PairClicked(Message):
        """A token was clicked."""

        def __init__(self, place: int, side: int) -> None:
            self.place, self.side = place, side
            super().__init__()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.comparison: Comparison | None = None
        self.names: tuple[str, str] = ("", "")
        self.cursor, self.side = 0, RIGHT
        self.lines: list[Line] = []
        self._places: list[int] = []
        self._columns: PairColumns = fitting(0)
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED)

    # ---- what is shown ----------------------------------------------------------------------

    def show(self, comparison: Comparison, names: tuple[str, str]) -> None:
        """Show a comparison; the cursor stays where it is, as far as there are lines.

        Args:
            comparison: What is shown.
            names: Of left and right; printable.
        """
        self.comparison, self.names = comparison, names
        self.lines = list(lines(comparison))
        self._places = places(self.lines)
        self.cursor = max(0, min(self.cursor, len(self._places) - 1))
        self.border_title = Content("Compare")
        self.border_subtitle = Content(summary(comparison))
        self.virtual_size = Size(self.size.width, len(self.lines) + HEAD)
        self.restyle()

    def point(self, cursor: int, side: int) -> None:
        """Put the cursor on a pair of tokens, as far as there are any, and on a side; bring it into view."""
        before, self.cursor = self.cursor, max(0, min(cursor, len(self._places) - 1))
        self.side = side
        for place in {before, self.cursor}:
            self._strips.discard(self._line(place))
            self.refresh_line(self._line(place) + HEAD)
        self.refresh_line(0)
        self.reveal()

    def reveal(self) -> None:
        """Bring the cursor into view, and the shared tokens before it where it is at the parting."""
        rows, line, top = self.size.height - HEAD, self._line(self.cursor), self.scroll_offset.y
        if rows <= 0:
            return
        if line - 1 < top:
            self.scroll_to(y=max(0, line - 1), animate=False, immediate=True, force=True)
        elif line >= top + rows - 1:
            last = min(len(self.lines) - 1, line + 1)
            self.scroll_to(y=last - rows + 1, animate=False, immediate=True, force=True)

    def centre(self) -> None:
        """Bring the cursor into the upper third of what is seen."""
        at = self._line(self.cursor) - max(1, (self.size.height - HEAD) // 3)
        self.scroll_to(y=max(0, at), animate=False, immediate=True, force=True)

    def _line(self, place: int) -> int:
        return self._places[place] if place < len(self._places) else 0

    @property
    def pair(self) -> Pair | None:
        """The tokens under the cursor."""
        line = self.lines[self._line(self.cursor)] if self.lines else None
        return line if isinstance(line, Pair) else None

    @property
    def page(self) -> int:
        """Lines of tokens that are seen at a time."""
        return max(1, self.size.height - HEAD - 1)

    def restyle(self) -> None:
        """Every line looks different: another comparison, theme or width."""
        self._strips.clear()
        self._columns = fitting(self._half - _MARK)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self.restyle()
        self.reveal()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or at.y < HEAD:
            return
        line = self.scroll_offset.y + at.y - HEAD
        if line < len(self.lines) and isinstance(self.lines[line], Pair):
            side = LEFT if at.x < self._half + _GUTTER // 2 else RIGHT
            self.post_message(self.PairClicked(self._places.index(line), side))

    # ---- drawing ----------------------------------------------------------------------------

    @property
    def _half(self) -> int:
        return max(0, (self.scrollable_size.width - _GUTTER) // 2)

    @property
    def _token_cells(self) -> int:
        return max(1, self._half - _MARK - self._columns.cells)

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_size.width, self.rich_style
        if y < HEAD:
            return strip_of(self._names() if y == 0 else self._heads(), width, base)
        place = self.scroll_offset.y + y - HEAD
        if place >= len(self.lines) or self.comparison is None:
            return Strip.blank(width, base)
        strip = self._strips.get(place)
        if strip is None:
            strip = self._strips[place] = strip_of(self._row(self.comparison, self.lines[place]), width, base)
        return strip

    def _names(self) -> Row:
        chosen, other = self.ink("accent"), self.ink("muted")
        left, right = (
            Segment(pad(f"{'◉' if side == self.side else '○'} {name}", self._half),
                    chosen if side == self.side else other)
            for side, name in enumerate(self.names)
        )  # fmt: skip
        return [left, Segment(" " * _GUTTER), right]

    def _heads(self) -> Row:
        text = " " * _MARK + (pad("pos", POSITION_CELLS - 1, True) + " " if self._columns.position else "")
        text += pad("token", self._token_cells)
        text += "".join(pad(column.head, column.cells, True) for column in self._columns.numbers)
        text += pad("sum", SUM_CELLS, True) if self._columns.sum else ""
        return [Segment(text + " " * _GUTTER + text, self.ink("muted"))]

    def _row(self, comparison: Comparison, line: Line) -> Row:
        if isinstance(line, Rule):
            return self._rule(line)
        left, right = comparison.items(line)
        same = left is not None and right is not None and left.id == right.id
        ink = "faint" if self._is_shared(comparison, line) else "good" if line.joined else "muted"
        return [
            *self._side(comparison, line, LEFT),
            Segment(_BESIDE[same, same and line.joined], self.ink(ink)),
            *self._side(comparison, line, RIGHT),
        ]

    def _is_shared(self, comparison: Comparison, line: Pair) -> bool:
        return line.left is not None and line.left < comparison.shared

    def _rule(self, rule: Rule) -> Row:
        width = self.scrollable_size.width
        words = truncate(f" {rule.words} ", max(0, width - 4))
        text = f"──{words}".ljust(width, "─")
        return [Segment(text, self.ink("good" if rule.joins else "warn"))]

    def _side(self, comparison: Comparison, line: Pair, side: int) -> Row:
        here = side == self.side and self.pair is line
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if here else Style()
        mark = Segment("▶ " if here else "  ", Style(color=self.ink("accent").color) + ground)
        item = comparison.items(line)[side]
        if item is None:
            return [mark, Segment(" " * (self._half - _MARK), ground)]
        inks = self._inks(comparison, line, ground)
        label = token_label(item.text, item.raw, getattr(item, "pending", b""))
        return [
            mark,
            *self._position(item, inks),
            Segment(pad(label, self._token_cells), inks.words),
            *(part for column in self._columns.numbers for part in self._number(column, item, inks)),
            *self._sum(comparison.sum(line, side), inks),
        ]

    def _inks(self, comparison: Comparison, line: Pair, ground: Style) -> _Inks:
        if self._is_shared(comparison, line):
            words, numbers = self.ink("muted").color, self.ink("faint").color
            return _Inks(Style(color=words) + ground, Style(color=numbers) + ground, ground, False)
        words = self.ink("good").color if line.joined else None
        return _Inks(Style(color=words) + ground, ground, ground, True)

    def _position(self, item: Item, inks: _Inks) -> Row:
        if not self._columns.position:
            return []
        text = pad(str(item.position + 1), POSITION_CELLS - 1, True) + " "
        return [
            Segment(text, Style(color=self.ink("muted").color) + inks.ground if inks.heat else inks.numbers)
        ]

    def _number(self, column: PairColumn, item: Item, inks: _Inks) -> Row:
        text = column.text(item)
        hot = BITS if BITS in self._columns.numbers else PROB
        if not inks.heat or column is not hot:
            return [Segment(pad(text, column.cells, True), inks.numbers)]
        metric = scales.METRIC["surprisal"]
        heat = heat_style(metric.step(metric.value(item)), is_dark(self.app), colourful(self.app))
        return [
            Segment(" " * max(0, column.cells - len(text)), inks.ground),
            Segment(text, inks.ground + heat),
        ]

    def _sum(self, value: float | None, inks: _Inks) -> Row:
        if not self._columns.sum:
            return []
        return [
            Segment(
                pad("" if value is None else f"{value:.2f}".replace("-", "−"), SUM_CELLS, True), inks.numbers
            )
        ]
