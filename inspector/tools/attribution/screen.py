"""The screen of contributions: what each part of the model adds to a logit, or to the difference of two."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from engine.protocol import Attribute, AttributionRead, Command
from inspector.blocks.paint import Painter
from inspector.display import quoted
from inspector.documents.attribution import bars
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.state.attribution import ContributionRow, heads_of, label_of, rows_of, told_here
from inspector.tools.attribution.control import ATTRIBUTION_SCREEN, AttributionChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row

BRIEF = 76
"""Cells of a screen below which the heading is short."""


class AttributionScreen(InsideScreen[AttributionRead]):
    """Takes a logit apart.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "attribution"
    ACTIONS: ClassVar[ActionTable] = ATTRIBUTION_SCREEN

    def __init__(self, host: Host, answers: Replies[AttributionRead], choices: AttributionChoices) -> None:
        super().__init__(host, answers)
        self._choices = choices
        self._made: tuple[tuple[AttributionRead, frozenset[int], bool], list[ContributionRow]] | None = None

    @property
    def choices(self) -> AttributionChoices:
        """The choices at the present token."""
        return self._choices.at(self.timeline)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        tokens = self.asked
        return (self.node, tokens), Attribute(self.node, tokens)

    @property
    def asked(self) -> tuple[int, ...]:
        """The tokens of the question: those that are wanted, in a recording others where it has only those."""
        return self._recorded() or self.tokens

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token whose logit is wanted, and the one that it is compared with."""
        return self.choices.tokens(self.timeline)

    def _recorded(self) -> tuple[int, ...]:
        """In a recording, where the tokens that are wanted were not asked for, those that were."""
        if not self.host.controller.transport.recorded or self.answers.get((self.node, self.tokens)):
            return ()
        pairs = [key[1] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
        here = told_here(self.timeline, [pair[0] for pair in pairs])
        chosen = self.choices.token is not None or self.choices.against is not None
        return () if chosen else next((pair for pair in reversed(pairs) if pair[0] in here), ())

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: AttributionRead | None) -> str:
        names = [self._label(id) for id in self.asked]
        if self.area.width < BRIEF:
            return " − ".join(names) or "Contributions"
        if len(names) == 2:
            return f"Why {quoted(names[0])} rather than {quoted(names[1])}: what each part adds to the difference"
        return f"What each part adds to the logit of {quoted(names[0])}" if names else "Contributions"

    def _label(self, id: int) -> str:
        told = self.answer.tokens if self.answer is not None else ()
        return label_of(self.timeline, id, ((each.id, each.text) for each in told))

    def draw(self, answer: AttributionRead, on: Canvas, width: int, height: int) -> list[Row]:
        rows = self._rows(answer)
        blocks = bars(answer, rows, self._at(rows), self.choices.by_size)
        return Painter(on).draw(blocks, width, height)

    def _rows(self, answer: AttributionRead) -> list[ContributionRow]:
        """The rows in their order, made again where something changed: large models have thousands of heads."""
        made_of = answer, frozenset(self.choices.unfolded), self.choices.by_size
        if self._made is None or self._made[0][0] is not answer or self._made[0][1:] != made_of[1:]:
            self._made = made_of, rows_of(*made_of)
        return self._made[1]

    def _at(self, rows: Sequence[ContributionRow]) -> int:
        """Place of the row that is looked at; of a head that was folded its attention's."""
        keys, wanted = [row.key for row in rows], self.choices.row
        for key in (wanted, (wanted[0], None) if wanted else None):
            if key in keys:
                return keys.index(key)
        own = list(range(len(rows)))
        if wanted is None and self.choices.layer is not None and (answer := self.answer) is not None:
            own = [at for at in own if answer.parts[rows[at].part].layer == self.choices.layer] or own
        return max(own, key=lambda at: abs(rows[at].value), default=0)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another part."""
        if (answer := self.answer) is not None and (rows := self._rows(answer)):
            self.choices.row = rows[max(0, min(len(rows) - 1, self._at(rows) + by))].key

    @property
    def has_heads(self) -> bool:
        """True if what is looked at is an attention whose heads are known, or one of them."""
        answer = self.answer
        rows = self._rows(answer) if answer is not None else []
        return bool(answer and rows and heads_of(answer, answer.parts[rows[self._at(rows)].part]))

    def unfold(self) -> None:
        """Show the heads of the attention that is looked at, or fold them."""
        if (answer := self.answer) is None or not (rows := self._rows(answer)):
            return
        row = rows[self._at(rows)]
        if self.has_heads:
            self.choices.unfolded ^= {row.part}
            self.choices.row = row.key
        else:
            self.say("This part has no heads: ↑↓ goes to an attention, which has some")

    def unfold_all(self) -> None:
        """Show the heads of every attention; where they are shown, fold them."""
        if (answer := self.answer) is not None:
            every = {place for place, part in enumerate(answer.parts) if heads_of(answer, part)}
            self.choices.unfolded = set() if every <= self.choices.unfolded else every

    def sort(self) -> None:
        """Sort by size, or in the order of the layers."""
        self.choices.by_size = not self.choices.by_size

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone
