"""The screen of positions: how the position of a token is handled, what was tried, candidates before and after."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from engine.protocol import Command, PositionTried
from inspector.blocks.paint import Painter
from inspector.documents.positions import Tried, view
from inspector.main.inside.screen import InsideScreen, noticed
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.state.positions import LATER, PositionTrial, trials
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row


class PositionsScreen(InsideScreen[PositionTried]):
    """A token's position, and what wrong ones do.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "positions"
    ACTIONS: ClassVar[ActionTable] = POSITIONS_SCREEN

    def __init__(self, host: Host, answers: Replies[PositionTried], choices: PositionChoices) -> None:
        super().__init__(host, answers)
        self.choices = choices

    # ---- asking ---------------------------------------------------------------------------------

    def _trials(self) -> list[PositionTrial]:
        after = self.timeline.items[self.timeline.slot :][:LATER]
        until = after[-1].node if after else None
        return trials(len(self.path) - 1, self.choices.offsets, len(after), until)

    def question(self) -> tuple[Hashable, Command]:
        return self._trials()[self.choices.row].question(self.node)

    def ask(self) -> None:
        """See `InsideScreen`; the chosen row first, then the others."""
        every = self._trials()
        for trial in (every[self.choices.row], *every):
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
        """See `InsideScreen`; of any answer about the token."""
        rows = self._tried()
        instead = [noticed(self._instead(on))] if rows[self.choices.row][1] is None else []
        return Painter(on).draw(view(rows, self.choices.row, answer.use, instead), width, height)

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
        self.choices.row = max(0, min(len(self.choices.offsets) + 1, self.choices.row + by))

    def shift(self, by: int) -> None:
        """Change the offset of the row, where it isn't given."""
        at = self.choices.row - 1
        if 0 <= at < len(self.choices.offsets):
            self.choices.offsets[at] += by
