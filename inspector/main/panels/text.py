"""The text so far, token by token, with a cursor and colored by a metric; and the panel while there is no text.

It is drawn line by line from an incremental wrap, so that appending a token costs no more in a long text than in a
short one. The style of each cell has its slot: a click selects the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from textual.widgets import Static

from engine.protocol import Failure, Loading, PromptToken, SegmentKind, Step
from engine.thread import WITHOUT_MLX
from inspector import scales
from inspector.config.preferences import VIEWS
from inspector.display import (
    carried,
    hex_bytes,
    pad,
    shown_bytes,
    spaced_hex,
    token_lines,
    truncate,
    visible,
    visible_lines,
)
from inspector.keys import key_for
from inspector.main.tool import OfferedHeat, SlotSelected
from inspector.session.setup import Setup
from inspector.state.conditions import ending
from inspector.state.segments import LETTERS, WRONG, PathRun, PathSegments, Segments
from inspector.state.session_tree import BRANCHES, Item, explained, quoted_label, signs
from inspector.state.speculation import Speculation
from inspector.state.timeline import Phase, Timeline, other
from inspector.widgets.canvas import (
    Row,
    looks_same,
    reveal,
    scroll_at_once,
    set_line_count,
    strip_of,
)
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.token_lines import NEWLINE, TokenStyles, Wrap, WrappedLine, legend, link_of

OFF, BORDERS, IDS, BYTES = VIEWS
_BYTES = 12
"""Maximum bytes shown under a token."""


def under(view: str, items: Sequence[Item], slot: int) -> str:
    """The text under a token: its id or its bytes.

    Args:
        view: One of `VIEWS`.
        items: The path.
        slot: The token's place in it.
    """
    if view == BYTES:
        return shown_bytes(items, slot, _BYTES)
    return str(items[slot].id) if view == IDS else ""


def facts(items: Sequence[Item], slot: int) -> str:
    """A token in a line: `“␣cat”: id 421, 4 bytes 20 63 61 74`."""
    item, before = items[slot], carried(items, slot)
    size = f"{scales.counted(len(item.raw), 'byte')} {spaced_hex(item.raw, _BYTES)}".rstrip()
    after = f" after {hex_bytes(before)}" if before else ""
    return f"{quoted_label(item)}: id {item.id}, {size}{after}"


GUTTER = 2
"""Cells at the left that distinguish the prompt from the completion."""
BOUNDARY = "┊"

Key = tuple[int, int, bool, str, str | None]
"""Tokens with the same key look the same: node, id, whether it is a step, the signs of its marks, and the words of its
fold, which are empty for the fold's other tokens and None outside a fold."""


