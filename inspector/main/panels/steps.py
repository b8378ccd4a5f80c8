"""The steps as a table, one row per token, and a strip of the chosen metric under it."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.content import Content
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from engine.protocol import Step
from engine.timing import Tpot, summary
from inspector import scales
from inspector.display import pad, token_label, truncate
from inspector.keys import TABS
from inspector.main.panels.header import question_rows
from inspector.main.tool import SlotSelected
from inspector.state.session_tree import explained, signs
from inspector.state.timeline import Timeline, other
from inspector.widgets.canvas import (
    Canvas,
    Row,
    centred,
    reveal,
    rgb_style,
    scroll_at_once,
    set_line_count,
    strip_of,
    why_empty,
)
from inspector.widgets.charts import area, bar, window
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.rows import columns_that_fit
from inspector.widgets.token_lines import heat_style

_LABEL = 12


class StepStrip(Canvas):
    """The strip under the table of steps."""

    metric = scales.METRIC["surprisal"]
    """The metric that is drawn; call `redraw` after changing it."""
    _seen = range(0)
    """Indices of the steps that have a column."""

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, metric, self._seen = self.timeline, self.metric, range(0)
        if timeline is None or not metric.steps or not timeline.step_slots:
            return []
        known: list[float] = []
        heights: list[float | None] = []
        inks: list[Style] = []
        top, current = metric.height(metric.steps[-1]), timeline.step
        room = max(1, width - _LABEL)
        self._seen = window(len(timeline.step_slots), room, timeline.steps_before(timeline.slot))
        for index in self._seen:
            item = timeline.items[timeline.step_slots[index]]
            if (value := metric.value(item)) is None:
                heights.append(None)
            else:
                known.append(value)
                heights.append(high := metric.height(value))
                top = max(top, high)
            ink = self.data(metric.level(value))
            if item is current:
                ink = Style(bgcolor=self.ink("row").bgcolor) + self.ink("accent").without_color + ink
            inks.append(ink)
        most = metric.format(max(known, default=0.0))
        most = most.replace(">99.99", "100")  # since `≤ >99.99 %` says nothing
        labels = (metric.name, f"≤ {most}")  # further lines have no label
        rows: list[Row] = []
        for number, line in enumerate(area(heights, height, metric.top or top)):
            label = labels[number] if number < len(labels) else ""
            rows.append([Segment(label[: _LABEL - 1].ljust(_LABEL), self.ink("muted"))])
            rows[-1] += map(Segment, line, inks)
        return rows

    def on_click(self, event: events.Click) -> None:
        at, timeline = event.get_content_offset(self), self.timeline
        if at is not None and timeline is not None and 0 <= (place := at.x - _LABEL) < len(self._seen):
            self.post_message(SlotSelected(timeline.step_slots[self._seen[place]]))


MOST = 3
"""Maximum number of slow steps that are listed."""


class StepFigures:
    """Statistics of the steps of the current path; each step is read once."""

    def __init__(self) -> None:
        self._generation = -1
        self._clear()

    def _clear(self) -> None:
        self.ms: list[float] = []
        """Milliseconds of the steps, in the order of the path."""
        self.slowest: list[int] = []
        """Places of the `MOST` slowest steps, including cold starts, the slowest first."""
        self.bits, self.known = 0.0, 0
        """The sum of the known surprisals, and their number."""
        self._ordered: list[float] = []
        """Milliseconds of the steps that are no cold starts, in ascending order."""
        self.cold: set[float] = set()
        """Milliseconds of the cold starts."""
        self._sum = 0.0

    def update(self, timeline: Timeline) -> None:
        """Read the new steps; all steps if the path was rebuilt."""
        slots = timeline.step_slots
        if timeline.generation != self._generation or len(self.ms) > len(slots):
            self._generation = timeline.generation
            self._clear()
        for slot in slots[len(self.ms) :]:
            step = timeline.items[slot]
            assert isinstance(step, Step)
            self._add(step)

    def _add(self, step: Step) -> None:
        ms, place = step.ms.total, len(self.ms)
        self.ms.append(ms)
        if len(self.slowest) < MOST or ms > self.ms[self.slowest[-1]]:
            self.slowest = sorted([*self.slowest, place], key=self.ms.__getitem__, reverse=True)[:MOST]
        if step.ms.cold:
            self.cold.add(ms)
        else:
            insort(self._ordered, ms)
            self._sum += ms
        if not math.isnan(step.surprisal_bits):
            self.bits += step.surprisal_bits
            self.known += 1

    def tpot(self) -> Tpot | None:
        """Time per output token without cold starts; None if there is no other step."""
        return summary(self._ordered, self._sum) if self._ordered else None

    def beyond(self, edge: float) -> int:
        """The number of steps that took more than `edge` milliseconds."""
        return len(self._ordered) - bisect_right(self._ordered, edge) + sum(ms > edge for ms in self.cold)


def step_shown(timeline: Timeline) -> int:
    """The place of the shown step in the path, from 0; -1 for none."""
    return -1 if timeline.step is None else timeline.steps_before(timeline.slot) - timeline.following


_MARK, _LEAST_TOKEN, _MOST_TOKEN = 2, 10, 24
_LEAST_PAIR = 20
"""Minimum cells of the token column while settings are tried: `␣cat ≠ ␣dog`."""
_LEAST_BAR = 11
"""Minimum cells of the bar of the probability."""
_CACHED_ROWS = 256


CELLS = {"p": 9, "bits": 7, "entropy": 9, "rank": 7, "ms": 7, "KV": 10}
"""Cells of each column of numbers, by its head."""
METRIC_OF = {"p": "probability", "bits": "surprisal", "entropy": "entropy", "rank": "rank"}
"""The metrics by the heads of their columns: the column of the chosen metric is coloured, and left out last."""
_DROPPED = ("entropy", "rank", "KV", "bits", "ms", "p")
"""The order in which a narrow panel leaves out columns."""
_MEASURED = ("entropy", "ms", "KV")
"""Columns that a server's reply has no numbers for."""


