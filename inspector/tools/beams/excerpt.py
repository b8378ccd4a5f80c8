"""The text of one beam on one line: where not all of it fits, the places where it differs from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from inspector.display import truncate, visible
from inspector.tools.beams.entries import BeamEntry

Piece = tuple[str, bool]
"""Text, and whether this beam differs from the others there."""
GAP = "…"


def pieces(entry: BeamEntry, passing: Counter[int]) -> list[Piece]:
    """The text of a beam, token by token, printable.

    Args:
        entry: The beam.
        passing: How many beams go through each node. What only one goes through is marked, and so is a token in
            whose place others have another one.
    """
    return [
        (visible(token.text), passing[token.node] <= 1 or passing[token.node] < passing[token.parent])
        for token in entry.path
        if not token.ends
    ]


def excerpt(text: Sequence[Piece], cells: int) -> list[Piece]:
    """As much of a text as fits: where its own part begins, the earlier places where it differs, what is around."""
    widths = [cell_len(piece) for piece, _ in text]
    if sum(widths) <= cells:
        return list(text)
    choice, own = _Choice(widths, cells), _own(text)
    choice.add(own)
    for place in reversed(range(own)):
        if text[place][1] and not choice.add(place):
            break
    for places in (range(own + 1, len(text)), range(own - 1, -1, -1)):
        for place in places:
            if not choice.add(place):
                break
    if not choice.kept:
        return [(truncate(text[own][0], cells), text[own][1])]
    return list(_shown(text, choice.kept))


def _own(text: Sequence[Piece]) -> int:
    """Where the last run of marked pieces begins; the last place where none is marked."""
    place = next((place for place in reversed(range(len(text))) if text[place][1]), len(text) - 1)
    while place > 0 and text[place][1] and text[place - 1][1]:
        place -= 1
    return place


def _shown(text: Sequence[Piece], kept: set[int]) -> Iterator[Piece]:
    """What is kept, and a mark for each stretch that isn't."""
    for place, piece in enumerate(text):
        if place in kept:
            yield piece
        elif place == 0 or place - 1 in kept:
            yield GAP, False


class _Choice:
    """Places of a text that are shown, as many as there is room for.

    Args:
        widths: Cells of each piece.
        cells: The room, marks of what is missing included.
    """

    def __init__(self, widths: Sequence[int], cells: int) -> None:
        self.kept: set[int] = set()
        self._widths = widths
        self._room = cells - cell_len(GAP)

    def add(self, place: int) -> bool:
        """Show a place too; False where there is no room for it."""
        if place in self.kept:
            return True
        left = place > 0 and place - 1 not in self.kept
        right = place < len(self._widths) - 1 and place + 1 not in self.kept
        cost = self._widths[place] + (left + right - 1) * cell_len(GAP)
        if cost > self._room:
            return False
        self.kept.add(place)
        self._room -= cost
        return True
