"""The screen of contributions: what each part of the model adds to a logit, or to the difference of two."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from engine.protocol import Attribute, AttributionRead, Command
from inspector.display import quoted, token_label
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.state.contributions import ContributionRow, compared, heads_of, ranked, rows_of
from inspector.tools.attribution.bars import Chart
from inspector.tools.attribution.choices import AttributionChoices
from inspector.tools.attribution.tool import ATTRIBUTION_SCREEN
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
        """What was chosen at the present token."""
        return self._choices.at(self.node)

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
        choices = self.choices
        tokens = compared(self.timeline, choices.token, choices.against)
        return tokens[:1] if choices.alone else tokens

    def _recorded(self) -> tuple[int, ...]:
        """In a recording, where the tokens that are wanted were not asked for, those that were."""
        if not self.host.controller.transport.recorded or self.answers.get((self.node, self.tokens)):
            return ()
        pairs = [key[1] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
        chosen = self.choices.token is not None or self.choices.against is not None
        return () if chosen or not pairs else pairs[-1]

    # ---- showing --------------------------------------------------------------------------------

    def heading(self, answer: AttributionRead | None) -> str:
        names = [self._label(id) for id in self.asked]
        if self.size.width < BRIEF:
            return " − ".join(names) or "Contributions"
        if len(names) == 2:
            return f"Why {quoted(names[0])} rather than {quoted(names[1])}: what each part adds to the difference"
        return f"What each part adds to the logit of {quoted(names[0])}" if names else "Contributions"

    def _label(self, id: int) -> str:
        texts = {each.id: token_label(each.text, each.raw) for each in self.timeline.candidates}
        if (selected := self.timeline.selected) is not None:
            texts[selected.id] = token_label(selected.text, selected.raw)
        if (answer := self.answer) is not None:
            texts |= {each.id: token_label(each.text) for each in answer.tokens if each.id not in texts}
        return texts.get(id, f"token {id}")

    def draw(self, answer: AttributionRead, on: Canvas, width: int, height: int) -> list[Row]:
        rows = self._rows(answer)
        return Chart(answer, rows, self._at(rows), self.choices.by_size, on).draw(width, height)

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
        sizes = [abs(row.value) for row in rows]
        return sizes.index(max(sizes)) if sizes else 0

    # ---- keys -----------------------------------------------------------------------------------

    def turn_row(self, by: int) -> None:
        """Look at another part."""
        if (answer := self.answer) is not None and (rows := self._rows(answer)):
            self.choices.row = rows[max(0, min(len(rows) - 1, self._at(rows) + by))].key

    def unfold(self) -> None:
        """Show the heads of the attention that is looked at, or fold them."""
        if (answer := self.answer) is None or not (rows := self._rows(answer)):
            return
        row = rows[self._at(rows)]
        if heads_of(answer, answer.parts[row.part]):
            self.choices.unfolded ^= {row.part}
            self.choices.row = row.key

    def unfold_all(self) -> None:
        """Show the heads of every attention; where they are shown, fold them."""
        if (answer := self.answer) is not None:
            every = {place for place, part in enumerate(answer.parts) if heads_of(answer, part)}
            self.choices.unfolded = set() if every <= self.choices.unfolded else every

    def sort(self) -> None:
        """Sort by size, or in the order of the layers."""
        self.choices.by_size = not self.choices.by_size

    def follow_other(self, by: int) -> None:
        """Look at the logit of another candidate; what it is compared with stays, where it can."""
        tokens, known = self.tokens, ranked(self.timeline)
        others = [id for id in known if self.choices.alone or id not in tokens[1:]]
        if tokens and others:
            if not self.choices.alone and len(tokens) == 2:
                self.choices.against = tokens[1]
            self.choices.token = _next(others, tokens[0], by)

    def compare_with(self, by: int) -> None:
        """Compare with another candidate."""
        self.choices.alone = False
        tokens = self.tokens
        others = [id for id in ranked(self.timeline) if id not in tokens[:1]]
        if others:
            self.choices.token = tokens[0]
            self.choices.against = _next(others, tokens[-1], by)

    def turn_alone(self) -> None:
        """Look at one token alone, or at two."""
        self.choices.alone = not self.choices.alone


def _next(ids: Sequence[int], now: int, by: int) -> int:
    return ids[(ids.index(now) + by) % len(ids)] if now in ids else ids[0]
