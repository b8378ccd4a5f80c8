"""Positions: how the model uses a token's position, what was tried, and the candidates before and after."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from engine.protocol import Command, PositionTried
from inspector.blocks.paint import Painter
from inspector.documents.positions import LATER, OFFSETS, PositionTrial, Tried, trials, view
from inspector.main.inside_view import SCROLLS, InsideView, label_at, look_table, noticed, page, walking
from inspector.session.requests import Replies
from inspector.widgets.actions import ActionTable, both
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


POSITIONS_KEYS = look_table(
    "In the positions",
    *both(("positions.above", "positions.below"), ("Row above", "Row below"),
          "Look at another what-if: its candidates before and after are under the table.",
          lambda own, by: own.turn_row(by), hint="what if", worth=7),
    *both(("positions.less", "positions.more"), ("Less", "More"), "Give the token a lower or a higher position.",
          lambda own, by: own.shift(by), hint=lambda own: "another offset" if own.shifts else "", worth=4),
    *walking(),
    page("modules", "map"),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip


class PositionsView(InsideView[PositionTried]):
    """The position of a token, and the effect of wrong ones."""

    TOOL: ClassVar[str] = "modules"
    ACTIONS: ClassVar[ActionTable] = POSITIONS_KEYS

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, PositionTried))
        self.row = 0
        """The index of the selected trial."""
        self.offsets = [*OFFSETS]
        """The offsets of the trials between the first and the last: three of the token, one of the path."""

    # ---- asking ---------------------------------------------------------------------------------

    def _trials(self) -> list[PositionTrial]:
        after = self.timeline.items[self.timeline.slot :][:LATER]
        until = after[-1].node if after else None
        return trials(len(self.path) - 1, self.offsets, len(after), until)

    def question(self) -> tuple[Hashable, Command]:
        return self._trials()[self.row].question(self.node)

    def ask(self) -> None:
        """See `InsideView`; the chosen row first, then the others."""
        every = self._trials()
        for trial in (every[self.row], *every):
            key, question = trial.question(self.node)
            if self.answers.get(key) is None and self.answers.failure(key) is None:
                self.answers.want(key, question)
                return

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: PositionTried | None) -> str:
        token = label_at(self.path) if self.path else "the token"
        return f"What if {token} had another position"

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideView`; the table is drawn as soon as any row has an answer, even if the chosen one has none."""
        known = next((answer for _, answer, _ in self._tried() if answer is not None), None)
        return self.draw(known, on, width, height) if known is not None else super()._draw(on, width, height)

    def draw(self, answer: PositionTried, on: Canvas, width: int, height: int) -> list[Row]:
        """See `InsideView`; any answer about the token will do."""
        rows = self._tried()
        instead = [noticed(self._instead(on))] if rows[self.row][1] is None else []
        return Painter(on).draw(view(rows, self.row, answer.use, instead), width, height)

    def _tried(self) -> list[Tried]:
        """Every trial, with its answer if that passed its checks, and whether the trial failed."""
        rows: list[Tried] = []
        for trial in self._trials():
            key, _ = trial.question(self.node)
            found = self.answers.get(key)
            failed = found is not None and found.facts.failed is not None
            rows.append((trial, None if failed else found, failed or self.answers.failure(key) is not None))
        return rows

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        self.row = max(0, min(len(self.offsets) + 1, self.row + by))

    @property
    def shifts(self) -> bool:
        """True if the row has an offset that can be chosen."""
        return 0 < self.row <= len(self.offsets)

    def shift(self, by: int) -> None:
        """Change the offset of the row, if it has one that can be chosen."""
        if self.shifts:
            self.offsets[self.row - 1] += by
        else:
            self.say("The first what-if and the last have no offset to change")
