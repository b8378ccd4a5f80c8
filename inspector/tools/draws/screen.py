"""The screen of many draws: frequencies beside stated probabilities, and a tree of what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content

from engine.protocol import Record
from inspector.blocks.blocks import Block, Drawn
from inspector.blocks.paint import ENDLESS, Painter
from inspector.display import quoted, token_label, visible
from inspector.documents.draws import frequencies, tree_lines
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.state.batch import Batches, BatchSoFar
from inspector.tools.draws.control import DRAWS_SCREEN, DrawControl
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import PanelCanvas, Row, centred

ABOUT = (
    "The sampler states a probability for each token. How often is the token really drawn?",
    "",
    "Draw k is the one that k re-rolls give: the same draws come again.",
    "",
)
LOW = 20
"""Rows below which one panel is shown at a time."""
LEAST = 10
"""Rows up to which the panel has that of its heading, too."""


class LinesPanel(PanelCanvas):
    """A document, or a few lines about what comes here."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.blocks: Sequence[Block] = ()
        self.about: tuple[str, ...] = ()

    def put(self, title: str, blocks: Sequence[Block], about: tuple[str, ...] = ()) -> None:
        """Show a document, or without one what comes here; all printable."""
        self.blocks, self.about = blocks, about
        self.title(Content(title))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.blocks:
            return centred([(line, self.ink("muted")) for line in self.about], width, height)
        return Painter(self).draw(self.blocks, width, height)


def _tree(batch: BatchSoFar) -> Drawn:
    def draw(painter: Painter, width: int, height: int) -> list[Row]:
        return [[Segment(line, painter.on.rich_style)] for line in tree_lines(batch, max(20, width))]

    return Drawn(draw, (1, ENDLESS))


class DrawsScreen(ToolScreen[None]):
    """Draws; the session stays as it is.

    Args:
        host: The main screen.
        control: Knows the engine and what came.
    """

    TOOL: ClassVar[str] = "draws"
    ACTIONS: ClassVar[ActionTable] = DRAWS_SCREEN
    MEASURES: ClassVar[str] = "A count of draws"
    TELLING: ClassVar[tuple[type[Record], ...]] = Batches.changing()
    AUTO_FOCUS = ""

    table = getters.query_one("#draws-table", LinesPanel)
    grown = getters.query_one("#draws-tree", LinesPanel)

    def __init__(self, host: Host, control: DrawControl) -> None:
        super().__init__(host, control.job)
        self.control = control
        self._view = 0

    def body(self) -> ComposeResult:
        with Container(id="draws-panels"):
            yield LinesPanel(id="draws-table")
            yield LinesPanel(id="draws-tree")

    # ---- showing ----------------------------------------------------------------------------

    @property
    def turns(self) -> bool:
        """True if there are two panels, and room for one."""
        return self.control.continued is not None and self.room < LOW

    def show(self) -> None:
        """Show everything, now."""
        drawn, continued = self.control.drawn, self.control.continued
        self.table.display = not (self.turns and self._view % 2)
        self.grown.display = continued is not None and not (self.turns and self.table.display)
        press = f"Press {key_for('draws.go')} for {self.control.draws:,} draws."
        blocks = [*frequencies(drawn)] if drawn is not None else []
        self.table.put("First tokens", blocks, (*ABOUT, self.needs_model if self.recorded else press))
        self.grown.put("What came", [_tree(continued)] if continued else [])
        self._write()

    def _write(self) -> None:
        timeline = self.host.controller.timeline
        after = timeline.selected if not timeline.following else None
        item = timeline.items[-1] if timeline.items else None
        where = f"after {quoted(token_label(item.text, item.raw))}" if item is not None else ""
        if after is not None:
            where = f"in the place of {quoted(token_label(after.text, after.raw))}"
        parts = ("Draws", "recorded" if self.recorded else where, self._asked())
        self.write(" · ".join(filter(None, parts)) if self.room > LEAST else "")

    def _asked(self) -> str:
        """The number and length of the next draws."""
        tokens = self.control.tokens
        return f"{self.control.draws:,} draws of {tokens} token" + "s" * (tokens != 1)

    def situation(self) -> str:
        """The state of the draws, and what to do about it."""
        control, continued = self.control, self.control.continued
        if self.recorded:
            return self.needs_model
        if control.job.failure is not None:
            return visible(f"{control.job.failure.message} {control.job.failure.hint}".strip())
        if control.job.running:
            done = sum(lane.ended is not None for lane in continued.lanes) if continued else 0
            return f"Drawing, {done} of {control.draws:,} done" if continued else "Drawing"
        if self.host.controller.setup.settings.temp == 0:
            return f"Greedy takes one token always: esc, then {key_for('sampling')} for a temperature above 0"
        return f"Press {key_for('draws.go')} for {self._asked()}, ← → for their number, ↑ ↓ for longer ones"

    # ---- keys -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Show the other panel, where one is shown at a time."""
        self._view += 1
