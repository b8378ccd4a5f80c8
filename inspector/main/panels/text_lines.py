"""Where the tokens of a path lie in the rows of the text, and which rows differ from what was laid out before."""

from __future__ import annotations

from rich.cells import cell_len
from textual.selection import Selection

from engine.protocol import Step
from inspector.display import token_text, truncate, unfinished, visible
from inspector.main.panels.token_views import OFF, TWO_ROWS, under
from inspector.state.mark_words import signs
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.wrap import NEWLINE, Wrap, WrappedLine

GUTTER = 2
"""Cells at the left that distinguish the prompt from the completion."""
BOUNDARY = "▏"

Key = tuple[int, int, bool, str]
"""What makes two tokens the same on screen: node, id, whether it is a step, and the signs of its marks."""


class TextLines:
    """The wrapped lines of one path; appending a token to a long text costs what it costs for a short one.

    Args:
        width: Cells of the panel's rows, the gutter included.
        view: One of `preferences.VIEWS`.
    """

    def __init__(self, width: int, view: str = OFF) -> None:
        self.width, self.view = width, view
        self.height = 2 if view in TWO_ROWS else 1
        """Rows of a line: the lower one has what stands under the tokens."""
        bordered = view != OFF
        self._wrap = Wrap(width - GUTTER - 1 - bordered, bordered)
        self._keys: list[Key] = []
        self._version = (-1, -1)
        """Of the path and of the marks on it."""
        self.tail = ""
        """After the last token: why the text ended, or drafts that were not taken; printable."""

    # ---- laying out -------------------------------------------------------------------------

    def update(self, timeline: Timeline) -> tuple[int, int] | None:
        """Lay out what is new.

        Returns:
            The first row that may have changed and how many those are; None where none has.
        """
        before = len(self._wrap.lines)
        first = before - 1
        if self._version != _version(timeline) or len(timeline.items) < len(self._keys):
            first = self._rewind(timeline)
        fresh = len(self._wrap.line_of) < len(timeline.items)
        self._append(timeline)
        tail = finish_mark(timeline) or _ghosts(timeline)
        if not fresh and first == before - 1 and tail == self.tail:
            return None
        self.tail = tail
        return first * self.height, (max(before, len(self._wrap.lines)) + 1 - first) * self.height

    def _rewind(self, timeline: Timeline) -> int:
        """Keep what the old path and the new one have in common; the first line that may differ."""
        common = 0
        for slot in range(min(len(self._keys), len(timeline.items))):
            if _key(timeline, slot) != self._keys[slot]:
                break
            common += 1
        self._version = _version(timeline)
        start = self._wrap.cut(common)
        del self._keys[start:]
        return len(self._wrap.lines) - 1

    def _append(self, timeline: Timeline) -> None:
        items, room = timeline.items, self._wrap.width
        for slot in range(len(self._wrap.line_of), len(items)):
            begins = slot and isinstance(items[slot], Step) != isinstance(items[slot - 1], Step)
            key = _key(timeline, slot)
            self._keys.append(key)
            shown = truncate(under(self.view, items, slot), room)
            self._wrap.append(_parts(items[slot]), (BOUNDARY if begins else "") + key[-1], shown)

    # ---- places -----------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows that the text takes, 0 where there is none."""
        return len(self._wrap.lines) * self.height + self._overhang if self._keys else 0

    @property
    def _overhang(self) -> int:
        """One more row where the tail doesn't fit the last line."""
        room = self._wrap.width - self._wrap.lines[-1].cells
        return int(bool(self.tail) and cell_len(self.tail) + 1 > room)

    def line(self, y: int) -> WrappedLine | None:
        """The line that a row shows, or that it is the lower row of; None below the text."""
        number = y // self.height
        return self._wrap.lines[number] if number < len(self._wrap.lines) else None

    def is_lower(self, y: int) -> bool:
        """Whether a row shows what stands under the tokens."""
        return y % self.height == 1 and self.line(y) is not None

    def ends(self, y: int) -> bool:
        """Whether the caret is in a row."""
        return y == (len(self._wrap.lines) - 1) * self.height

    def tail_at(self, y: int) -> str:
        """What a row shows of the tail, with the space before it."""
        last = (len(self._wrap.lines) - 1) * self.height
        if not self.tail or y != last + self._overhang * self.height:
            return ""
        return ("  " if self._overhang else " ") + self.tail

    def span(self, slot: int) -> tuple[int, int]:
        """First row of a slot, and how many rows it may take."""
        line_of, last = self._wrap.line_of, len(self._wrap.lines)
        first = line_of[slot] if slot < len(line_of) else last - 1
        end = line_of[slot + 1] if slot + 1 < len(line_of) else last
        return first * self.height, (end - first + 1) * self.height

    def copied(self, selection: Selection) -> str:
        """The selected text as it would be written: real newlines, and none where a line only wrapped."""
        parts = []
        for y, line in enumerate(self._wrap.lines):
            span = selection.get_span(y * self.height)
            if span is not None:
                parts.append(_copied(line, span[0] - GUTTER, None if span[1] < 0 else span[1] - GUTTER))
        return "".join(parts)


def finish_mark(timeline: Timeline) -> str:
    """Why the text ended; empty while it hasn't."""
    finished = timeline.finished.get(timeline.tip)
    if finished is None or timeline.running:
        return ""
    return f"■ {finished.reason} {visible(finished.detail)}".rstrip()


def _ghosts(timeline: Timeline) -> str:
    """What a draft proposed and no step took, while it was that of the latest round; empty for nothing."""
    return "" if timeline.running else timeline.speculation.ghost_words(timeline.tip)


def _version(timeline: Timeline) -> tuple[int, int]:
    return timeline.generation, timeline.tree.marks.version


def _key(timeline: Timeline, slot: int) -> Key:
    item = timeline.items[slot]
    return item.node, item.id, isinstance(item, Step), signs(timeline, slot)


def _parts(item: Item) -> list[str]:
    """A token's display text, cut at its line breaks."""
    lines = item.text.split("\n")
    if len(lines) == 1:
        return [token_text(item.text, item.raw, unfinished(item.raw))]
    return [visible(line) for line in lines]


def _copied(line: WrappedLine, start: int, end: int | None) -> str:
    """What a copy takes of a line: its text between two columns, marks left out."""
    parts, at = [" "] if line.gap and start <= 0 else [], 0
    for piece in line.pieces:
        if not piece.mark:
            stop = len(piece.text) if end is None else end - at
            parts.append(piece.text[max(0, start - at) : max(0, stop)])
        at += len(piece.text) + piece.blank + piece.edge
    text = "".join(parts)
    return text.removesuffix(NEWLINE) + "\n" if line.hard and text.endswith(NEWLINE) else text
