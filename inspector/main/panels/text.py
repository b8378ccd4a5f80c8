"""The text so far, token by token, with a token cursor and heat by a metric.

Drawn line by line from an incremental wrap, so that appending a token to a long text costs what it costs for a
short one. Every cell knows its slot: a click selects it.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.content import Content
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from inspector import scales
from inspector.main.messages import SlotSelected
from inspector.main.panels.text_lines import TextLines
from inspector.main.panels.text_rows import INKS, TextRows, marked
from inspector.main.panels.token_views import BORDERS, BYTES, IDS, OFF, facts
from inspector.state.mark_words import explained
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.canvas import CONCEALED, colourful, is_dark, looks_same, strip_of
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.line_count import set_line_count
from inspector.widgets.token_styles import legend

_CACHED_ROWS = 512
_TITLES = {
    OFF: "Text",
    BORDERS: "Text, token by token",
    IDS: "Text, token by token with ids",
    BYTES: "Text, token by token with bytes",
}
_ROOMY = 44
"""Cells from which the legend is written out."""


class TextPanel(ScrollView, Inked, can_focus=True, inherit_bindings=False):
    """Prompt and completion as one text; each token can be selected."""

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = (
        panel_css("TextPanel")
        + "TextPanel { overflow-x: hidden; scrollbar-gutter: stable; padding: 0 0 0 1; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
    ]

    metric: reactive[str] = reactive("surprisal", init=False)
    """Name of the heat, one of `scales.METRICS`."""
    view: reactive[str] = reactive(OFF, init=False)
    """How it shows where tokens begin and end, one of `preferences.VIEWS`."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.lent = False
        """Whether a lesson draws the borders of tokens for a while, where the person has plain text."""
        self._timeline: Timeline | None = None
        self._lines = TextLines(1)
        self._rows: TextRows | None = None
        """None where the theme or the metric changed."""
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED_ROWS)
        self._legend: Content | None = None
        self._shown: tuple[object, ...] = ()
        self._concealed = False, False
        """Whether the text, and whether its heat, is to be predicted."""
        self._slot, self._following = 0, True
        self._reading = False
        """Whether a prompt is going through the model, and what it is at is kept in sight."""

    def on_mount(self) -> None:
        self.border_title = _TITLES[self.view]

    # ---- what is shown ----------------------------------------------------------------------

    def show(self, timeline: Timeline) -> None:
        """Show the timeline's present state; only rows that changed are painted again."""
        self._timeline = timeline
        if not self.is_attached or not self.size.area:
            return
        at_end = self.is_vertical_scroll_end or self._reading
        if (changed := self._lines.update(timeline)) is not None:
            self._repaint(*changed)
            self._measure()
        self._conceal(timeline.conceals("text"), timeline.conceals("text", "probabilities"))
        self._repaint_readings(timeline)
        self._repaint_cursor(timeline)
        self._reading = timeline.phase is Phase.PREFILL and timeline.following
        if self._reading:
            middle = self._lines.span(timeline.held)[0] - self.size.height // 2
            self.scroll_to(y=max(0, middle), animate=False, immediate=True, force=True)
        elif timeline.following and at_end:
            self.scroll_end(animate=False, immediate=True, force=True)

    def _conceal(self, text: bool, heat: bool) -> None:
        """Draw no text, or no heat, which tells how sure the model was, where that is to be predicted."""
        if (text, heat) != self._concealed:
            self._concealed = text, heat
            self.border_title = f"Text · {CONCEALED}" if text else _TITLES[self.view]
            self._restyle()

    def watch_metric(self) -> None:
        """Heat by another metric."""
        self._restyle()

    @property
    def own_view(self) -> str:
        """How the person has tokens drawn."""
        return OFF if self.lent else self.view

    def watch_view(self, view: str) -> None:
        """Borders, ids or bytes: every token lies elsewhere."""
        self.border_title = _TITLES[view]
        self._lay_out()

    def _lay_out(self) -> None:
        """Lay out all tokens anew, and keep the one that is looked at in view."""
        self._lines = TextLines(self.scrollable_size.width, self.view)
        self._strips.clear()
        if self._timeline is not None:
            self.show(self._timeline)
            self._measure()
            self._scroll_to_slot(self._slot)
        self.refresh()

    def _measure(self) -> None:
        """Set how many rows the scroll bar covers."""
        set_line_count(self, self._lines.rows)

    def _repaint_readings(self, timeline: Timeline) -> None:
        """Where known tokens got new readings or another look, every visible row is drawn again."""
        shown = (
            timeline.readings,
            timeline.trials,
            timeline.held if timeline.prompts.reading else -1,
            timeline.phase if not timeline.items else None,
        )
        if shown != self._shown:
            self._shown = shown
            self._strips.clear()
            self.refresh()

    def _repaint_cursor(self, timeline: Timeline) -> None:
        slot, following = timeline.slot, timeline.following
        if slot == self._slot:
            return
        stays = following and self._following
        for place in (self._slot, slot):
            self._repaint(*self._lines.span(place))
        self._slot, self._following = slot, following
        if following and not stays:
            self.scroll_end(animate=False, immediate=True, force=True)
        elif not following:
            self._scroll_to_slot(slot)

    def _scroll_to_slot(self, slot: int) -> None:
        row, top = self._lines.span(slot)[0], self.scroll_offset.y
        room = self.size.height - self._lines.height  # above the line of the slot, where that is the last
        if row < top:
            self.scroll_to(y=row, animate=False, immediate=True, force=True)
        elif row > top + room:
            self.scroll_to(y=row - room, animate=False, immediate=True, force=True)

    def _repaint(self, first: int, count: int) -> None:
        for y in range(first, first + count):
            self._strips.discard(y)
        self.refresh_lines(first, count)

    def _restyle(self) -> None:
        """Another theme or metric: every row looks different."""
        self._rows = None
        self._strips.clear()
        if self.is_attached:
            self._show_legend()
            self.refresh()

    def _show_legend(self) -> None:
        short = self.size.width < _ROOMY
        shown = legend(scales.METRIC[self._heat], is_dark(self.app), colourful(self.app), short)
        if not looks_same(shown, self._legend):
            self._legend = shown
            self.border_subtitle = shown

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._show_legend()
        if self.scrollable_size.width != self._lines.width:
            self._lay_out()
        elif self._timeline is not None:
            self.show(self._timeline)
            self._measure()
            self._scroll_to_slot(self._slot)

    def on_show(self) -> None:
        """Catch up with what happened while the panel was hidden."""
        if self._timeline is not None:
            self.show(self._timeline)
            if self._timeline.following:
                self.scroll_end(animate=False, immediate=True, force=True)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._restyle()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """What is under the mouse: the signs of a token's marks in words, and with borders its id and bytes."""
        slot, timeline = event.style.meta.get("slot"), self._timeline
        lines = []
        if timeline is not None and slot is not None and slot < len(timeline.items):
            lines = [facts(timeline.items, slot)] if self.view != OFF else []
            lines += explained(timeline, slot)
        self.tooltip = Content("\n".join(lines)) if lines else None

    def on_click(self, event: events.Click) -> None:
        slot = event.style.meta.get("slot")
        if slot is not None and self.text_selection is None:
            self.post_message(SlotSelected(slot))

    # ---- selecting and copying --------------------------------------------------------------

    @property
    def allow_select(self) -> bool:
        return True

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it would be written."""
        return self._lines.copied(selection), "\n"

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._draw(y)
        return strip.apply_offsets(0, y)

    def _draw(self, y: int) -> Strip:
        rows = self._rows = self._rows or self._new_rows()
        timeline = self._timeline
        if timeline is None or not timeline.items:
            notice = rows.notice(timeline, self.scrollable_size.width - 1, self.size.height)
            y -= self.scroll_offset.y
            row = notice[y] if y < len(notice) else []
        elif self._concealed[0]:
            row = []
        else:
            row = rows.row(y, self._lines, timeline)
            if self.text_selection is not None:
                row = marked(row, self.text_selection.get_span(y), self.ink("marked"))
        return strip_of(row, self.size.width, self.rich_style)

    def _new_rows(self) -> TextRows:
        inks = {name: self.ink(name) for name in INKS} | {"base": self.rich_style}
        return TextRows(inks, scales.METRIC[self._heat], is_dark(self.app), colourful(self.app))

    @property
    def _heat(self) -> str:
        """Name of the metric that the text is coloured by."""
        return "off" if self._concealed[1] else self.metric
