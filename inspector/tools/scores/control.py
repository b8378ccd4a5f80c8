"""The choices in the view of a head's scores, the answers of the engine, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import ScoreRead
from inspector.display import quoted, token_label
from inspector.documents.scores import head_name, over_path
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.main.tool import OfferedHeat, ToolActions
from inspector.session.requests import Replies
from inspector.widgets.actions import Action, both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class ScoresActions(ToolActions):
    """The answers of the engine, and what was chosen, from opening to opening."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, ScoreRead)
        self.layer: int | None = None
        """The layer, from 0; None for that of the head that the engine finds."""
        self.head: int | None = None
        """The head, from 0; None as for the layer."""
        self.node: int | None = None
        """The token at which keys were chosen: elsewhere they are the usual ones."""
        self.key: int | None = None
        """The key that is looked at, by its place in the path; None for the heaviest."""
        self.against: int | None = None
        """The one that it is compared with; None for the mean of all."""
        self._heat: tuple[ScoreRead, OfferedHeat] | None = None
        """The latest offer, and what it was made of."""

    def heat(self) -> OfferedHeat | None:
        """The weights of the head that was looked at last."""
        read = self.answers.newest()
        if read is None or read.node not in self.timeline.tree.nodes:
            return None
        if self._heat is None or self._heat[0] is not read:
            path = self.timeline.tree.path(read.node)
            shares = {item.node: share for item, share in zip(path, over_path(read, len(path)), strict=True)}
            token = quoted(token_label(path[-1].text, path[-1].raw))
            self._heat = read, OfferedHeat(f"{head_name(read)} from {token}", shares)
        return self._heat[1]

    def point(self, *place: int) -> None:
        """Choose a head of a layer; of a layer alone the head that looks most at one token."""
        layer, *head = place
        self.layer, self.head = layer - 1, head[0] - 1 if head else None


SCORES_SCREEN = look_table(
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
    SCROLLS,
    text="A bar to the right makes the head look more at the key, a hatched one to the left less. A click on a token "
    "of the text looks at it as a key.",
)  # fmt: skip
