"""The text so far, token by token, with a token cursor and heat by a metric.

Drawn line by line from an incremental wrap, so that appending a token to a long text costs what it costs for a
short one. Every cell knows its slot: a click selects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.content import Content
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from engine.records import Step
from inspector import scales
from inspector.display import token_text, visible
from inspector.main.messages import SlotSelected
from inspector.state.timeline import Item, Phase, Timeline
from inspector.widgets.canvas import Row, centred, colourful, is_dark, looks_same, strip_of, why_empty
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.line_count import set_line_count
from inspector.widgets.token_styles import TokenStyles, legend
from inspector.widgets.wrap import NEWLINE, Wrap, WrappedLine

_GUTTER = 2
"""Cells at the left that distinguish the prompt from the completion."""
_BOUNDARY = "▏"
_CACHED_LINES = 512
_ROOMY = 44
"""Cells from which the legend is written out."""

Key = tuple[int, int, bool]
"""What makes two tokens the same on screen: node, id, and whether it is a step."""


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
    HELP = """\
# Text
The prompt (grey, with a bar at the left) and what the model wrote after it. `▏` stands where the completion begins;
the block at the end is the token to come.

- **← →** walk token by token; **click** a token to look at its step
- **m** changes the heat: probability, surprisal, entropy, rank, off. A token the model was sure of stays plain; the
  frame names the thresholds, and the two hottest steps are underlined too
