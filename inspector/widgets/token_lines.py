"""Tokens laid out in lines, and their styles: prompt or completion, special, unfinished, and colored by a metric.

Appending changes only the last lines, however many are above them. Words stay whole if they fit a line. A token is one
piece, or several if it contains line breaks or is wider than the line. One column more than the given width is used for
`↵`, a border or the caret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.style import Style as ContentStyle

from engine.protocol import PromptToken
from inspector import scales
from inspector.display import SPACE, hex_bytes, pad
from inspector.keys import key_for
from inspector.state.session_tree import Item
from inspector.widgets.rows import heat_style as heat_style

NEWLINE = "↵"
_NOWHERE = -1


class TextPiece(NamedTuple):
    """The part of a token in one line."""

    slot: int
    text: str
    cells: int
    opens: bool
    """True if a line may break before it."""
    mark: bool = False
    """True if it is a sign next to a token and not text: left out of a copy."""
    under: str = ""
    """The text under it, for which its cells have room."""
    edge: bool = False
    """True if its last cell is the token's border."""

    @property
    def blank(self) -> int:
        """Empty cells between the text and the border, if the text under it is wider."""
        return self.cells - cell_len(self.text) - self.edge


class WrappedLine(Struct):
    """One line on the screen."""

    soft: bool = False
    """True if it continues the paragraph of the line above."""
    pieces: list[TextPiece] = field(default_factory=list)
    cells: int = 0
    hard: bool = False
    """True if it ends with a newline of the text."""
    gap: bool = False
    """True if the space before its first word is not drawn, since it is a soft line."""


