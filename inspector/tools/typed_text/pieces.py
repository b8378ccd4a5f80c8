"""A text as the tokenizer cuts it: each token with its id under it, the boundaries in sight."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.records import Piece
from inspector.display import pad, token_label, truncate
from inspector.widgets.canvas import Canvas, Row

MOST = 400
"""Tokens that are laid out at most: the last ones, where the user types."""


class PieceList(Canvas):
    """The tokens in lines of two rows each; of a long text its end."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.pieces: tuple[Piece, ...] = ()

    def put(self, pieces: Sequence[Piece]) -> None:
        """Show some tokens."""
        self.pieces = tuple(pieces)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.pieces or width < 4:
            return []
        lines = self._lines(width)
        room = max(1, height // 2)
        hidden = len(self.pieces) - sum(map(len, lines))
        if hidden or len(lines) > room:
            kept = lines[-max(1, (height - 1) // 2) :]
            earlier = len(self.pieces) - sum(map(len, kept))
            before = [Segment(f"… {earlier:,} tokens before these", self.ink("muted"))]
            return [before, *self._rows(kept, earlier)]
        return self._rows(lines, 0)

    def _lines(self, width: int) -> list[list[Piece]]:
        """The last tokens, line by line as they fit side by side."""
        lines: list[list[Piece]] = [[]]
        used = 0
        for piece in self.pieces[-MOST:]:
            cells = _cells(piece, width) + 1
            if lines[-1] and used + cells > width:
                lines.append([])
                used = 0
            lines[-1].append(piece)
            used += cells
        return lines

    def _rows(self, lines: Sequence[Sequence[Piece]], first: int) -> list[Row]:
        rows: list[Row] = []
        place, width = first, self.size.width
        for line in lines:
            texts: Row = []
            ids: Row = []
            for piece in line:
                cells = _cells(piece, width)
                texts += [Segment(pad(_label(piece, width), cells), self._style(piece, place)), self._edge]
                ids += [Segment(pad(str(piece.id), cells), self.ink("muted")), self._edge]
                place += 1
            rows += [texts, ids]
        return rows

    @property
    def _edge(self) -> Segment:
        return Segment("│", self.ink("faint"))

    def _style(self, piece: Piece, place: int) -> Style:
        """Neighbours have different backgrounds; a special token is reversed."""
        if piece.special:
            return self.ink("special") + Style(reverse=True)
        return Style(bgcolor=self.ink("row").bgcolor) if place % 2 else Style()


def _label(piece: Piece, width: int) -> str:
    return truncate(token_label(piece.text, piece.raw), width - 1)


def _cells(piece: Piece, width: int) -> int:
    return max(cell_len(_label(piece, width)), len(str(piece.id)))
