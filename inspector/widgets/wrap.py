"""Tokens laid out in lines: appending touches the last lines only, however many are above them.

Words stay whole where they fit a line. A token is one piece, or several where it holds line breaks or is wider
than the line. One more column than the given width is used by what may hang over: `↵`, a border and the caret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len, get_character_cell_size

NEWLINE = "↵"
_NOWHERE = -1


class TextPiece(NamedTuple):
    """The part of a token in one line."""

    slot: int
    text: str
    cells: int
    opens: bool
    """Whether a line may break before it."""
    mark: bool = False
    """True for what is drawn next to the tokens and isn't text: left out of a copy."""
    under: str = ""
    """What is drawn under it; its cells have room for that."""
    edge: bool = False
    """Whether its last cell is the token's border."""

    @property
    def blank(self) -> int:
        """Empty cells between the text and the border, where what is under it is wider."""
        return self.cells - cell_len(self.text) - self.edge


@dataclass(slots=True)
class WrappedLine:
    """One line on the screen."""

    soft: bool = False
    """It goes on with the paragraph of the line above."""
    pieces: list[TextPiece] = field(default_factory=list)
    cells: int = 0
    hard: bool = False
    """A newline of the text ends it."""
    gap: bool = False
    """The space before its first word is not drawn: a soft line doesn't begin with it."""

    def add(self, piece: TextPiece) -> None:
        self.pieces.append(piece if self.pieces else piece._replace(opens=True))
        self.cells += piece.cells


class Wrap:
    """Lines of tokens, and where each token begins.

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
            parts: Its display text, cut at its line breaks.
            mark: Drawn in front of it.
            under: Drawn under a bordered one; at most as wide as a line.
        """
        slot = len(self.line_of)
        self.line_of.append(_NOWHERE)
        if mark:
            self._place(slot, mark, mark=True)
        if self._bordered:
            self._append_bordered(slot, parts, under)
            return
        for number, part in enumerate(parts):
            if number:
                self._break(slot)
            if part:
                self._place(slot, part)

    def _append_bordered(self, slot: int, parts: Sequence[str], under: str) -> None:
        texts = [part + NEWLINE for part in parts[:-1]]
        texts += [parts[-1]] if parts[-1] else []
        for number, text in enumerate(texts):
            self._place(slot, text, under="" if number else under, edge=number == len(texts) - 1)
            if number < len(parts) - 1:
                self.lines[-1].hard = True
                self.lines.append(WrappedLine())

    def cut(self, slot: int) -> int:
        """Forget the tokens from a slot on, and those before it whose place may depend on them.

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
        """Whether a line begins with the beginning of a token."""
        pieces = self.lines[index].pieces
        return bool(pieces) and self.line_of[pieces[0].slot] == index

    def _break(self, slot: int) -> None:
        self._add(TextPiece(slot, NEWLINE, 1, False))
        self.lines[-1].hard = True
        self.lines.append(WrappedLine())

    def _place(self, slot: int, text: str, mark: bool = False, under: str = "", edge: bool = False) -> None:
        opens, cells = mark or self._opens(text), max(cell_len(text), cell_len(under))
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
        self.lines[-1].add(piece)
        if self.line_of[piece.slot] == _NOWHERE:
            self.line_of[piece.slot] = len(self.lines) - 1

    def _opens(self, text: str) -> bool:
        """Whether a line may break before a text: at a space, and next to a wide character."""
        pieces = self.lines[-1].pieces
        if pieces and pieces[-1].mark:
            return False
        if not pieces or text[0] == " ":
            return True
        return get_character_cell_size(text[0]) == 2 or get_character_cell_size(pieces[-1].text[-1]) == 2

    def _wrap(self, opens: bool, cells: int) -> None:
        """Begin a soft line; the unfinished word goes with it where it fits there."""
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
            line.add(piece)
            if self.line_of[piece.slot] == index:
                self.line_of[piece.slot] = index + 1

    def _split(self, text: str) -> list[str]:
        """A text cut so that it fits the rest of this line, and whole lines from there."""
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
