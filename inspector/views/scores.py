"""A page of attention: why a head looks at a key, with the parts of the score as bars around zero."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment

from engine.protocol import Command, ReadScore, ScoreRead
from inspector.blocks.paint import Painter
from inspector.documents.scores import by_weight, head_name, labels_of, over_path, view
from inspector.main.inside_view import (
    SCROLLS,
    TITLED,
    InsideView,
    attention_from,
    label_at,
    look_table,
    page,
    walking,
)
from inspector.main.tool import OfferedHeat
from inspector.main.view import neighbor
from inspector.session.requests import Replies
from inspector.state.inside import Answers
from inspector.state.session_tree import Item
from inspector.widgets.actions import Action, ActionTable, both
from inspector.widgets.canvas import Canvas, Row

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

TEXT_ROWS = 6
"""Maximum rows of the text, its frame included."""


SCORES_KEYS = look_table(
    "While a head's scores are shown",
    *walking("Look from another token; the head stays."),
    *both(("scores.later_layer", "scores.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a head of a later layer, or of an earlier one.", lambda own, by: own.turn_layer(by), by=(1, -1),
          hint="layer", worth=8),
    *both(("scores.head_before", "scores.next_head"), ("Previous head", "Next head"),
          "Choose the previous or the next head.", lambda own, by: own.turn_head(by), hint="head", worth=8),
    *both(("scores.lighter", "scores.heavier"), ("Lighter key", "Heavier key"),
          "Look at a key with less or with more of the head's attention.", lambda own, by: own.turn_key(by),
          by=(1, -1), hint="key", worth=8),
    *both(("scores.compare", "scores.compare_back"), ("Compare", "Compare back"),
          "Compare the key with another one instead of the mean.",
          lambda own, by: own.compare_with(by), by=(1, -1), hint="against", worth=6, one=True),
    Action("scores.mean", "Against the mean", "Compare the key with the mean of all keys again.",
           lambda own: own.against_mean(), hint=lambda own: "mean" if own.against is not None else "", worth=5),
    page("attention", "all heads"),
    SCROLLS,
    text="A bar to the right makes the head look more at the key, a hatched one to the left less. A click on a token "
    "of the text looks at it as a key.",
)  # fmt: skip


class ScoresView(InsideView[ScoreRead]):
    """The scores of one head, divided by what wrote the query and the keys."""

    TOOL: ClassVar[str] = "attention"
    HEATS: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = SCORES_KEYS

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host, Replies(host.controller.client, ScoreRead))
        self._head: tuple[int | None, int | None] = None, None
        """The chosen layer and head, from 0; None to let the engine choose."""
        self._keys: tuple[int | None, int | None] = None, None
        """Indices in the path of the chosen key and of the one that it is compared with."""
        self._keys_at = self.node
        """The token at which these keys were chosen."""
        self.order: list[int] = []
        """Indices in the path of the answer's keys, the heaviest first. `look` sets this and the next two."""
        self.key: int | None = None
        """The key that is looked at, by its index in the path; None until one is known."""
        self.against: int | None = None
        """The key that it is compared with; None for the mean of all."""

    def point(self, *place: int) -> None:
        """Choose a layer and a head, from 1; without a head, the one that looks most at one token."""
        layer, *head = place
        self._head = layer - 1, head[0] - 1 if head else None

    def offered(self, answer: ScoreRead, path: Sequence[Item]) -> OfferedHeat:
        """The weights of the head that was looked at last."""
        shares = {item.node: share for item, share in zip(path, over_path(answer, len(path)), strict=True)}
        return OfferedHeat(f"{head_name(answer)} from {label_at(path)}", shares)

    # ---- asking ---------------------------------------------------------------------------------

    def question(self) -> tuple[Hashable, Command]:
        """See `InsideView`; in a recording without the chosen head, about another head of the token."""
        layer, head = self._head
        if not self.live and not self.answers.get((self.node, layer, head)):
            known = [key[1:] for key in self.answers.keys if isinstance(key, tuple) and key[0] == self.node]
            same = [key for key in known if layer in (None, key[0]) and head in (None, key[1])]
            layer, head = same[-1] if same else (layer, head)
        return (self.node, layer, head), ReadScore(self.node, layer, head)

    def look(self) -> None:
        """See `InsideView`; keys that were chosen at another token are forgotten."""
        super().look()
        if self.node != self._keys_at:
            self._keys_at, self._keys = self.node, (None, None)
        key, against = self._keys
        self.order = by_weight(self.answer) if self.answer is not None else []
        self.key = key if key in self.order else next(iter(self.order), None)
        self.against = against if against in self.order and against != self.key else None
        if self.answer is not None:
            self.timeline.of(Answers).head = self.answer.layer, self.answer.head

    # ---- showing --------------------------------------------------------------------------------

    def text_rows(self, needed: int) -> int:
        """See `InsideView`; up to a third of the screen."""
        return max(3, min(TEXT_ROWS, self.area.height // 3, needed))

    def heading(self, answer: ScoreRead | None) -> str:
        if answer is None:
            return "Why a head looks there"
        key = self.key
        there = "there" if key is None or key >= len(self.path) else f"at {labels_of(self.path)[key]}"
        return f"Why {head_name(answer)} looks {there}"

    def heat(self, answer: ScoreRead) -> tuple[str, Sequence[float], Collection[int]]:
        """See `InsideView`; the key that is looked at is marked, and the one that it is compared with."""
        marked = [place for place in (self.key, self.against) if place is not None]
        room = self.area.width - TITLED
        title = attention_from(head_name(answer), self.path, self.timeline.selected, room)
        return title, over_path(answer, len(self.path)), marked

    def draw(self, answer: ScoreRead, on: Canvas, width: int, height: int) -> list[Row]:
        key = self.key
        if key is None or key >= len(self.path):
            said = "This record of the head's keys is inconsistent. A live session can read them again."
            return [[Segment(said, on.ink("bad"))]]
        return Painter(on).draw(view(answer, self.path, key, self.against), width, height)

    # ---- keys -----------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[int, int]:
        """The layer and the head that are looked at, or asked for."""
        if self.answer is not None:
            return self.answer.layer, self.answer.head
        return self._head[0] or 0, self._head[1] or 0

    def turn_layer(self, by: int) -> None:
        """Choose the same head of another layer."""
        layer, head = self._now
        depth = self.facts.layers if self.facts is not None else 1
        self._head = max(0, min(depth - 1, layer + by)), head

    def turn_head(self, by: int) -> None:
        """Choose another head of the layer; after the last comes the first."""
        layer, head = self._now
        heads = (self.facts.heads if self.facts is not None else None) or head + 2
        self._head = layer, (head + by) % heads

    def turn_key(self, by: int) -> None:
        """Look at the next lighter key, or the next heavier one."""
        if self.key is not None:
            self._keys = neighbor(self.order, self.key, by), self._keys[1]

    def compare_with(self, by: int) -> None:
        """Compare with the next lighter key; first with the heaviest other one."""
        if others := [place for place in self.order if place != self.key]:
            now = others.index(self.against) + by if self.against in others else 0
            self._keys = self._keys[0], others[now % len(others)]

    def against_mean(self) -> None:
        """Compare with the mean of all keys."""
        self._keys = self._keys[0], None

    def choose_token(self, place: int) -> None:
        """Look at a clicked token as a key, if the head's weight on it is in the answer."""
        if (answer := self.answer) is not None and place in answer.keys:
            self._keys = place, self._keys[1]
        else:
            self.say("The head's weight on that token is not recorded: click one with a number under it")

    def goes_to(self, action: str) -> None:
        """Open the view of attention on the head."""
        if action == "attention":
            layer, head = self._now
            self.host.point(action, layer + 1, head + 1)
