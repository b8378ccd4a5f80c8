"""A beam search as a tree, a column a step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content

from inspector.state.beams import BeamHistory
from inspector.tools.beams.entries import BeamEntry
from inspector.tools.beams.lattice import LatticeLine, lattice
from inspector.tools.beams.table import BeamTable
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.inks import panel_css


class BeamTree(Canvas):
    """The last steps of the search as they fit, the path of the highlighted beam in colour."""

    DEFAULT_CSS = panel_css("BeamTree")

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.beams: BeamHistory | None = None
        self.entries: Sequence[BeamEntry] = ()
        self.at, self.place = 0, 0
        self._lines: list[LatticeLine] = []

    def put(self, beams: BeamHistory, entries: Sequence[BeamEntry], at: int, place: int) -> None:
        """Show the search after a step, with one beam highlighted."""
        self.beams, self.entries, self.at, self.place = beams, entries, at, place
        self.title(Content("Tree of the search"), Content("■ end token · ✗ fell out") if entries else None)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        self._lines = []
        if self.beams is None or not self.entries:
            return []
        node = self.entries[self.place].node
        self._lines = lattice(self.beams, self.entries, self.at, height, width, node)
        return [self._row(line) for line in self._lines]

    def _row(self, line: LatticeLine) -> Row:
        return [Segment(bit.text, self.ink(bit.ink) if bit.ink else Style()) for bit in line.bits]

    def on_click(self, event: events.Click) -> None:
        """Point at the beam that ends in the row that was clicked."""
        row = event.get_content_offset_capture(self).y
        if 0 <= row < len(self._lines) and (node := self._lines[row].node) is not None:
            self.post_message(BeamTable.BeamClicked(node))
