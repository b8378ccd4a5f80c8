"""The screen of why a head looks there: a key of one head, and what its score is made of, as bars around zero."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar

from rich.segment import Segment

from engine.protocol import Command, ReadScore, ScoreRead
from inspector.blocks.paint import Painter
from inspector.display import quoted, token_label
from inspector.documents.scores import by_weight, head_name, over_path, view
from inspector.main.inside_view import InsideView
from inspector.tools.scores.control import SCORES_SCREEN, ScoresActions
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row

TEXT_ROWS = 6
"""Rows of the text at most, its frame included."""


class ScoresScreen(InsideView[ScoreRead]):
    """Divides the scores of one head.

    Args:
        tool: Has what is chosen, and the answers.
    """

    TOOL: ClassVar[str] = "scores"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = SCORES_SCREEN

    def __init__(self, tool: ScoresActions) -> None:
        super().__init__(tool.host, tool.answers)
        self.tool = tool
        self.order: list[int] = []
        """The keys of the answer by their places in the path, the heaviest first."""
        self.key: int | None = None
        """The key that is looked at, by its place in the path; None while nothing is known."""
        self.against: int | None = None
        """The key that it is compared with; None for the mean."""

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """See `InsideView`; in a recording about another head of the token, if it has not the chosen one."""
        layer, head = self.tool.layer, self.tool.head
        if self.host.controller.transport.recorded and not self.answers.get((self.node, layer, head)):
            known = [key[1:] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
            same = [key for key in known if layer in (None, key[0]) and head in (None, key[1])]
            layer, head = same[-1] if same else (layer, head)
        return (self.node, layer, head), ReadScore(self.node, layer, head)

    def look(self) -> None:
        """See `InsideView`; keys that were chosen at another token are forgotten."""
        super().look()
        tool = self.tool
        if self.node != tool.node:
            tool.node, tool.key, tool.against = self.node, None, None
        self.order = order = by_weight(self.answer) if self.answer is not None else []
        self.key = tool.key if tool.key in order else next(iter(order), None)
        kept = self.answer is not None and tool.against in self.answer.keys
        self.against = tool.against if kept and tool.against != self.key else None

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to a third of the screen."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: ScoreRead | None) -> str:
        return f"Why {head_name(answer)} looks there" if answer is not None else "Why a head looks there"

    def heat(self, answer: ScoreRead) -> tuple[str, Sequence[float], Collection[int]]:
        """See `InsideView`; the key that is looked at is marked, and the one that it is compared with."""
        last = self.path[-1]
        marked = [place for place in (self.key, self.against) if place is not None]
        meaning = (
            f"{head_name(answer)} looks from {quoted(token_label(last.text, last.raw))}: % under each token"
        )
        return meaning, over_path(answer, len(self.path)), marked

    def draw(self, answer: ScoreRead, on: Canvas, width: int, height: int) -> list[Row]:
        """The sentence, the figures behind it, and the lists, as long as there is room for."""
        key, against = self.key, self.against
        if key is None or key >= len(self.path):
            return [[Segment("The record holds no keys that fit together.", on.ink("bad"))]]
        return Painter(on).draw(view(answer, self.path, key, against), width, height)

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[int, int]:
        """The head that is looked at, or asked for."""
        if self.answer is not None:
            return self.answer.layer, self.answer.head
        return self.tool.layer or 0, self.tool.head or 0

    def turn_layer(self, by: int) -> None:
        """Choose the same head of another layer."""
        layer, head = self._now
        depth = self.facts.layers if self.facts is not None else 1
        self.tool.layer, self.tool.head = max(0, min(depth - 1, layer + by)), head

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer; they go round."""
        layer, head = self._now
        heads = (self.facts.heads if self.facts is not None else None) or head + 2
        self.tool.layer, self.tool.head = layer, (head + by) % heads

    def turn_key(self, by: int) -> None:
        """Look at the key that is the next lighter one, or heavier."""
        if self.key in self.order:
            place = self.order.index(self.key) + by
            self.tool.key = self.order[max(0, min(len(self.order) - 1, place))]

    def compare_with(self, by: int) -> None:
        """Compare with the next lighter key; first with the heaviest other one."""
        if others := [place for place in self.order if place != self.key]:
            now = others.index(self.against) + by if self.against in others else 0
            self.tool.against = others[now % len(others)]

    def against_mean(self) -> None:
        """Compare with the mean of all keys."""
        self.tool.against = None

    def choose_token(self, place: int) -> None:
        """Look at a token that was clicked as a key, if the head's weight on it is kept."""
        if (answer := self.answer) is not None and place in answer.keys:
            self.tool.key = place
        else:
            self.say("The head's weight on that token is not among those recorded")

    def goes_to(self, action: str) -> None:
        """The view of attention opens on the head."""
        if action == "attention":
            layer, head = self._now
            self.host.point(action, layer + 1, head + 1)