class TextLines:
    """The wrapped lines of one path; appending a token costs no more in a long text than in a short one.

    Args:
        width: Cells of the panel's rows, the gutter included.
        view: One of `preferences.VIEWS`.
    """

    def __init__(self, width: int, view: str = OFF) -> None:
        self.width, self.view = width, view
        self.height = 2 if view in (IDS, BYTES) else 1
        """Rows of a line: 2 if the lower one has ids or bytes under the tokens."""
        bordered = view != OFF
        self._wrap = Wrap(width - GUTTER - 1 - bordered, bordered)
        self.lines: Sequence[WrappedLine] = self._wrap.lines
        self.rows = self.overhang = 0
        """Rows of the text, 0 if there is none; and 1 if one of them is for a tail that doesn't fit the last line."""
        self._keys: list[Key] = []
        self._version: tuple[object, ...] = ()
        """Versions of the path, of the marks on it and of what is folded."""
        self.roles: Mapping[int, str] = {}
        """Roles of the path's messages, by the slot at which each begins."""
        self.folds: dict[int, str] = {}
        """The words for each slot that is folded: see `Key`."""
        self._folded: tuple[tuple[int, str], ...] = ()
        """First slot of each fold, and its words."""
        self._wrong: Mapping[int, str] = {}
        """Nodes of tokens where tool calls went wrong."""
        self._decided = 0
        """Slot from which the kinds of tokens were provisional at the last update."""
        self.tail = ""
        """The words after the last token: why the text ended, or drafts that were not taken; printable."""

    # ---- laying out -------------------------------------------------------------------------

    def update(self, timeline: Timeline) -> tuple[int, int] | None:
        """Lay out what is new.

        Returns:
            The first row that may have changed, and the number of such rows; None if there are none.
        """
        lines, line_of, items = self._wrap.lines, self._wrap.line_of, timeline.items
        segments, path = timeline.of(Segments), timeline.segments
        before = len(lines)
        first = before - 1
        if segments.folded or self.folds:
            runs = segments.folds(path)
            self._folded = tuple((run.begin, fold_words(run, timeline)) for run in runs)
            self.folds = {slot: "" for run in runs for slot in range(run.begin, run.end)} | dict(self._folded)
        self._wrong = segments.wrong
        version = timeline.generation, timeline.tree.marks.version, len(self._wrong), self._folded
        if self._version != version or len(items) < len(self._keys):
            first, self._version = self._rewind(timeline), version
        fresh = len(line_of) < len(items)
        self._append(timeline)
        decided = len(path.kinds) - path.provisional
        if path.runs and (last := path.runs[-1]).word == last.end:  # it has no letter before its first word
            decided = min(decided, last.begin)
        if newly := self._decided < decided:
            first = min(first, line_of[self._decided])
        self._decided, tail = decided, _tail(timeline)
        if not (fresh or newly or first < before - 1) and tail == self.tail:
            return None
        self.tail = tail
        self.overhang = int(bool(tail) and lines[-1].cells + cell_len(tail) + 1 > self._wrap.width)
        self.rows = len(lines) * self.height + self.overhang if self._keys else 0
        return first * self.height, (max(before, len(lines)) + 1 - first) * self.height

    def _rewind(self, timeline: Timeline) -> int:
        """Keep what the old path and the new one have in common; returns the first line that may differ."""
        self.roles = timeline.prompts.roles(timeline.items)
        common = 0
        for slot in range(min(len(self._keys), len(timeline.items))):
            if self._key(timeline, slot) != self._keys[slot]:
                break
            common += 1
        start = self._wrap.cut(common)
        del self._keys[start:]
        return len(self._wrap.lines) - 1

    def _append(self, timeline: Timeline) -> None:
        items, room = timeline.items, self._wrap.width
        for slot in range(len(self._wrap.line_of), len(items)):
            item = items[slot]
            begins = slot and isinstance(item, Step) != isinstance(items[slot - 1], Step)
            key = self._key(timeline, slot)
            self._keys.append(key)
            edge = BOUNDARY if begins else ""
            if (fold := key[-1]) is not None:
                self._wrap.append([""], edge + truncate(fold, room - 1) if fold else "")
                continue
            shown = truncate(under(self.view, items, slot), room) if self.height > 1 else ""
            self._wrap.append(token_lines(item.text, item.raw), edge + key[-2], shown)

    def _key(self, timeline: Timeline, slot: int) -> Key:
        item = timeline.items[slot]
        marks = WRONG * (item.node in self._wrong) + signs(timeline.tree, item.node)
        return item.node, item.id, isinstance(item, Step), marks, self.folds.get(slot)

    # ---- places -----------------------------------------------------------------------------

    def span(self, slot: int) -> tuple[int, int]:
        """First row of a slot, and the number of rows that it may take."""
        line_of, last = self._wrap.line_of, len(self._wrap.lines)
        first = line_of[slot] if slot < len(line_of) else last - 1
        end = line_of[slot + 1] if slot + 1 < len(line_of) else last
        return first * self.height, (end - first + 1) * self.height

    def copied(self, selection: Selection) -> str:
        """The selected text with the text's own newlines, without those of wrapped lines."""
        parts = []
        for y, line in enumerate(self._wrap.lines):
            span = selection.get_span(y * self.height)
            if span is not None:
                parts.append(_copied(line, span[0] - GUTTER, None if span[1] < 0 else span[1] - GUTTER))
        return "".join(parts)


def _tail(timeline: Timeline) -> str:
    """Why the text ended, or else the tokens that the latest draft proposed and no step took."""
    if timeline.running:
        return ""
    finished = timeline.finished.get(timeline.tip)
    if finished is not None:
        return f"■ {ending(finished)}"
    speculation = timeline.of(Speculation)
    return speculation.ghost_words(timeline.tip) if speculation.latest is not None else ""


def fold_words(run: PathRun, timeline: Timeline) -> str:
    """The words for a folded segment: `▸ thinking, 312 tokens`; without the number while it still grows."""
    name = run.kind or "text"
    if run.end == len(timeline.items):
        return f"▸ {name} "
    tokens = run.end - run.begin
    return f"▸ {name}, {scales.counted(tokens, 'token')} "