class Wrap:
    """Lines of tokens, and the line in which each token begins.

    Args:
        width: Cells of a line, at least 1; one column more may be used.
        bordered: Whether each token ends with a border; then a line break is part of a token's text, and spaces are
            never left out.
    """

    def __init__(self, width: int, bordered: bool = False) -> None:
        self.width = max(1, width)
        self._bordered = bordered
        self.lines: list[WrappedLine] = [WrappedLine()]
        self.line_of: list[int] = []
        """The line in which each slot begins."""

    def append(self, parts: Sequence[str], mark: str = "", under: str = "") -> None:
        """Add the next token.

        Args:
            parts: Its display text, split at its line breaks.
            mark: Signs in front of it.
            under: Text under a bordered token; at most as wide as a line.
        """
        slot = len(self.line_of)
        self.line_of.append(_NOWHERE)
        if mark:
            self._place(slot, mark, mark=True)
        end = len(parts) - 1
        for number, part in enumerate(parts):
            if self._bordered:
                if text := part if number == end else part + NEWLINE:
                    last = number == end or (number == end - 1 and not parts[end])
                    self._place(slot, text, under="" if number else under, edge=last)
            else:
                if part:
                    self._place(slot, part)
                if number < end:
                    self._add(TextPiece(slot, NEWLINE, 1, False))
            if number < end:
                self.lines[-1].hard = True
                self.lines.append(WrappedLine())
        if self.line_of[slot] == _NOWHERE:  # nothing of it is drawn
            self.line_of[slot] = len(self.lines) - 1

    def cut(self, slot: int) -> int:
        """Remove the tokens from a slot on, and those before it with places that may depend on them.

        Returns:
            The slot from which tokens have to be appended again.
        """
        if slot >= len(self.line_of):
            return len(self.line_of)
        index = max(0, self.line_of[slot] - 1)
        while index and not self._begins_clean(index):
            index -= 1
        first = self.lines[index].pieces[0].slot if self.lines[index].pieces else 0
        soft = self.lines[index].soft
        del self.lines[index:], self.line_of[first:]
        self.lines.append(WrappedLine(soft))
        return first

    def _begins_clean(self, index: int) -> bool:
        """True if the first piece of a line is the beginning of its token."""
        pieces = self.lines[index].pieces
        return bool(pieces) and self.line_of[pieces[0].slot] == index

    def _place(self, slot: int, text: str, mark: bool = False, under: str = "", edge: bool = False) -> None:
        line, cells = self.lines[-1], cell_len(text)
        cells = max(cells, cell_len(under)) if under else cells
        before = line.pieces[-1] if line.pieces else None
        opens = mark or before is None
        if before is not None and not mark and not before.mark:  # at a space, and next to a wide character
            opens = text[0] == " " or 2 in map(get_character_cell_size, (text[0], before.text[-1]))
        if line.cells + cells <= self.width and (line.pieces or not line.soft):  # as most do
            self._add(TextPiece(slot, text, cells + edge, opens, mark, under, edge))
            return
        if self.lines[-1].cells + cells > self.width and self.lines[-1].pieces:
            self._wrap(opens, cells)
        line = self.lines[-1]
        if line.soft and not line.pieces and not self._bordered and text[0] == " " and text.strip(" "):
            text, line.gap = text[1:], True
        parts = self._split(text)
        for number, part in enumerate(parts):
            if number:
                self.lines.append(WrappedLine(soft=True))
            shown, last = "" if number else under, edge and number == len(parts) - 1
            cells = max(cell_len(part), cell_len(shown)) + last
            self._add(TextPiece(slot, part, cells, opens and not number, mark, shown, last))

    def _add(self, piece: TextPiece) -> None:
        line = self.lines[-1]
        line.pieces.append(piece if piece.opens or line.pieces else piece._replace(opens=True))
        line.cells += piece.cells
        if self.line_of[piece.slot] == _NOWHERE:
            self.line_of[piece.slot] = len(self.lines) - 1

    def _wrap(self, opens: bool, cells: int) -> None:
        """Begin a soft line, and move the unfinished word there if it fits."""
        index = len(self.lines) - 1
        pieces = self.lines[-1].pieces
        start = len(pieces)
        if not opens:
            start = next((n for n in range(len(pieces) - 1, 0, -1) if pieces[n].opens), len(pieces))
            if sum(piece.cells for piece in pieces[start:]) + cells > self.width:
                start = len(pieces)
        moved = pieces[start:]
        del pieces[start:]
        self.lines[-1].cells = sum(piece.cells for piece in pieces)
        self.lines.append(WrappedLine(soft=True))
        self._carry(moved, index)

    def _carry(self, moved: Sequence[TextPiece], index: int) -> None:
        """Put the beginning of a word into the line that was begun for it."""
        line = self.lines[-1]
        for piece in moved:
            if not line.pieces and not self._bordered and piece.text[0] == " " and piece.text.strip(" "):
                piece, line.gap = piece._replace(text=piece.text[1:], cells=piece.cells - 1), True
            self._add(piece)
            if self.line_of[piece.slot] == index:
                self.line_of[piece.slot] = index + 1

    def _split(self, text: str) -> list[str]:
        """A text split so that it fits the rest of this line, and then whole lines."""
        room = self.width - self.lines[-1].cells
        if cell_len(text) <= room:
            return [text]
        parts, part, cells = [], "", 0
        for char in text:
            size = get_character_cell_size(char)
            if cells + size > room and part:
                parts.append(part)
                part, cells, room = "", 0, self.width
            part, cells = part + char, cells + size
        return [*parts, part]


# ---- how a token looks ----------------------------------------------------------------------


_EDGE = "│"
_REVERSED = Style(reverse=True)
_STRUCK = Style(strike=True, bold=True)


def legend(metric: scales.Metric, dark: bool, colourful: bool) -> Content:
    """The legend of a metric: the thresholds of the color scale, each on its color."""
    if metric.name == scales.SEGMENT:
        return Content("segment that each token belongs to")
    if metric.name == scales.INSIDE:
        return Content("inside: nothing to colour by yet")
    if not metric.steps:
        return Content(f"{key_for('metric')} colour")
    sign = "" if metric.name not in scales.METRIC else "< " if metric.falling else "≥ "
    edges = [edge * 100 if metric.top == 1.0 else edge for edge in metric.steps]
    unit = "%" if metric.top == 1.0 else metric.unit
    shown = Content(f"{metric.name} {sign}") + swatches(edges, dark, colourful, metric.signed)
    return shown + Content(f" {unit}" if unit else "")


def swatches(edges: Sequence[float], dark: bool, colourful: bool, signed: bool = False) -> Content:
    """The value at which each step of the color scale begins, on its color."""
    return Content("").join(
        Content.styled(f" {edge:g} ", ContentStyle.from_rich_style(heat_style(step, dark, colourful, signed)))
        for step, edge in enumerate(edges, start=1)
    )


