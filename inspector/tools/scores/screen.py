"""The screen of why a head looks there: a key of one head, and what its score is made of, as bars around zero."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar

from rich.segment import Segment

from engine.protocol import Command, ReadScore, ScoreRead
from inspector.blocks.paint import Painter
from inspector.display import quoted, token_label
from inspector.documents.scores import view
from inspector.main.inside.screen import InsideScreen
from inspector.main.tool import Host
from inspector.session.requests import Replies
from inspector.state.attribution import (
    by_weight,
    head_name,
    over_path,
)
from inspector.tools.scores.control import SCORES_SCREEN, ScoreChoices
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row

TEXT_ROWS = 6
"""Rows of the text at most, its frame included."""


class ScoresScreen(InsideScreen[ScoreRead]):
    """Divides the scores of one head.

    Args:
        host: The main screen.
        answers: Asks the engine and keeps what it answered.
        choices: Those of the last time.
    """

    TOOL: ClassVar[str] = "scores"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = SCORES_SCREEN

    def __init__(self, host: Host, answers: Replies[ScoreRead], choices: ScoreChoices) -> None:
        super().__init__(host, answers)
        self._choices = choices

    @property
    def choices(self) -> ScoreChoices:
        """The choices at the present token."""
        return self._choices.at(self.node)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        layer, head = self._asked
        return (self.node, layer, head), ReadScore(self.node, layer, head)

    @property
    def _asked(self) -> tuple[int | None, int | None]:
        """The head that is wanted; in a recording another one of the token, where it has not that one."""
        wanted = self.choices.layer, self.choices.head
        if not self.host.controller.transport.recorded or self.answers.get((self.node, *wanted)):
            return wanted
        known = [key[1:] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
        same = [key for key in known if wanted[0] in (None, key[0]) and wanted[1] in (None, key[1])]
        return same[-1] if same else wanted

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideScreen`; up to a third of the screen."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: ScoreRead | None) -> str:
        return f"Why {head_name(answer)} looks there" if answer is not None else "Why a head looks there"

    def heat(self, answer: ScoreRead) -> tuple[str, Sequence[float], Collection[int]]:
        """See `InsideScreen`; the key that is looked at is marked, and the one that it is compared with."""
        label = self._label(len(self.path) - 1)
        marked = [place for place in (self.key, self.against) if place is not None]
        meaning = f"{head_name(answer)} looks from {label}: % under each token"
        return meaning, over_path(answer, len(self.path)), marked

    def _label(self, place: int) -> str:
        item = self.path[place]
        return quoted(token_label(item.text, item.raw))

    @property
    def key(self) -> int | None:
        """The key that is looked at, by its place in the path; None where nothing is known."""
        answer = self.answer
        if answer is None:
            return None
        order = by_weight(answer)
        return self.choices.key if self.choices.key in order else next(iter(order), None)

    @property
    def against(self) -> int | None:
        """The key that it is compared with; None for the mean."""
        answer = self.answer
        known = answer is not None and self.choices.against in answer.keys
        return self.choices.against if known and self.choices.against != self.key else None

    def draw(self, answer: ScoreRead, on: Canvas, width: int, height: int) -> list[Row]:
        key = self.key
        if key is None or key >= len(self.path):
            return [[Segment("The record holds no keys that fit together.", on.ink("bad"))]]
        return Painter(on).draw(view(answer, self.path, key, self.against), width, height)

    # ---- keys -----------------------------------------------------------------------------------

    def turn_layer(self, by: int) -> None:
        """Choose the same head of another layer."""
        layer, head = self._now
        depth = self.facts.layers if self.facts is not None else 1
        self.choices.layer, self.choices.head = max(0, min(depth - 1, layer + by)), head

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer; they go round."""
        layer, head = self._now
        heads = (self.facts.heads if self.facts is not None else None) or head + 2
        self.choices.layer, self.choices.head = layer, (head + by) % heads

    @property
    def _now(self) -> tuple[int, int]:
        """The head that is looked at, or asked for."""
        answer = self.answer
        if answer is not None:
            return answer.layer, answer.head
        return self.choices.layer or 0, self.choices.head or 0

    def turn_key(self, by: int) -> None:
        """Look at the key that is the next lighter one, or heavier."""
        if (answer := self.answer) is not None and (order := by_weight(answer)) and self.key is not None:
            place = order.index(self.key) + by
            self.choices.key = order[max(0, min(len(order) - 1, place))]

    def compare_with(self, by: int) -> None:
        """Compare with the next lighter key; first with the heaviest other one."""
        if (answer := self.answer) is None:
            return
        others = [place for place in by_weight(answer) if place != self.key]
        if others:
            now = others.index(self.against) + by if self.against in others else 0
            self.choices.against = others[now % len(others)]

    def against_mean(self) -> None:
        """Compare with the mean of all keys."""
        self.choices.against = None

    def choose_token(self, place: int) -> None:
        """Look at a token that was clicked as a key, where the head's weight on it is kept."""
        if (answer := self.answer) is not None and place in answer.keys:
            self.choices.key = place
        else:
            self.say("The head's weight on that token is not among those recorded")

    def goes_to(self, action: str) -> None:
        """The view of attention opens on the head."""
        if action == "attention":
            layer, head = self._now
            self.host.point(action, layer + 1, head + 1)
