"""The screen of positions: how the position of a token is handled, what was tried, candidates before and after."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from engine.protocol import Command, PositionTried
from inspector.blocks.paint import Painter
from inspector.documents.positions import LATER, PositionTrial, Tried, trials, view
from inspector.main.inside_view import InsideView, noticed
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionsActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row


class PositionsScreen(InsideView[PositionTried]):
    """A token's position, and the effect of wrong ones.

    Args:
        tool: Has what is chosen, and the answers.
    """

    TOOL: ClassVar[str] = "positions"
    ACTIONS: ClassVar[ActionTable] = POSITIONS_SCREEN

    def __init__(self, tool: PositionsActions) -> None:
        super().__init__(tool.host, tool.answers)
        self.tool = tool

    # ---- asking ---------------------------------------------------------------------------------

    def _trials(self) -> list[PositionTrial]:
        after = self.timeline.items[self.timeline.slot :][:LATER]
        until = after[-1].node if after else None
        return trials(len(self.path) - 1, self.tool.offsets, len(after), until)

    def question(self) -> tuple[Hashable, Command]:
        return self._trials()[self.tool.row].question(self.node)

    def ask(self) -> None:
        """See `InsideView`; the chosen row first, then the others."""
        every = self._trials()
        for trial in (every[self.tool.row], *every):
            key, question = trial.question(self.node)
            if self.answers.get(key) is None and self.answers.failure(key) is None:
                self.answers.want(key, question)
                return

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: PositionTried | None) -> str:
        return "What if the token stood elsewhere"

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The table as soon as one of its rows has an answer: the chosen one may have none."""
        known = next((answer for _, answer, _ in self._tried() if answer is not None), None)
        return self.draw(known, on, width, height) if known is not None else super()._draw(on, width, height)

    def draw(self, answer: PositionTried, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideView`; of any answer about the token."""
        rows = self._tried()
        instead = [noticed(self._instead(on))] if rows[self.tool.row][1] is None else []
        return Painter(on).draw(view(rows, self.tool.row, answer.use, instead), width, height)

    def _tried(self) -> list[Tried]:
        """Every trial, with its answer where that passed its checks, and whether there will be none."""
        rows: list[Tried] = []
        for trial in self._trials():
            key, _ = trial.question(self.node)
            found = self.answers.get(key)
            passed = found is not None and found.facts.failed is None
            over = self.answers.failure(key) is not None or (found is not None and not passed)
            rows.append((trial, found if passed else None, over))
        return rows

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another row."""
        self.tool.row = max(0, min(len(self.tool.offsets) + 1, self.tool.row + by))

    def shift(self, by: int) -> None:
        """Change the offset of the row, if it has one that can be chosen."""
        at = self.tool.row - 1
        if 0 <= at < len(self.tool.offsets):
            self.tool.offsets[at] += by