def _copied(line: WrappedLine, start: int, end: int | None) -> str:
    """The text of a line between two columns, without marks."""
    parts, at = [" "] if line.gap and start <= 0 else [], 0
    for piece in line.pieces:
        if not piece.mark:
            stop = len(piece.text) if end is None else end - at
            parts.append(piece.text[max(0, start - at) : max(0, stop)])
        at += len(piece.text) + piece.blank + piece.edge
    text = "".join(parts)
    return text.removesuffix(NEWLINE) + "\n" if line.hard and text.endswith(NEWLINE) else text


INKS = ("base", "muted", "faint", "special", "cursor", "accent", "warn", "row", "primary", "good")
"""The named inks that the text is drawn with."""


_SEGMENT_INKS: Mapping[SegmentKind, tuple[str, Style]] = {
    "system": ("warn", Style(bold=True)), "user": ("primary", Style(bold=True)), "thinking": ("special", Style()),
    "answer": ("base", Style()), "tool call": ("good", Style(underline=True)),
    "tool result": ("accent", Style(underline=True, bold=False)), "tools": ("muted", Style(underline=True)),
    "markup": ("faint", Style()),
}  # fmt: skip
"""Ink of the tokens of a kind of segment, and a style that sets them apart without colours."""
_PROVISIONAL = Style(dim=True, italic=True)
"""Style of a token whose kind depends on the next one."""


class TextRows:
    """Draws single rows, for one metric and one theme.

    Args:
        inks: The styles of `INKS`.
        metric: The metric to colour by.
        dark: Whether the theme is dark.
        colourful: Whether the terminal has colours for a scale.
    """

    def __init__(self, inks: Mapping[str, Style], metric: scales.Metric, dark: bool, colourful: bool) -> None:
        self._inks = inks
        self._styles = TokenStyles(inks, metric, dark, colourful)
        self._kinds: dict[SegmentKind | None, Style] = {}
        """Styles by kind of segment; empty if tokens are coloured by another metric."""
        if metric.name == scales.SEGMENT:
            self._kinds = {kind: inks[ink] + style for kind, (ink, style) in _SEGMENT_INKS.items()}

    def row(self, y: int, lines: TextLines, timeline: Timeline) -> Row:
        """One row of the text.

        Args:
            y: Number of the row, from 0.
            lines: The wrapped lines.
            timeline: The timeline with the tokens.
        """
        row: Row = []
        number, lower = divmod(y, lines.height)
        below = number - len(lines.lines) + 1
        if below <= 0:
            line = lines.lines[number]
            row = self._gutter(line, lines, timeline)
            if lower:
                for piece in line.pieces:
                    row += self._styles.under(piece, piece.slot == timeline.slot)
            else:
                row += self._tokens(line, lines, timeline)
        if below == 0 and not lower:  # the caret
            following, link = timeline.following, Style.from_meta({"slot": len(timeline.items)})
            goes_on = timeline.tree.children.get(timeline.tip)
            sign = BRANCHES if goes_on else " " if following else "▁"
            row.append(Segment(sign, self._inks["cursor" if following else "faint"] + link))
        if lines.tail and below == lines.overhang and not lower:
            row.append(Segment(("  " if below else " ") + lines.tail, self._inks["muted"]))
        return row

    def _gutter(self, line: WrappedLine, lines: TextLines, timeline: Timeline) -> Row:
        """The letter of the segment that begins in a line, or else a bar beside the prompt and beside coloured
        segments."""
        items, path = timeline.items, timeline.segments
        if (path.several or lines.roles) and (letter := self._letter(line, lines, path)):
            return [Segment(f"{letter} ", self._inks["accent"])]
        first = line.pieces[0].slot if line.pieces else len(items)
        run = path.at(first) if self._kinds else None
        if run is not None and run.kind in self._kinds:
            return [Segment("▎ ", Style(color=self._kinds[run.kind].color))]
        prompt = first < len(items) and isinstance(items[first], PromptToken)
        return [Segment("▎ " if prompt else "  ", self._inks["faint"])]

    @staticmethod
    def _letter(line: WrappedLine, lines: TextLines, path: PathSegments) -> str:
        """The letter of the last segment with its first word, or its fold, in a line; if there are no two segments,
        of the last message that begins there. Empty if none does."""
        certain = len(path.kinds) - path.provisional
        for slot in (piece.slot for piece in reversed(line.pieces)):
            if not path.several:
                if role := lines.roles.get(slot):
                    return role[:1].upper()
                continue
            run = path.at(slot)
            if run is None or run.kind is None or not run.told:
                continue
            if slot == (run.begin if lines.folds.get(slot) else run.word):
                return LETTERS[run.kind] if run.word < certain else "?"
        return ""

    def _tokens(self, line: WrappedLine, lines: TextLines, timeline: Timeline) -> Row:
        items, path, trial = timeline.items, timeline.segments, timeline.trial
        slot, done, certain = timeline.slot, timeline.held, len(path.kinds) - path.provisional
        row: Row = []
        for piece in line.pieces:
            if piece.slot >= len(items):
                break  # the path became shorter while the panel was hidden: `on_show` lays it out
            if lines.folds.get(piece.slot):
                run = path.at(piece.slot)
                within = run is not None and run.begin <= slot < run.end
                ink = self._inks["cursor" if within else "accent"]
                row.append(Segment(piece.text, ink + link_of(piece)))
                continue
            item = items[piece.slot]
            differs = trial is not None and other(trial, item) is not None
            own = self._kinds.get(path.kinds[piece.slot]) if self._kinds else None
            if own is not None and piece.slot >= certain:
                own += _PROVISIONAL
            row += self._styles.segments(
                piece, item, piece.slot == slot, piece.slot >= done, differs, own, lines.view != OFF
            )
        return row