- ~~struck through~~: the sampling settings that are being tried would have picked another token there
- `↵` newline · `⇥` tab · `‹E2 9C›` bytes of an unfinished character · *special tokens* in a style of their own
- drag to select text, **ctrl+c** to copy it
"""

    metric: reactive[str] = reactive("surprisal", init=False)
    """Name of the heat, one of `scales.METRICS`."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._timeline: Timeline | None = None
        self._wrap = Wrap(1)
        self._keys: list[Key] = []
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED_LINES)
        self._token_styles: TokenStyles | None = None
        self._legend: Content | None = None
        self._shown: tuple[object, ...] = ()
        self._slot, self._following, self._generation = 0, True, -1
        self._tail = ""
        self._reading = False
        """Whether a prompt is going through the model, and what it is at is kept in sight."""

    def on_mount(self) -> None:
        self.border_title = "Text"

    # ---- what is shown ----------------------------------------------------------------------

    def show(self, timeline: Timeline) -> None:
        """Show the timeline's present state; only lines that changed are painted again."""
        self._timeline = timeline
        if not self.is_attached or not self.size.area:
            return
        at_end = self.is_vertical_scroll_end or self._reading
        self._place()
        self._repaint_readings(timeline)
        self._repaint_cursor(timeline)
        self._reading = timeline.phase is Phase.PREFILL and timeline.following
        if self._reading:
            middle = _line_being_read(timeline, self._wrap.line_of) - self.size.height // 2
            self.scroll_to(y=max(0, middle), animate=False, immediate=True, force=True)
        elif timeline.following and at_end:
            self.scroll_end(animate=False, immediate=True, force=True)

    def watch_metric(self) -> None:
        """Heat by another metric."""
        self._restyle()

    def _place(self) -> None:
        """Lay out what is new."""
        assert self._timeline is not None
        timeline = self._timeline
        before = len(self._wrap.lines)
        first = before - 1
        if timeline.generation != self._generation or len(timeline.items) < len(self._keys):
            first = self._rewind(timeline)
        fresh = len(self._wrap.line_of) < len(timeline.items)
        self._append(timeline)
        tail = self._finish_mark(timeline)
        if not fresh and first == before - 1 and tail == self._tail:
            return
        self._tail = tail
        self._repaint(first, max(before, len(self._wrap.lines)) + 1 - first)
        self._measure()

    def _rewind(self, timeline: Timeline) -> int:
        """Keep what the old path and the new one have in common; the first line that may differ."""
        common = 0
        for item, key in zip(timeline.items, self._keys, strict=False):
            if _key(item) != key:
                break
            common += 1
        self._generation = timeline.generation
        start = self._wrap.cut(common)
        del self._keys[start:]
        return len(self._wrap.lines) - 1

    def _append(self, timeline: Timeline) -> None:
        boundary = timeline.boundary
        for slot in range(len(self._wrap.line_of), len(timeline.items)):
            item = timeline.items[slot]
            self._wrap.append(_parts(item), _BOUNDARY if slot == boundary > 0 else "")
            self._keys.append(_key(item))

    def _measure(self) -> None:
        """Set how many lines the scroll bar covers."""
        set_line_count(self, len(self._wrap.lines) + self._overhang() if self._keys else 0)

    def _repaint_readings(self, timeline: Timeline) -> None:
        """Where known tokens got new readings or another look, every visible line is drawn again."""
        done = timeline.chunks[-1].done if timeline.chunks else 0
        shown = (
            timeline.readings,
            timeline.trials,
            done,
            timeline.phase if not timeline.items else None,
            timeline.prefilled is None,
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
            self._repaint(*self._span(place))
        self._slot, self._following = slot, following
        if following and not stays:
            self.scroll_end(animate=False, immediate=True, force=True)
        elif not following:
            self._scroll_to_slot(slot)

    def _span(self, slot: int) -> tuple[int, int]:
        """First line of a slot, and how many lines it may take."""
        line_of, last = self._wrap.line_of, len(self._wrap.lines)
        first = line_of[slot] if slot < len(line_of) else last - 1
        end = line_of[slot + 1] if slot + 1 < len(line_of) else last
        return first, end - first + 1

    def _scroll_to_slot(self, slot: int) -> None:
        line, top, height = self._span(slot)[0], self.scroll_offset.y, self.size.height
        if line < top:
            self.scroll_to(y=line, animate=False, immediate=True, force=True)
        elif line >= top + height:
            self.scroll_to(y=line - height + 1, animate=False, immediate=True, force=True)

    def _repaint(self, first: int, count: int) -> None:
        for y in range(first, first + count):
            self._strips.discard(y)
        self.refresh_lines(first, count)

    def _restyle(self) -> None:
        """Another theme or metric: every line looks different."""
        self._token_styles = None
        self._strips.clear()
        if self.is_attached:
            self._show_legend()
            self.refresh()

    def _show_legend(self) -> None:
        short = self.size.width < _ROOMY
        shown = legend(scales.METRIC[self.metric], is_dark(self.app), colourful(self.app), short)
        if not looks_same(shown, self._legend):
            self._legend = shown
            self.border_subtitle = shown

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_size.width - _GUTTER - 1
        if width != self._wrap.width:
            self._wrap, self._keys = Wrap(width), []
            self._strips.clear()
        self._show_legend()
        if self._timeline is not None:
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
        """The selected text as it would be written: real newlines, and none where a line only wrapped."""
        parts = []
        for y, line in enumerate(self._wrap.lines):
            span = selection.get_span(y)
            if span is not None:
                parts.append(_copied(line, span[0] - _GUTTER, None if span[1] < 0 else span[1] - _GUTTER))
        return "".join(parts), "\n"

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        y += self.scroll_offset.y
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._draw(y)
        return strip.apply_offsets(0, y)

    def _draw(self, y: int) -> Strip:
        base = self.rich_style
        timeline = self._timeline
        if timeline is None or not timeline.items:
            return strip_of(self._notice(y), self.size.width, base)
        row: Row = []
        if y < len(self._wrap.lines):
            row = self._gutter(y, timeline) + self._text(y, timeline)
        if y >= len(self._wrap.lines) - 1:
            row += self._end(y, timeline)
        row = _marked(
            row, self.text_selection.get_span(y) if self.text_selection else None, self.selection_style
        )
        return strip_of(row, self.size.width, base)

    def _notice(self, y: int) -> Row:
        failure = self._timeline.load_failure if self._timeline else None
        texts = list(why_empty(self._timeline, "The text appears here, token by token."))
        if failure is not None:
            texts = [visible(failure.message), visible(failure.hint)]
        inks = [self.rich_style, self.ink("muted")]
        rows = centred(list(zip(texts, inks, strict=True)), self.scrollable_size.width - 1, self.size.height)
        y -= self.scroll_offset.y
        return rows[y] if y < len(rows) else []

    def _gutter(self, y: int, timeline: Timeline) -> Row:
        pieces = self._wrap.lines[y].pieces
        prompt = bool(pieces) and pieces[0].slot < timeline.boundary
        return [Segment("▎ " if prompt else "  ", self.ink("faint"))]

    def _text(self, y: int, timeline: Timeline) -> Row:
        styles = self._token_styles = self._token_styles or self._new_styles()
        done = (
            len(timeline.items) if timeline.prefilled else timeline.chunks[-1].done if timeline.chunks else 0
        )
        row: Row = []
        for piece in self._wrap.lines[y].pieces:
            if piece.slot >= len(timeline.items):
                break  # the path became shorter while the panel was hidden: `on_show` lays it out
            selected = piece.slot == timeline.slot
            item = timeline.items[piece.slot]
            other = timeline.other(item) is not None
            row += styles.segments(piece, item, selected, piece.slot >= done, other)
        return row

    def _end(self, y: int, timeline: Timeline) -> Row:
        """The caret after the last token, and why the text ended."""
        row: Row = []
        if y == len(self._wrap.lines) - 1:
            link = Style.from_meta({"slot": len(timeline.items)})
            ink = self.ink("cursor") if timeline.following else self.ink("faint")
            row.append(Segment(" " if timeline.following else "▁", ink + link))
        if self._tail and y == len(self._wrap.lines) - 1 + self._overhang():
            row.append(Segment(("  " if self._overhang() else " ") + self._tail, self.ink("muted")))
        return row

    def _overhang(self) -> int:
        """One more line where the finish mark doesn't fit the last."""
        room = self._wrap.width - self._wrap.lines[-1].cells
        return int(bool(self._tail) and cell_len(self._tail) + 1 > room)

    def _finish_mark(self, timeline: Timeline) -> str:
        finished = timeline.finished.get(timeline.tip)
        if finished is None or timeline.running:
            return ""
        return f"■ {finished.reason} {visible(finished.detail)}".rstrip()

    def _new_styles(self) -> TokenStyles:
        inks = {name: self.ink(name) for name in ("muted", "faint", "special", "cursor", "accent", "warn")}
        inks["base"] = self.rich_style
        return TokenStyles(inks, scales.METRIC[self.metric], is_dark(self.app), colourful(self.app))


def _line_being_read(timeline: Timeline, line_of: Sequence[int]) -> int:
    """The line of the token that goes through the model next, while a prompt does."""
    done = timeline.chunks[-1].done if timeline.chunks else 0
    return line_of[min(done, len(line_of) - 1)] if line_of else 0


def _key(item: Item) -> Key:
    return item.node, item.id, isinstance(item, Step)


def _parts(item: Item) -> list[str]:
    """A token's display text, cut at its line breaks."""
    pending = item.pending if isinstance(item, Step) else b""
    lines = item.text.split("\n")
    if len(lines) == 1:
        return [token_text(item.text, item.raw, pending)]
    return [visible(line) for line in lines]


def _copied(line: WrappedLine, start: int, end: int | None) -> str:
    """What a copy takes of a line: its text between two columns, marks left out."""
    parts, at = [" "] if line.gap and start <= 0 else [], 0
    for piece in line.pieces:
        if not piece.mark:
            stop = len(piece.text) if end is None else end - at
            parts.append(piece.text[max(0, start - at) : max(0, stop)])
        at += len(piece.text)
    text = "".join(parts)
    return text.removesuffix(NEWLINE) + "\n" if line.hard and text.endswith(NEWLINE) else text


def _marked(row: Row, span: tuple[int, int] | None, style: Style) -> Row:
    """A row with the characters of a mouse selection in its style."""
    if span is None:
        return row
    start, end = span[0], (sum(len(s.text) for s in row) if span[1] < 0 else span[1])
    marked: Row = []
    at = 0
    for segment in row:
        text, own = segment.text, segment.style or Style()
        low, high = max(0, start - at), max(0, end - at)
        for part, chosen in ((text[:low], False), (text[low:high], True), (text[max(low, high) :], False)):
            if part:
                marked.append(Segment(part, own + style if chosen else own))
        at += len(text)
    return marked
