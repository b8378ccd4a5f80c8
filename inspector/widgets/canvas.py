"""The base of the panels: rows of segments, and a widget that paints only rows that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from inspector import scales
from inspector.display import pad, truncate, truncate_start, truncate_words, visible
from inspector.keys import key_for
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.rows import FACT_NAME as FACT_NAME
from inspector.widgets.rows import Row as Row
from inspector.widgets.rows import fact_rows as fact_rows
from inspector.widgets.rows import rgb_style as rgb_style
from inspector.widgets.rows import wrapped as wrapped

# ---- rows and styles ----------------------------------------------------------------------------


def why_empty(timeline: Timeline | None, empty: str) -> tuple[str, str]:
    """Why there is nothing to show, and what to do about it.

    Args:
        timeline: The timeline on show.
        empty: A sentence about what will be shown here.

    Returns:
        Two short texts: the reason and the advice.
    """
    phase = timeline.phase if timeline is not None else Phase.LOADING
    recorded = timeline is not None and timeline.recorded
    step = key_for("step")
    match phase:
        case Phase.LOADING:
            return "The model is loading.", empty
        case Phase.FAILED:
            return "No model could be loaded.", "The text panel says why, and what to press."
        case Phase.EMPTY if timeline is not None and (failure := timeline.prompts.failure) is not None:
            return visible(failure.message), f"Press {key_for('prompt')} to change the prompt."
        case Phase.EMPTY if timeline is not None and timeline.narrated:
            return "There is no prompt here.", "The card below says what to do."
        case Phase.EMPTY:
            return "There is no prompt yet.", f"Press {key_for('prompt')} to write one."
        case Phase.PREFILL:
            return "The prompt is going through the model.", empty
        case _ if recorded:
            return "Up to here nothing was generated.", f"{step.capitalize()} shows what came next."
        case _:
            return "Nothing generated yet.", f"Press {step} for one step, {key_for('run')} to run."


def centred(texts: Sequence[tuple[str, Style]], width: int, height: int) -> list[Row]:
    """Short texts in the middle of a panel, one on a line, wrapped at blanks if they are wider."""
    rows: list[Row] = []
    for text, style in texts:
        for line in wrapped(text, width):
            left = " " * ((width - cell_len(line)) // 2)
            rows.append([Segment(left), Segment(line, style)])
    above: list[Row] = [[]] * max(0, (height - len(rows)) // 2)
    return (above + rows)[: max(height, 0)]


def paragraph(style: Style | None, width: int, *texts: str) -> list[Row]:
    """Each of several texts in as many rows of `width` cells as it needs."""
    return [[Segment(line, style)] for text in texts for line in wrapped(text, width)]


def side_by_side(pieces: Iterable[Row], width: int) -> Row:
    """The first piece, and as many after it as fit into one row with two blanks between them."""
    row: Row = []
    for piece in pieces:
        added = [*row, Segment("  "), *piece] if row else piece
        if row and Segment.get_line_length(added) > width:
            break
        row = added
    return row


def around(before: str, found: str, after: str, cells: int, muted: Style, ink: Style) -> Row:
    """Three display texts in an exact number of cells: the end of the first, and the beginnings of the others.

    Args:
        before: The text before it.
        found: The text in the middle.
        after: The text after it.
        cells: The width.
        muted: Style of the texts around it.
        ink: Style of the text in the middle.
    """
    found = truncate(found, cells)
    left = truncate_start(before, (cells - cell_len(found)) * 3 // 5)
    room = max(0, cells - cell_len(left) - cell_len(found))
    right = pad(truncate_words(after, room), room)
    return [Segment(left, muted), Segment(found, ink + Style(underline=True)), Segment(right, muted)]


def grounded(row: Row, width: int, ink: Style) -> Row:
    """A row in bold on the background of an ink, filled up to a width."""
    row = [*row, Segment(" " * max(0, width - Segment.get_line_length(row)))]
    return list(Segment.apply_style(row, post_style=Style(bgcolor=ink.bgcolor, bold=True)))


# ---- widgets ------------------------------------------------------------------------------------


class Canvas(Inked):
    """A widget that draws all of its rows from the timeline or page that it was last given, and repaints those that
    differ."""

    CONCEALED_BY: ClassVar[tuple[str, ...]] = ()
    """Concealed parts that it would reveal, in addition to its own id: if one is concealed, nothing is drawn."""
    NAME: ClassVar[str] = ""
    """The title of its frame."""
    timeline: Timeline | None = None
    _page: Page | None = None

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._strips: list[Strip] = []
        self._made_of: tuple[Style, list[Row]] = (Style(), [])
        """The base style and the rows of the strips."""
        self._drawn_size: Size | None = None
        """The size of the strips; None if they may be out of date because the panel was hidden."""
        self._titles: tuple[Content | None, Content | None] = (None, None)

    @property
    def frameless(self) -> bool:
        """True if it has no frame and a few rows, with the class `-line`: then the first row contains its name."""
        return self.has_class("-line")

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows from the top, each at most `width` cells wide; missing rows stay blank. By default, the rows of its
        page."""
        return self._page(self, width, height) if self._page is not None else []

    def paint(self, page: Page) -> None:
        """Show a page.

        Args:
            page: Draws the page; called again when the size or the colours change.
        """
        self._page = page
        self.redraw()

    def show(self, timeline: Timeline) -> None:
        """Show the timeline's present state."""
        self.timeline = timeline
        self.redraw()

    def redraw(self) -> None:
        """Draw again, and repaint the rows that came out differently."""
        if not self.is_attached or not self.display or not self.size.width:
            self._drawn_size = None  # so that `render_lines` draws it
            self.refresh()  # Textual caches the lines that it painted last
            return
        before, size = self._strips, self._drawn_size
        self._draw_strips()
        if size != self.size:
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, self._strips, strict=True)):
            if old is not new and old != new:
                self.refresh(Region(0, y, self.size.width, 1))

    def title(self, title: str | Content | None = None, subtitle: str | Content | None = None) -> None:
        """Set the texts in the frame, if they differ; printable."""
        title, subtitle = (Content(each) if isinstance(each, str) else each for each in (title, subtitle))
        before, self._titles = self._titles, (title, subtitle)
        if not looks_same(before[0], title):
            self.border_title = title
        if not looks_same(before[1], subtitle):
            self.border_subtitle = subtitle

    def centred(self, said: Sequence[str], width: int, height: int) -> list[Row]:
        """A reason in the base ink and advice in grey, in the middle; a single sentence is grey."""
        inks = (self.ink("base"), self.ink("muted"))[-len(said) :]
        return centred(list(zip(said, inks, strict=True)), width, height)

    def named(self, row: Row) -> Row:
        """A row that begins with the panel's name, if there is no frame."""
        return [Segment(f"{self.NAME}  ", self.ink("strong")), *row]

    def empty(self, said: Sequence[str], brief: str, width: int, height: int) -> list[Row]:
        """The reason why there is nothing to show, with advice; without a frame, a few words.

        Args:
            said: The reason and the advice.
            brief: The few words.
            width: Cells.
            height: Lines.
        """
        if self.frameless:
            return [self.named([Segment(brief, self.ink("muted"))])]
        return self.centred(said, width, height)

    def facts(self, facts: Iterable[tuple[str, str]], width: int) -> list[Row]:
        """Facts with their names in grey."""
        return fact_rows(facts, width, self.ink("muted"), self.ink("base"))

    def data(self, level: float = 0.5) -> Style:
        """The colour of a bar or an area: viridis at a level from 0 to 1."""
        return rgb_style(scales.colour(level, self.dark))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw before painting if the size or the colours have changed, or the panel was hidden. Drawing also sets the
        texts in the frame, which Textual reads when it begins to paint."""
        if self._drawn_size != self.size or self._mixed_inks is None:
            self._draw_strips()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width, self.ink("base"))

    def on_resize(self, event: events.Resize) -> None:
        if self._drawn_size != self.size:  # otherwise it was painted at this size already
            self.redraw()

    def _draw_strips(self) -> None:
        """Draw all rows, with blank ones at the end; an unchanged row keeps its strip."""
        # if there is only room for the frame, a row that isn't visible sets its texts
        width, height = self.size.width, max(1, self.size.height)
        base, timeline = self.ink("base"), self.timeline
        if timeline is not None and timeline.conceals(self.id or "", *self.CONCEALED_BY):
            why = timeline.concealed_as
            title = f"{self.NAME} · {why}" if self.NAME else why
            self.title(title)
            rows = centred([(title if self.frameless else "?", self.ink("muted"))], width, height)
        else:
            rows = self.draw(width, height)[:height]
        rows += [[]] * (height - len(rows))
        kept = self._strips if (self._drawn_size, self._made_of[0]) == (self.size, base) else []
        before, self._made_of = self._made_of[1], (base, rows)
        self._strips = [
            kept[y] if kept and row == before[y] else strip_of(row, width, base) for y, row in enumerate(rows)
        ]
        self._drawn_size = self.size


def looks_same(one: Content | None, other: Content | None) -> bool:
    """True if two titles look the same: `==` on `Content` compares only the text."""
    return one is other or (one is not None and other is not None and one.is_same(other))


def strip_of(row: Row, width: int, base: Style) -> Strip:
    """A row as a strip of exactly `width` cells, on the base style; `…` at the end if more than blanks was cut off.

    Neighbours with the same style are joined: a chart has a segment per column, and each slows the next paint.
    """
    strip = Strip(Segment.apply_style(Segment.simplify(row), base))
    if strip.cell_length > width > 0 and strip.crop(width).text.strip():
        strip = Strip([*strip.crop(0, width - 1), Segment("…", base)])
    return strip.adjust_cell_length(width, base)


def set_line_count(view: ScrollView, lines: int) -> None:
    """Set the number of lines of a view.

    Setting `virtual_size` lays out the whole screen each time, which takes a seventh of a run's frame. While lines are
    only added and no scroll bar appears, nothing else on the screen moves: updating the bar is enough.

    Args:
        view: The view, as wide as its lines.
        lines: Number of lines.
    """
    before, now = view.virtual_size, Size(view.size.width, lines)
    if now == before:
        return
    room = view.container_size.height
    if now.width != before.width or lines < before.height or (lines > room) != (before.height > room):
        view.virtual_size = now
        return
    view.set_reactive(Widget.virtual_size, now)
    if view.show_vertical_scrollbar:
        view.vertical_scrollbar.window_virtual_size = lines


def reveal(view: ScrollView, row: int, head: int = 1) -> None:
    """Scroll a row of a table into sight.

    Args:
        view: The table.
        row: Place of the row; -1 for none.
        head: Fixed lines above the rows.
    """
    top, rows = view.scroll_offset.y, max(1, view.size.height - head)
    if 0 <= row < top:
        scroll_at_once(view, row)
    elif row >= top + rows:
        scroll_at_once(view, row - rows + 1)


def scroll_at_once(view: ScrollView, row: int | None = None) -> None:
    """Scroll to a row, or to the end if it is None, before the next paint."""
    if row is None:
        view.scroll_end(animate=False, immediate=True, force=True)
    else:
        view.scroll_to(y=max(0, row), animate=False, immediate=True, force=True)


Page = Callable[[Canvas, int, int], list[Row]]
"""Draws rows on a canvas, for its width in cells and its height in lines."""


class PanelCanvas(Canvas):
    """A canvas in the frame of a panel."""

    DEFAULT_CSS = panel_css("PanelCanvas")


class DrawnPanel(PanelCanvas):
    """Shows a page, as far as it fits."""

    def put(self, title: str | Content, page: Page, subtitle: str = "") -> None:
        """Show a page.

        Args:
            title: Printable.
            page: Draws the page; called again when the size or the colours change.
            subtitle: Text in the lower line of the frame; printable, empty for none.
        """
        self.title(title, subtitle or None)
        self.paint(page)


class PageView(DrawnPanel, can_focus=True):
    """Shows a page that may be longer than the widget, and scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move(-10)", "Page up", show=False),
        Binding("pagedown", "move(10)", "Page down", show=False),
    ]

    _top = 0

    def put(self, title: str | Content, page: Page, subtitle: str = "") -> None:
        """Show a page, scrolled to its top if the title has changed."""
        if self._titles[0] is None or self._titles[0].plain != title:
            self._top = 0
        super().put(title, page)

    def action_move(self, by: int) -> None:
        self._top = max(0, self._top + by)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        rows = super().draw(width, height)
        self._top = max(0, min(self._top, len(rows) - height))
        more = "↑" if self._top else ""
        if (below := len(rows) - height - self._top) > 0:
            more = f"{scales.counted(below, 'more line')} ↓"
        self.title(self._titles[0], more or None)
        return rows[self._top :]