class TokenStyles:
    """Styles of the running text, for one metric and one theme.

    Args:
        inks: Named styles on the panel's ground: `base`, `muted`, `faint`, `special`, `cursor`, `accent`, `warn`, and
            `row` for the ground of every other token with borders.
        metric: The metric to color by.
        dark: Whether the theme is dark.
        colourful: Whether the terminal has colours for a scale.
    """

    def __init__(self, inks: Mapping[str, Style], metric: scales.Metric, dark: bool, colourful: bool) -> None:
        self.inks, self.metric = inks, metric
        self._scale = dark, colourful, metric.signed

    def segments(
        self,
        piece: TextPiece,
        item: Item,
        selected: bool,
        ahead: bool,
        other: bool = False,
        own: Style | None = None,
        bordered: bool = False,
    ) -> list[Segment]:
        """The segments of one piece of a token.

        Args:
            piece: The part of the token in this line.
            item: The token.
            selected: Whether the cursor is on it.
            ahead: Whether it is a token of the prompt that hasn't gone through the model yet.
            other: Whether the settings that are tried would have picked another token: it is struck through.
            own: Style to use instead of the usual one for such a token; None for the usual one.
            bordered: Whether its spaces are visible, and its border if it ends here.
        """
        link = link_of(piece)
        if piece.mark:
            return [Segment(piece.text, self.inks["accent"] + link)]
        if selected:
            ink = self.inks["cursor"]
        elif other:
            ink = self.inks["warn"]
        elif ahead:
            ink = self.inks["faint"]
        elif own is not None:
            ink = own
        elif item.special:
            ink = self.inks["special"]
        elif piece.text == NEWLINE or (not item.text and piece.text == hex_bytes(item.raw)):
            ink = self.inks["faint"]
        else:
            ink = self.inks["muted" if isinstance(item, PromptToken) else "base"]
        if bordered and not selected:
            ink += self._ground(piece.slot)
        calm = ink + link
        hot = calm + _STRUCK if other else calm
        if selected:
            calm = hot
        elif step := self.metric.step(self.metric.value(item)):
            hot += heat_style(step, *self._scale)
        if bordered:
            return self._bordered(piece, item, selected, calm, hot)
        core = piece.text.lstrip(" ")
        if not core or core == piece.text:
            return [Segment(piece.text, hot)]
        return [Segment(piece.text[: -len(core)], calm), Segment(core, hot)]

    def _bordered(
        self, piece: TextPiece, item: Item, selected: bool, calm: Style, hot: Style
    ) -> list[Segment]:
        """The segments of one piece with borders: neighbours also differ in their ground, and a special token is
        reversed.

        Args:
            piece: The part of the token in this line.
            item: The token.
            selected: Whether the cursor is on it.
            calm: Style of its leading spaces.
            hot: Style of its text.
        """
        if item.special and not selected:
            hot += _REVERSED
        core = piece.text.lstrip(" ")
        spaces = calm if selected else calm + Style(color=self.inks["faint"].color)
        trail = SPACE * (len(core) - len(core.rstrip(" ")))
        lead = SPACE * (len(piece.text) - len(core))
        drawn = (lead, spaces), (core.rstrip(" "), hot), (trail, spaces)
        parts = [Segment(text, style) for text, style in drawn if text]
        return [*parts, *self._end(piece, self._ground(piece.slot))]

    def under(self, piece: TextPiece, selected: bool) -> list[Segment]:
        """The text under one piece of a token, as wide as the piece."""
        cells, ground = piece.cells - piece.edge, self._ground(piece.slot)
        if piece.mark:
            return [Segment(" " * cells)]
        style = self.inks["accent" if selected else "muted"] + ground + link_of(piece)
        return [Segment(pad(piece.under, cells), style), *self._end(piece._replace(text=" " * cells), ground)]

    def _ground(self, slot: int) -> Style:
        """The ground of a token with borders: every other one is shaded."""
        return Style(bgcolor=self.inks["row"].bgcolor) if slot % 2 else Style()

    def _end(self, piece: TextPiece, ground: Style) -> list[Segment]:
        """The empty cells after a piece's text, and the border."""
        blank = Segment(" " * piece.blank, self.inks["base"] + ground + link_of(piece))
        edge = Segment(_EDGE, self.inks["faint"] + link_of(piece))
        return [blank, edge] if piece.edge else [blank]


def link_of(piece: TextPiece) -> Style:
    """The style with a piece's slot, for clicks on it."""
    return Style.from_meta({"slot": piece.slot})
