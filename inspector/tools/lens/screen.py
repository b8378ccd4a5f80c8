"""The screen of the logit lens: layers by positions, in each cell what the model's end makes of the residual stream."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from engine.protocol import Command, LensRead, ReadLens
from inspector.display import token_label
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.tools.lens.choices import LensChoices
from inspector.tools.lens.detail import detail
from inspector.tools.lens.measures import MEASURES, CellMeasure
from inspector.tools.lens.table import Table
from inspector.tools.lens.tool import LENS_SCREEN
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row

TOP = 10
"""Tokens of a cell's list."""
CANDIDATES = 4
"""Of the last layer, that can be followed without asking again."""


class LensScreen(InsideScreen[LensRead]):
    """Layers by positions.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "lens"
    ACTIONS: ClassVar[ActionTable] = LENS_SCREEN

    def __init__(self, host: Host, answers: Replies[LensRead], choices: LensChoices) -> None:
        super().__init__(host, answers)
        self.choices = choices

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadLens(self.node, top=TOP, followed=self._wanted())

    def _wanted(self) -> tuple[int, ...]:
        """The tokens that can be followed: the chosen one, the one taken next, the best candidates."""
        best = (candidate.id for candidate in self.timeline.candidates[:CANDIDATES])
        ids = (self.choices.followed, self.timeline.taken, *best)
        return tuple(dict.fromkeys(id for id in ids if id is not None))

    def ask(self) -> None:
        """See `InsideScreen`; again where a token is to be followed that wasn't."""
        answer = self.answer
        if answer is not None and not set(self._wanted()) <= set(answer.followed):
            self.answers.again(*self.question())
        else:
            super().ask()

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: LensRead | None) -> str:
        return "What each layer would predict"

    def draw(self, answer: LensRead, on: Canvas, width: int, height: int) -> list[Row]:
        if not answer.columns or not answer.columns[-1].cells:
            return []
        column, layer, measure = answer.columns[-1], self._layer(answer), MEASURES[self.choices.measure]
        followed = self._followed(answer)
        table = Table(
            answer.columns, self._heads(answer), measure, layer,
            answer.followed.index(followed) if followed is not None else None, self._label_of(answer, followed),
        )  # fmt: skip
        below = min(height - 1, 1 if height < 10 else max(6, height - 1 - table.depth))
        rows = table.draw(on, width, height - below)
        return rows + detail(on, column, layer, measure, width, below)

    def _heads(self, answer: LensRead) -> list[str]:
        """The token of each column."""
        known = {item.node: item for item in self.path[-len(answer.columns) :]}
        items = [known.get(column.node) for column in answer.columns]
        return [token_label(item.text, item.raw) if item is not None else "?" for item in items]

    def _layer(self, answer: LensRead) -> int:
        last = len(answer.columns[-1].cells) - 1
        return last if self.choices.layer is None else max(0, min(last, self.choices.layer))

    def _followed(self, answer: LensRead) -> int | None:
        """The token that is followed: of those that the answer has, the first that is wanted."""
        wanted = [id for id in self._wanted() if id in answer.followed]
        return wanted[0] if wanted else next(iter(answer.followed), None)

    def _label_of(self, answer: LensRead, id: int | None) -> str:
        """The label of a followed token, which the record has by id alone."""
        texts = {token.id: token.text for cell in answer.columns[-1].cells for token in cell.top}
        texts |= {candidate.id: candidate.text for candidate in self.timeline.candidates}
        if (selected := self.timeline.selected) is not None:
            texts[selected.id] = selected.text
        return token_label(texts[id]) if id in texts else f"token {id}"

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def measure(self) -> CellMeasure:
        """What the cells are coloured by."""
        return MEASURES[self.choices.measure]

    def turn_layer(self, by: int) -> None:
        """Look at another layer of the last column."""
        if (answer := self.answer) is not None and answer.columns:
            last = len(answer.columns[-1].cells) - 1
            self.choices.layer = max(0, min(last, self._layer(answer) + by))

    def follow_next(self) -> None:
        """Follow the next of the tokens that the answer has."""
        if (answer := self.answer) is not None and answer.followed:
            now = self._followed(answer)
            at = answer.followed.index(now) if now is not None else -1
            self.choices.followed = answer.followed[(at + 1) % len(answer.followed)]

    def change_measure(self) -> None:
        """Colour by the next measure."""
        self.choices.measure = (self.choices.measure + 1) % len(MEASURES)
