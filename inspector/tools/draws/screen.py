"""The screen of many draws: frequencies beside stated probabilities, and a tree of what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Container

from engine.protocol import Record
from inspector.blocks.paint import Painter
from inspector.display import quoted, token_label, visible
from inspector.documents.draws import frequencies, tree_lines
from inspector.keys import key_for
from inspector.main.view import View
from inspector.state.batch import Batches
from inspector.tools.draws.control import DRAWS_SCREEN, DrawsActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

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


class DrawsScreen(View[None]):
    """Draws; the session stays as it is.

    Args:
        host: The main screen.
        control: Starts the draws, and has what came of them.
    """

    TOOL: ClassVar[str] = "draws"
    ACTIONS: ClassVar[ActionTable] = DRAWS_SCREEN
    MEASURES: ClassVar[str] = "A count of draws"
    TELLING: ClassVar[tuple[type[Record], ...]] = Batches.changing()

    def __init__(self, host: MainScreen, control: DrawsActions) -> None:
        super().__init__(host, control.job)
        self.control = control
        self._view = 0

    def body(self) -> ComposeResult:
        with Container(id="draws-panels"):
            yield DrawnPanel(id="draws-table")
            yield DrawnPanel(id="draws-tree")

    # ---- showing ----------------------------------------------------------------------------

    @property
    def turns(self) -> bool:
        """True if there are two panels, and room for one."""
        return self.control.batches.continued is not None and self.room < LOW

    def show(self) -> None:
        """Show everything, now."""
        table, tree = self.query_one("#draws-table", DrawnPanel), self.query_one("#draws-tree", DrawnPanel)
        second = self.turns and bool(self._view % 2)
        table.display = not second
        tree.display = self.control.batches.continued is not None and (second or not self.turns)
        table.put("First tokens", self._first_tokens)
        tree.put("What came", self._came)
        timeline = self.host.controller.timeline
        item = timeline.items[-1] if timeline.items else None
        where = f"after {quoted(token_label(item.text, item.raw))}" if item is not None else ""
        if not timeline.following and (after := timeline.selected) is not None:
            where = f"in the place of {quoted(token_label(after.text, after.raw))}"
        parts = ("Draws", "recorded" if self.recorded else where, self._asked())
        self.write(" · ".join(filter(None, parts)) if self.room > LEAST else "")

    def _first_tokens(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The frequencies, and the test of them."""
        drawn = self.control.batches.drawn
        if drawn is None:
            press = f"Press {key_for('draws.go')} for {self.control.draws:,} draws."
            about = (*ABOUT, self.needs_model if self.recorded else press)
            return centred([(line, on.ink("muted")) for line in about], width, height)
        return Painter(on).draw(frequencies(drawn), width, height)

    def _came(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The tree of the continuations."""
        continued = self.control.batches.continued
        lines = tree_lines(continued, max(20, width)) if continued else []
        return [[Segment(line, on.rich_style)] for line in lines[:height]]

    def _asked(self) -> str:
        """The number and length of the next draws."""
        tokens = self.control.tokens
        return f"{self.control.draws:,} draws of {tokens} token" + "s" * (tokens != 1)

    def situation(self) -> str:
        """The state of the draws, and what to do about it."""
        control, continued = self.control, self.control.batches.continued
        if self.recorded:
            return self.needs_model
        if (failure := control.job.failure) is not None:
            return visible(f"{failure.message} {failure.hint}".strip())
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