def marked(row: Row, span: tuple[int, int] | None, style: Style) -> Row:
    """A row with the characters of a mouse selection in a style."""
    if span is None:
        return row
    start, end = span[0], (sum(len(s.text) for s in row) if span[1] < 0 else span[1])
    marked: Row = []
    at = 0
    for segment in row:
        text, own = segment.text, segment.style or Style()
        low, high = max(0, start - at), max(0, end - at)
        parts = (text[:low], own), (text[low:high], own + style), (text[max(low, high) :], own)
        marked += [Segment(part, ink) for part, ink in parts if part]
        at += len(text)
    return marked


_CACHED_ROWS = 256
"""Number of cached rows, some 13 KB each: more than any screen shows."""
_TITLES = {
    OFF: "Text",
    BORDERS: "Text, token by token",
    IDS: "Text, token by token with ids",
    BYTES: "Text, token by token with bytes",
}
LEAST_TITLE, SWATCHES = 12, 28
"""Minimum cells of the title of a view's shares, and cells of the colour steps after it with the frame around both."""


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
    """Name of the metric that colours the text, one of `scales.METRICS`."""
    view: reactive[str] = reactive(OFF, init=False)
    """The way tokens are set apart, one of `preferences.VIEWS`."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.lent = False
        """True if a lesson draws the borders of tokens for a while, and the user's own view is plain text."""
        self._timeline: Timeline | None = None
        self._lines = TextLines(1)
        self._rows: TextRows | None = None
        """Draws the rows; None after a change of the theme or the metric."""
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED_ROWS)
        self._legend: Content | None = None
        self._offered: OfferedHeat | None = None
        """The token shares for `scales.INSIDE`."""
        self._shown: tuple[object, ...] = ()
        self._concealed = "", False
        """The reason why the text is concealed, empty if it isn't; and whether its colours are, which would show how
        sure the model was."""
        self._slot, self._following = 0, True
        self._reading = False
        """True if a prompt is going through the model, and the panel scrolls along with it."""

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
            set_line_count(self, self._lines.rows)
        text = timeline.concealed_as if timeline.conceals("text") else ""
        concealed = text, timeline.conceals("text", "probabilities")
        if concealed != self._concealed:
            self._concealed = concealed
            self.border_title = f"Text · {text}" if text else _TITLES[self.view]
            self._restyle()
        held = timeline.held if timeline.prompts.reading else -1
        shown = timeline.readings, timeline.trials, held, timeline.phase if not timeline.items else None
        if shown != self._shown:  # known tokens have new readings or another look
            self._shown = shown
            self._strips.clear()
            self.refresh()
        if (slot := timeline.slot) != self._slot:
            before, followed = self._slot, self._following
            self._slot, self._following = slot, timeline.following
            if not (timeline.following and followed):  # else it moves with the tokens that are new
                for place in (before, slot):
                    self._repaint(*self._lines.span(place))
                if timeline.following:
                    scroll_at_once(self)
                else:
                    self._scroll_to_slot()
        self._reading = timeline.phase is Phase.PREFILL and timeline.following
        if self._reading:
            scroll_at_once(self, self._lines.span(timeline.held)[0] - self.size.height // 2)
        elif timeline.following and at_end:
            scroll_at_once(self)

    def watch_metric(self) -> None:
        self._restyle()

    def offer(self, heat: OfferedHeat | None) -> None:
        """Set the token shares that colour the text while the metric is `scales.INSIDE`; None for no colours."""
        if heat is not self._offered and heat != self._offered:
            self._offered = heat
            self._restyle()

    def watch_view(self, view: str) -> None:
        """Lay all tokens out again: with borders, ids or bytes they are in other places."""
        self.border_title = _TITLES[view]
        self._lay_out()

    def _lay_out(self) -> None:
        self._lines = TextLines(self.scrollable_size.width, self.view)
        self._strips.clear()
        self._show_slot()
        self.refresh()

    def _show_slot(self) -> None:
        """Show the timeline at another size, and keep the selected token in view."""
        if self._timeline is not None:
            self.show(self._timeline)
            set_line_count(self, self._lines.rows)
            self._scroll_to_slot()

    def _scroll_to_slot(self) -> None:
        reveal(self, self._lines.span(self._slot)[0], self._lines.height - 1)  # with the row under its line

    def _repaint(self, first: int, count: int) -> None:
        for y in range(first, first + count):
            self._strips.discard(y)
        self.refresh_lines(first, count)

    def _restyle(self) -> None:
        """Draw every row again, in another theme or by another metric."""
        self._rows = None
        self._strips.clear()
        if self.is_attached:
            self._show_legend()
            self.refresh()

    def _show_legend(self) -> None:
        shown = legend(self._coloured_by, self.dark, self.colorful)
        if not looks_same(shown, self._legend):
            self._legend = shown
            self.border_subtitle = shown

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._show_legend()
        if self.scrollable_size.width != self._lines.width:
            self._lay_out()
        else:
            self._show_slot()

    def on_show(self) -> None:
        """Catch up with what happened while the panel was hidden."""
        if self._timeline is not None:
            self.show(self._timeline)
            if self._timeline.following:
                scroll_at_once(self)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._restyle()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the token under the mouse: the signs of its marks in words, and with borders its id and bytes."""
        slot, timeline = event.style.meta.get("slot"), self._timeline
        lines = []
        if timeline is not None and slot is not None and slot < len(timeline.items):
            lines = [facts(timeline.items, slot)] if self.view != OFF else []
            node = timeline.items[slot].node
            lines += explained(timeline.tree, node)
            if (why := timeline.of(Segments).wrong.get(node)) is not None:
                lines.append(f"{WRONG} a tool call went wrong here: {visible(why)}")
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
        """The selected text, and the string that ends it."""
        return self._lines.copied(selection), "\n"

    # ---- drawing ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        at, timeline = y + self.scroll_offset.y, self._timeline
        if (strip := self._strips.get(at)) is None:
            if self._rows is None:
                inks = {name: self.ink(name) for name in INKS}
                self._rows = TextRows(inks, self._coloured_by, self.dark, self.colorful)
            row: Row = []
            # while there is no text, another panel is shown instead of this one
            if timeline is not None and timeline.items and not self._concealed[0]:
                row = self._rows.row(at, self._lines, timeline)
                if self.text_selection is not None:
                    row = marked(row, self.text_selection.get_span(at), self.ink("marked"))
            strip = self._strips[at] = strip_of(row, self.size.width, self.ink("base"))
        return strip.apply_offsets(0, at)

    @property
    def _coloured_by(self) -> scales.Metric:
        """The metric that the text is coloured by."""
        offered, heat = self._offered, "off" if self._concealed[1] else self.metric
        if heat != scales.INSIDE or offered is None:
            return scales.METRIC[heat]
        title = truncate(offered.title, max(LEAST_TITLE, self.outer_size.width - SWATCHES))
        return scales.shares_metric(title, offered.shares, offered.signed)


# ---- before there is a text ---------------------------------------------------------------------

STAGES = {
    "import": "starting MLX",
    "download": "downloading",
    "weights": "reading the weights",
    "ranks": "starting the ranks",
    "tokenizer": "reading the tokenizer",
}
OFFERS = (
    ("lessons", "lessons: predict, do it, and see"),
    ("help", "keys and concepts"),
    ("sessions", "sessions"),
)
"""Actions that a new user may try meanwhile."""
BAR = 30
MOST_SHOWN = 2000
"""Maximum characters shown of a prompt that waits, since they are laid out again with every record."""


def opening(timeline: Timeline, setup: Setup) -> Content:
    """The message while there is no text, made printable: loading, no prompt, or a failure."""
    if timeline.phase is Phase.FAILED and timeline.load_failure is not None:
        failed = f"{visible(setup.load.model)} could not be loaded"
        helps = ("open", "opens another model")
        if timeline.load_failure.hint.endswith(WITHOUT_MLX):
            helps = ("sessions", "shows a saved session")
        return _failed(failed, timeline.load_failure, (helps, ("quit", "quits")))
    if timeline.phase is Phase.EMPTY and timeline.prompts.failure is not None:
        return _failed("The prompt was refused", timeline.prompts.failure, (("prompt", "changes it"),))
    if timeline.phase is Phase.LOADING:
        lines = _loading(timeline.loading, setup)
    elif setup.prompt.text:
        lines = _prompt(setup, "The prompt:")
    else:
        press = f"Press {key_for('prompt')} to give one: the model reads it (prefill)"
        what = (
            "The card below says what to do"
            if timeline.narrated
            else f"{press}, and then every token is yours to step"
        )
        lines = [
            Content.styled("The model is loaded; there is no prompt yet.", "bold"),
            Content(),
            Content(f"{what}."),
        ]
    wide = max(cell_len(key_for(id)) for id, _ in OFFERS)
    return Content("\n").join([*lines, Content(), *(_keys([offer], wide) for offer in OFFERS)])


def _loading(loading: Loading | None, setup: Setup) -> list[Content]:
    stage = "starting the engine"
    if loading is not None:
        stage = STAGES[loading.stage] + (f" · {visible(loading.detail)}" if loading.detail else "")
    lines = [Content.styled(f"Loading {visible(setup.load.model)}", "bold"), Content(), Content(stage)]
    if loading is not None and loading.total:
        full = BAR * min(loading.done, loading.total) // loading.total
        bar = Content.styled("━" * full, "$primary") + Content.styled("━" * (BAR - full), "$foreground 20%")
        lines.append(bar + Content(f"  {100 * loading.done // loading.total} %"))
    lines.append(Content())
    if loading is not None and loading.warning:
        keys = _keys((("open", "opens another model"), ("quit", "quits")))
        lines += [Content.styled(visible_lines(loading.warning), "$text-warning"), Content(), keys, Content()]
    return [*lines, *_prompt(setup, "The prompt that waits for the model:")]


def _keys(actions: Sequence[tuple[str, str]], wide: int = 0) -> Content:
    """The keys of actions, padded to a number of cells, and what they do."""
    return Content("   ").join(
        Content.styled(pad(key_for(id), max(wide, cell_len(key_for(id)))), "bold $text-primary")
        + Content(f" {does}")
        for id, does in actions
    )


def _prompt(setup: Setup, label: str) -> list[Content]:
    if not setup.prompt.text:
        return [Content.styled(f"No prompt was given. Press {key_for('prompt')} to give one.", "$ink-muted")]
    text = setup.prompt.text
    lines = [Content.styled(label, "$ink-muted"), Content(visible_lines(text[:MOST_SHOWN]))]
    if (more := len(text) - MOST_SHOWN) > 0:
        lines.append(Content.styled(f"… and {more:,} characters more", "$ink-muted"))
    return lines


def _failed(what: str, failure: Failure, actions: Sequence[tuple[str, str]]) -> Content:
    """A failure, its reason, and the actions that help; `what` is printable."""
    why, advice = Content(visible_lines(failure.message)), Content(visible_lines(failure.hint))
    lines = [Content.styled(what, "bold $text-error"), why, advice, Content(), _keys(actions)]
    return Content("\n").join(lines)


class OpeningPanel(Static, can_focus=True):
    """The panel that is shown while there is no text, with the message of `opening`."""

    BORDER_TITLE = "Text"
    _told: Content | None = None

    def show(self, timeline: Timeline, setup: Setup) -> None:
        """Show the message for the present state."""
        told = opening(timeline, setup)
        if not looks_same(self._told, told):
            self._told = told
            self.update(told, layout=False)  # the text has no part in the panel's size
