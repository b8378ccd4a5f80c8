"""A text as the tokenizer splits it: the tokens with their ids under them, and their boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType

from engine.protocol import Piece
from inspector.display import pad, token_label, truncate
from inspector.widgets.canvas import Canvas, Row

MOST = 400
"""Maximum number of tokens that are laid out."""
Line = tuple[int, Sequence[Piece]]
"""The place of its first token in the text, and its tokens."""


class PieceList(Canvas):
    """The tokens in lines of two rows each; a token that ends with a newline ends its line.

    Args:
        both_ends: Whether a text that doesn't fit is shown with its first and last lines and can be scrolled; otherwise
            only its last lines are shown, where the user types.
        id: Id of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_rows(-2)", "Up", show=False),
        Binding("down", "scroll_rows(2)", "Down", show=False),
        Binding("pageup", "scroll_pages(-1)", "Page up", show=False),
        Binding("pagedown", "scroll_pages(1)", "Page down", show=False),
        Binding("home", "scroll_rows(-100000)", "Begin", show=False),
        Binding("end", "scroll_rows(100000)", "End", show=False),
    ]

    def __init__(self, both_ends: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.both_ends = both_ends
        self.first: Sequence[Piece] = ()
        self.last: Sequence[Piece] = ()
        self.left_out = 0
        """Number of tokens between the first and the last ones."""
        self._top: int | None = None
        """The first row on show; None until it was scrolled."""
        self._height = 0
        """Rows of all lines."""

    def put(self, pieces: Sequence[Piece]) -> None:
        """Show a text's tokens; only the last ones of a long text."""
        self.put_ends((), pieces[-MOST:], max(0, len(pieces) - MOST))

    def put_ends(self, first: Sequence[Piece], last: Sequence[Piece], left_out: int) -> None:
        """Show a text's first and last tokens.

        Args:
            first: Tokens from the beginning.
            last: Tokens up to the end.
            left_out: Number of tokens between them.
        """
        self.first, self.last, self.left_out, self._top = first, last, left_out, None
        self.redraw()

    def action_scroll_rows(self, by: int) -> None:
        """Scroll by some rows, up to the first or last one."""
        if self.both_ends and self._height > self.size.height:
            self._top = max(0, min((self._top or 0) + by, self._height - self.size.height))
            self.redraw()

    def action_scroll_pages(self, by: int) -> None:
        """Scroll by the visible rows."""
        self.action_scroll_rows(by * max(2, self.size.height // 2 * 2))

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _scrolled(self, event: events.MouseEvent) -> None:
        if self.both_ends and self._height > self.size.height:
            event.stop()
            self.action_scroll_rows(2 if isinstance(event, events.MouseScrollDown) else -2)

    # ---- rows -------------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        if width < 4:
            return []
        behind = len(self.first) + self.left_out
        first, last = list(_lines(self.first, 0, width)), list(_lines(self.last, behind, width))
        self._height = 2 * len(first + last) + bool(self.left_out)
        self.can_focus = self.both_ends and self._height > height  # the tab key stops only if it can scroll
        if self._height <= height or self._top is not None:
            top = min(self._top or 0, max(0, self._height - height))
            return self._all(first, last)[top : top + height]
        room = max(1, (height - 1) // 2)
        above = room // 2 if self.both_ends else 0
        below = room - above
        if not self.left_out:
            first = last = first + last
        return self._all(first[:above], last[-below:])

    def _all(self, first: Sequence[Line], last: Sequence[Line]) -> list[Row]:
        """The rows of some lines, with the number of hidden tokens between them."""
        end = first[-1][0] + len(first[-1][1]) if first else 0
        rows = [row for line in first for row in self._rows(line)]
        if last and (hidden := last[0][0] - end):
            words = "tokens not shown" if first else "tokens before these"
            rows.append([Segment(f"… {hidden:,} {words}", self.ink("muted"))])
        return rows + [row for line in last for row in self._rows(line)]

    def _rows(self, line: Line) -> tuple[Row, Row]:
        place, pieces = line
        texts: Row = []
        ids: Row = []
        for number, piece in enumerate(pieces, place):
            # neighbours have different backgrounds; a special token is reversed
            style = Style(bgcolor=self.ink("row").bgcolor) if number % 2 else Style()
            style = self.ink("special") + Style(reverse=True) if piece.special else style
            cells, edge = _cells(piece, self.size.width), Segment("│", self.ink("faint"))
            texts += [Segment(pad(_label(piece, self.size.width), cells), style), edge]
            ids += [Segment(pad(str(piece.id), cells), self.ink("muted")), edge]
        return texts, ids


def _lines(pieces: Sequence[Piece], place: int, width: int) -> Iterator[Line]:
    """Tokens in lines, as many side by side as fit.

    Args:
        pieces: Consecutive tokens.
        place: Place of the first one in the text.
        width: Cells of a line.
    """
    begin = used = 0
    for at, piece in enumerate(pieces):
        cells = _cells(piece, width) + 1
        if at > begin and (used + cells > width or pieces[at - 1].text.endswith("\n")):
            yield place + begin, pieces[begin:at]
            begin, used = at, 0
        used += cells
    if pieces:
        yield place + begin, pieces[begin:]


def _label(piece: Piece, width: int) -> str:
    return truncate(token_label(piece.text, piece.raw), width - 1)


def _cells(piece: Piece, width: int) -> int:
    return max(cell_len(_label(piece, width)), len(str(piece.id)))
