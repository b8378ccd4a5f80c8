"""The text of one beam, in full as far as there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual.content import Content

from inspector.tools.beams.excerpt import Piece
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.inks import panel_css


class BeamTextPanel(Canvas):
    """The text of the highlighted beam; where it differs from the others it is bold."""

    DEFAULT_CSS = panel_css("BeamTextPanel")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.pieces: Sequence[Piece] = ()

    def put(self, pieces: Sequence[Piece], title: str) -> None:
        """Show a text, token by token; printable, as is the title."""
        self.pieces = pieces
        self.title(Content(title))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        lines = list(wrapped(self.pieces, width))
        if len(lines) > height > 0:
            lines = [[("… the end of it:", False)], *lines[1 - height :]] if height > 1 else lines[-1:]
        return [
            [Segment(text, self.ink("strong" if own else "muted")) for text, own in line] for line in lines
        ]


def wrapped(pieces: Sequence[Piece], width: int) -> Iterator[list[Piece]]:
    """Lines of `width` cells at most, broken where a token begins with a blank, and after a line's end."""
    line: list[Piece] = []
    for word in words(pieces):
        room = width - sum(cell_len(text) for text, _ in line)
        if line and sum(cell_len(text) for text, _ in word) > room:
            yield line
            line, word = [], [(word[0][0].lstrip(" "), word[0][1]), *word[1:]]
        line += word
        if word[-1][0].endswith("↵"):
            yield line
            line = []
    if line:
        yield line


def words(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Runs of tokens that belong on one line."""
    word: list[Piece] = []
    for piece in pieces:
        if word and (piece[0].startswith(" ") or word[-1][0].endswith("↵")):
            yield word
            word = []
        word.append(piece)
    if word:
        yield word