def fitting(width: int, metric: str, least: int = _LEAST_TOKEN) -> tuple[str, ...]:
    """The columns that leave at least `least` cells for the token; the metric's column is left out last."""
    order = sorted(_DROPPED, key=lambda head: METRIC_OF.get(head) == metric)
    return columns_that_fit(CELLS, order, width - 1 - _MARK - 6 - least)


class StepsTable(ScrollView, Inked, can_focus=False):
    """The table of steps, which draws only visible rows."""

    DEFAULT_CSS = """
    StepsTable {
        height: 1fr; overflow-x: hidden; scrollbar-gutter: stable;
        scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $foreground 18%;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.metric = "surprisal"
        self._timeline: Timeline | None = None
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED_ROWS)
        self._count, self._current = 0, -1
        """Number of steps, and the place of the selected one."""
        self._looks: tuple[int, ...] = ()
        """Versions of the path, of trials and of marks, which change if rows other than the last look different."""
        self._columns = tuple(CELLS)
        self._fitted, self._token_cells, self._bar_cells = 0, 1, 0
        """Width that the columns were chosen for, cells of the token, and cells of the bar, 0 if it has no room."""
        self._heats: tuple[Style, ...] = ()
        """Styles of the color scale's steps, from 0; empty after a change of the theme."""
        self._bar_ink = Style()
        self._noticed: tuple[tuple[object, ...], list[Row]] = ((), [])
        """Inputs of the last `_notice`, and its rows."""

    def show(self, timeline: Timeline) -> None:
        """Show the steps of the path, and mark the selected one."""
        self._timeline = timeline
        if not self.is_attached or not self.size.area:
            return
        at_end, count, current = self.is_vertical_scroll_end, self._count, self._current
        self._count, self._current = len(timeline.step_slots), step_shown(timeline)
        looks = timeline.generation, timeline.trials, timeline.tree.marks.version
        if looks != self._looks or not 0 < count <= self._count:
            self._looks = looks
            self.restyle()
        set_line_count(self, self._count + 1 if self._count else 0)
        for row in {current, self._current, *range(count, min(self._count, count + self.size.height))}:
            self._strips.discard(row)
            self.refresh_line(row + 1)
        if timeline.following and at_end:
            scroll_at_once(self)
        elif self._current != current:
            reveal(self, self._current)

    def restyle(self) -> None:
        """Choose the columns and draw every row again, for another path, theme, width or metric."""
        self._strips.clear()
        tried = self._timeline is not None and self._timeline.trial is not None
        least = _LEAST_PAIR if tried else _LEAST_TOKEN
        self._fitted = self.scrollable_size.width
        self._columns = fitting(self._fitted, self.metric, least)
        if self._timeline is not None and self._timeline.facts is not None and not self._timeline.facts.ran:
            self._columns = tuple(head for head in self._columns if head not in _MEASURED)
        free = self._fitted - 1 - _MARK - 6 - sum(CELLS[head] for head in self._columns)
        self._token_cells = max(1, min(_MOST_TOKEN, free))
        spare = free - self._token_cells - 2
        self._bar_cells = spare if spare >= _LEAST_BAR else 0
        self.refresh()

    @on(events.Resize)
    @on(events.Show)
    def _catch_up(self) -> None:
        """Catch up with a new size, and with what happened while the panel was hidden."""
        self.restyle()
        if self._timeline is not None:
            self.show(self._timeline)
            reveal(self, self._current)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._heats = ()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the signs in the row under the mouse."""
        row, timeline = self.scroll_offset.y + event.y - 1, self._timeline
        lines = []
        if timeline is not None and event.y >= 1 and row < self._count:
            lines = explained(timeline.tree, timeline.items[timeline.step_slots[row]].node)
        self.tooltip = Content("\n".join(lines)) if lines else None

    def on_click(self, event: events.Click) -> None:
        at, timeline = event.get_content_offset(self), self._timeline
        if at is None or timeline is None or at.y < 1:
            return
        if (row := self.scroll_offset.y + at.y - 1) < self._count:
            self.post_message(SlotSelected(timeline.step_slots[row]))

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, base, timeline = self.scrollable_size.width, self.ink("base"), self._timeline
        if timeline is None or not timeline.step_slots:
            rows = self._notice()
            return strip_of(rows[y] if y < len(rows) else [], width, base)
        if width != self._fitted:  # a scroll bar came or went, which is no resize
            self.restyle()
            self.call_next(self.refresh)  # a refresh during a paint would count as painted
        if y == 0:
            return strip_of(self._head(), width, base)
        row = self.scroll_offset.y + y - 1
        if row >= len(timeline.step_slots):
            return Strip.blank(width, base)
        strip = self._strips.get(row)
        if strip is None:
            strip = self._strips[row] = self._row(timeline, row, width)
        return strip

    def _notice(self) -> list[Row]:
        """The rows instead of the table, which are kept while their inputs are the same."""
        said = why_empty(self._timeline, "Each step of the decode gets a row here.")
        inks = (self.ink("base"), self.ink("muted"))
        width, height = self.scrollable_size.width, self.size.height
        of = (said, inks, width, height)
        if of == self._noticed[0]:
            return self._noticed[1]
        room = height >= len(TABS) + 4
        questions = question_rows(self, width) if room else []
        rows = centred(list(zip(said, inks, strict=True)), width, height - len(questions))
        if questions:  # the last lines, if there is room: the questions about each token to come
            rows = [*rows, *[[]] * height][: height - len(questions)] + questions
        self._noticed = (of, rows)
        return rows

    def _head(self) -> Row:
        text = " " * _MARK + pad("#", 5, right=True) + " " + pad("token", self._token_cells)
        text += "".join(pad(head, CELLS[head], right=True) for head in self._columns)
        return [Segment(text + ("  probability" if self._bar_cells else ""), self.ink("muted"))]

    def _row(self, timeline: Timeline, row: int, width: int) -> Strip:
        """The row of a step: its number, the token, the signs of its marks, and the columns.

        While settings are tried, the token that they would have picked instead is beside it, if that is a different
        one.
        """
        step = timeline.items[timeline.step_slots[row]]
        assert isinstance(step, Step)
        current = row == self._current
        base = self.ink("base") + (Style(bgcolor=self.ink("row").bgcolor, bold=True) if current else Style())
        accent, muted = Style(color=self.ink("accent").color), Style(color=self.ink("muted").color)
        words = Style(color=self.ink("special").color, italic=True) if step.special else Style()
        number = Segment(pad(str(step.index + 1), 5, right=True) + " ", muted)
        segments = [Segment("▶ " if current else "  ", accent), number]
        cells, label = self._token_cells, token_label(step.text, step.raw, step.pending)
        if marks := signs(timeline.tree, step.node):
            cells = max(1, cells - cell_len(marks) - 1)
        if timeline.trial is not None and (tried := other(timeline.trial, step)) is not None:
            half, warn = truncate(label, max(4, cells // 2 - 2)), self.ink("warn").color
            instead = pad(f" ≠ {token_label(tried.text)}", cells - cell_len(half))
            segments += [Segment(half, words), Segment(instead, Style(color=warn, bold=True))]
        else:
            segments.append(Segment(pad(label, cells), words))
        if marks:
            segments.append(Segment(pad(f" {marks}", self._token_cells - cells), accent))
        return strip_of([*segments, *self._numbers(step)], width, base)

    def _numbers(self, step: Step) -> Row:
        """The columns, with the chosen metric in colour and a question mark for an unknown number; and the bar of the
        probability."""
        if not self._heats:
            dark, colours = self.dark, self.colorful
            self._heats = tuple(heat_style(heat, dark, colours) for heat in range(scales.STEPS + 1))
            self._bar_ink = rgb_style(scales.colour(0.5, dark)) if colours else Style()
        row: Row = []
        for head in self._columns:
            if (name := METRIC_OF.get(head)) is not None:
                metric = scales.METRIC[name]
                value = metric.value(step)
                text = "?" if value is None else metric.format(value)
            else:
                text = scales.ms(step.ms.total) if head == "ms" else scales.size(step.kv.used_bytes)
            if name is not None and name == self.metric:
                blank = " " * max(0, CELLS[head] - len(text))
                row += [Segment(blank), Segment(text, self._heats[metric.step(value)])]
            else:
                row.append(Segment(pad(text, CELLS[head], right=True)))
        if cells := self._bar_cells:
            row += [Segment("  "), Segment(bar(step.prob, cells), self._bar_ink)]
        return row


class StepsPanel(Widget, can_focus=True):
    """The table of steps and the strip in one frame."""

    DEFAULT_CSS = (
        panel_css("StepsPanel")
        + """
    StepsPanel { layout: vertical; padding: 0 0 0 1; }
    StepsPanel > StepStrip { height: 2; }
    StepsPanel.-short > StepStrip { height: 1; }
    StepsPanel.-plain > StepStrip { display: none; }
    StepsPanel.-concealed > * { visibility: hidden; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
    ]

    metric: reactive[str] = reactive("surprisal", init=False)
    """Name of the metric of strip and colours, one of `scales.METRICS`."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._table, self._strip = StepsTable(), StepStrip()
        self._figures = StepFigures()

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._strip

    def show(self, timeline: Timeline) -> None:
        """Show the steps of the timeline's path, with the selected one marked and the perplexity in the frame."""
        self._table.show(timeline)
        self._strip.show(timeline)
        concealed = timeline.conceals("steps", "probabilities")
        title = f"Steps · {timeline.concealed_as}" if concealed else "Steps"
        if self.border_title != title:  # setting it repaints the panel
            self.border_title = title
        self.set_class(concealed, "-concealed")
        self._figures.update(timeline)
        text = ""
        if self._figures.known and not concealed:
            mean = self._figures.bits / self._figures.known
            text = f"{scales.bits(mean)} bits/token · perplexity {scales.perplexity(2.0 ** min(mean, 60.0))}"
        if self.border_subtitle != text:
            self.border_subtitle = Content(text)

    def watch_metric(self, metric: str) -> None:
        """Show another metric in the strip and the colours."""
        self._table.metric = metric
        self._strip.metric = scales.METRIC[metric]
        self._fit()
        if self.is_attached:
            self._table.restyle()
            self._strip.redraw()

    def action_page(self, by: int) -> None:
        """Scroll the table by its height."""
        self._table.scroll_relative(y=by * max(1, self._table.size.height - 1), animate=False)

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        """Shorten or hide the strip of a low panel."""
        self.set_class(self.size.height < 8, "-short")
        self.set_class(self.size.height < 4 or not scales.METRIC[self.metric].steps, "-plain")
