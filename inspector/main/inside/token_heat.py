"""The text up to a token, each token in the colour of a number that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.message import Message

from inspector.display import token_text, unfinished, visible
from inspector.state.session_tree import Item
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark
from inspector.widgets.inks import panel_css
from inspector.widgets.token_lines import TextPiece, Wrap, WrappedLine, heat_style, link_of

STEPS = (0.02, 0.05, 0.15, 0.35, 0.65)
"""Shares from which on a token has the next colour."""
TOLD = 0.01
"""The least share whose number is written under its token."""

GAP = "⋮ "
"""Before a line where lines above it are left out."""


class TokenHeat(Canvas):
    """Tokens with their shares as heat, and as numbers in a row under the text where there is room."""

    DEFAULT_CSS = panel_css("TokenHeat")

    class Clicked(Message):
        """A token was clicked.

        Args:
            place: In the path, from 0.
        """

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[Item] = ()
        self._shares: Sequence[float] = ()

    def put(self, title: str, items: Sequence[Item], shares: Sequence[float] = ()) -> None:
        """Show tokens.

        Args:
            title: Printable.
            items: The path up to the token that is looked at, which is drawn as the cursor.
            shares: A number from 0 to 1 for each token; none for no heat.
        """
        self._items, self._shares = items, shares
        self.title(Content(title), Content(f"{len(items):,} tokens") if items else None)
        self.redraw()

    def rows_for(self, items: Sequence[Item], width: int) -> int:
        """Rows that tokens with their numbers need.

        Args:
            items: The path.
            width: Cells of a row.
        """
        return 2 * len(self._wrapped(items, width, True).lines)

    def draw(self, width: int, height: int) -> list[Row]:
        numbered = bool(self._shares) and height >= 2
        room = max(1, height // (2 if numbered else 1))
        lines = self._wrapped(self._items, width, numbered).lines
        cut = len(lines) > room
        if cut:
            lines = self._wrapped(self._items, width - len(GAP), numbered).lines
        rows: list[Row] = []
        before = -1
        for place in self._places(lines, room):
            margin = (
                [Segment(GAP if place != before + 1 else " " * len(GAP), self.ink("muted"))] if cut else []
            )
            rows.append([*margin, *(part for piece in lines[place].pieces for part in self._piece(piece))])
            if numbered:
                blank = [Segment(" " * len(GAP))] if cut else []
                rows.append([*blank, *map(self._under, lines[place].pieces)])
            before = place
        return rows

    def on_click(self, event: events.Click) -> None:
        """Say which token was clicked."""
        if isinstance(place := event.style.meta.get("slot"), int):
            self.post_message(self.Clicked(place))

    def _places(self, lines: Sequence[WrappedLine], room: int) -> Sequence[int]:
        """The lines on show: the last, where the token is, and of the others those with the largest shares."""

        def hottest(place: int) -> tuple[float, int]:
            return max((self._share(piece.slot) for piece in lines[place].pieces), default=0.0), place

        last = len(lines) - 1
        return sorted([*sorted(range(last), key=hottest)[-(room - 1) :], last] if room > 1 else [last])

    def _wrapped(self, items: Sequence[Item], width: int, numbered: bool) -> Wrap:
        wrap = Wrap(width - 1, numbered)
        for slot, item in enumerate(items):
            parts = item.text.split("\n")
            texts = (
                [token_text(item.text, item.raw, unfinished(item.raw))]
                if len(parts) == 1
                else list(map(visible, parts))
            )
            wrap.append(texts, "", self._number(slot) if numbered else "")
        return wrap

    def _share(self, slot: int) -> float:
        return self._shares[slot] if slot < len(self._shares) else 0.0

    def _number(self, slot: int) -> str:
        share = self._share(slot)
        return f"{share * 100:.0f}" if share >= TOLD else ""

    def _piece(self, piece: TextPiece) -> list[Segment]:
        step = sum(self._share(piece.slot) >= edge for edge in STEPS)
        blank, linked = " " * (piece.blank + piece.edge), link_of(piece)
        if piece.slot == len(self._items) - 1:
            return [Segment(piece.text, self.ink("cursor") + linked), Segment(blank, self.rich_style)]
        style = self.rich_style + heat_style(step, is_dark(self.app), colourful(self.app))
        return [Segment(piece.text, style + linked), Segment(blank, self.rich_style)]

    def _under(self, piece: TextPiece) -> Segment:
        return Segment(f"{piece.under:<{piece.cells}}"[: piece.cells], self.ink("muted") + link_of(piece))
