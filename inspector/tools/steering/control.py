"""The direction of steering, how it is added, what the engine answered, and the keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import (
    STRENGTHS,
    Candidate,
    Direction,
    DirectionMade,
    HoldInterventions,
    Intervene,
    Intervened,
    Intervention,
    MakeDirection,
    Prefilled,
    PromptToken,
    Record,
    Scope,
    StrengthsSwept,
    SweepStrengths,
)
from inspector.documents.steering import Contrast, followed
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.session.controller import Controller
from inspector.session.requests import Replies
from inspector.state.inside import swept_key, tried_key
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, applies, both, dialog_table, fields

if TYPE_CHECKING:
    from inspector.config.directions import Steering

# ---- the direction, how it is added, and the answers of the engine ------------------------------


Source = Contrast | Direction
"""What a direction is made of, or one from a file."""


class SteeringControl:
    """The direction, the layer and the strength that it is added with, and what the engine answered.

    Args:
        controller: Sends the questions.
        begin: A direction that the first prompt's completion is steered by; None for none.
    """

    def __init__(self, controller: Controller, begin: Steering | None = None) -> None:
        client = controller.client
        self._controller, self._begin = controller, begin
        self.made = Replies(client, DirectionMade)
        self.swept = Replies(client, StrengthsSwept)
        self.tried = Replies(client, Intervened)
        self.source: Source | None = begin.direction if begin is not None else None
        self.layer: int | None = begin.layer if begin is not None else None
        """None for the one that a file's direction was made after, or else the one in the middle."""
        self.strength = begin.strength if begin is not None else 2.0
        self.reach = 0
        """In `REACHES`: how much of the path is steered."""
        self.followed: tuple[int, int] | None = None
        """Places of the two candidates whose logits are followed, the most probable first; None for those that the
        direction is named after, or else the first two."""
        client.listen(self._receive, Prefilled)

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self._controller.timeline

    def _receive(self, record: Record) -> None:
        """Steer the first prompt's completion, where that was asked for; and by what a lesson made."""
        if isinstance(record, DirectionMade) and not self.timeline.recorded:
            made = Contrast(record.direction.name, record.toward, record.away, record.nodes)
            if made != self.source:
                self.source, self.layer = made, record.direction.layer
        if self._begin is not None and isinstance(record, Prefilled) and not self.timeline.recorded:
            begin, self._begin = self._begin, None
            self._controller.client.do(HoldInterventions(record.tokens[-1].node, (begin.intervention,)))

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for answers in (self.made, self.swept, self.tried):
            answers.drop()

    def use(self, source: Source) -> None:
        """Steer by another direction, after the layer that it comes with."""
        self.source = source
        if isinstance(source, Direction):
            self.layer = source.layer

    # ---- how it is added --------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Layers of the model."""
        return self.timeline.facts.layers if self.timeline.facts is not None else 1

    @property
    def layer_now(self) -> int:
        """The layer after which it is added."""
        return min(self.depth - 1, self.depth // 2 if self.layer is None else self.layer)

    def turn_layer(self, by: int) -> None:
        """Add it after another layer."""
        self.layer = max(0, min(self.depth - 1, self.layer_now + by))

    def turn_strength(self, by: int) -> None:
        """Add it with the next strength, or with the one before."""
        others = [each for each in STRENGTHS if (each > self.strength if by > 0 else each < self.strength)]
        if others:
            self.strength = min(others) if by > 0 else max(others)

    def turn_reach(self) -> None:
        """Steer another part of the path."""
        self.reach = (self.reach + 1) % len(REACHES)

    def span(self, path: tuple[Item, ...]) -> tuple[Scope, int]:
        """The part of a path that is steered, and its first position."""
        prompt = max((place for place, item in enumerate(path) if isinstance(item, PromptToken)), default=0)
        scope: Scope = "token" if not self.reach else "context"
        return scope, prompt if self.reach == 1 else 0

    # ---- questions --------------------------------------------------------------------------------

    @property
    def making(self) -> tuple[Hashable, MakeDirection] | None:
        """The question that makes the direction, and its key; None where it is from a file, or there is none."""
        if not isinstance(self.source, Contrast):
            return None
        of = self.source
        if any(node not in self.timeline.tree.nodes for node in of.nodes):
            return None  # another prompt was given: its nodes have other tokens
        asked = MakeDirection(self.layer_now, of.toward, of.away, of.nodes, of.name)
        return (asked.layer, asked.toward, asked.away, asked.nodes), asked

    @property
    def direction(self) -> Direction | None:
        """The direction, once it is there."""
        if isinstance(self.source, Direction):
            return self.source
        making = self.making
        made = self.made.get(making[0]) if making is not None else None
        return made.direction if made is not None and made.facts.failed is None else None

    def recorded(self, node: int) -> StrengthsSwept | None:
        """What a recording has of a node: the sweep that was looked at last."""
        found = (
            self.swept.get(key)
            for key in reversed(self.swept.keys)
            if isinstance(key, tuple) and key[0] == node
        )
        return next(found, None)

    def unit(self, direction: Direction) -> Intervention:
        """The direction as it is added now."""
        return Intervention("direction", self.layer_now, None, self.strength, direction)

    def sweeping(
        self, node: int, path: tuple[Item, ...], direction: Direction
    ) -> tuple[Hashable, SweepStrengths]:
        """The question about all strengths, and its key."""
        scope, begin = self.span(path)
        best = self._best
        token, other = (best[at].id if at < len(best) else None for at in self._places(direction.name))
        asked = SweepStrengths(node, direction, self.layer_now, scope, begin, token, other)
        return (*swept_key(asked), token, other), asked

    def trying(self, node: int, path: tuple[Item, ...], direction: Direction) -> tuple[Hashable, Intervene]:
        """The question about the candidates with the present strength, and its key."""
        scope, begin = self.span(path)
        asked = Intervene(node, (self.unit(direction),), scope, begin=begin)
        return tried_key(asked), asked

    @property
    def _best(self) -> list[Candidate]:
        """The candidates, the most probable first."""
        return sorted(self.timeline.candidates, key=lambda each: each.rank)

    def _places(self, name: str) -> tuple[int, int]:
        """The places of the two candidates that are followed."""
        return self.followed if self.followed is not None else followed(name, self._best)

    def follow(self, which: int) -> None:
        """Follow the next candidate's logit.

        Args:
            which: 0 for the first of the two, 1 for the one whose logit is taken off.
        """
        count, direction = len(self.timeline.candidates), self.direction
        if count < 3 or direction is None:
            return
        places = list(self._places(direction.name))
        places[which] = (places[which] + 1) % count
        if places[0] == places[1]:
            places[which] = (places[which] + 1) % count
        self.followed = places[0], places[1]


REACHES = ("this token", "the completion", "whole context")
"""How much of the path is steered: this token's forward alone; from the prompt's last token on, which predicts the
first of the completion; all of it."""


def other_ends(timeline: Timeline, path: tuple[Item, ...]) -> Iterator[int]:
    """The ends of other prompts and branches of the model's own: a direction may be made of the way to them."""
    tree, own = timeline.tree, {item.node for item in (*path, *timeline.items)}
    return (
        node
        for node, item in tree.nodes.items()
        if node not in own and not tree.children.get(node) and tree.under(item) is None
    )


# ---- keys ---------------------------------------------------------------------------------------

STEERING_SCREEN = look_table(
    "While the model is steered",
    *both(("steering.later_layer", "steering.earlier_layer"), ("Later layer", "Earlier layer"),
          "Add the direction after a later layer, or after an earlier one; one of texts or branches is made of the "
          "streams there.",
          lambda own, by: own.turn_layer(by), by=(1, -1), hint="layer", worth=7),
    *both(("steering.less", "steering.more"), ("Weaker", "Stronger"),
          "Add it with another strength; below 0 it is subtracted.", lambda own, by: own.turn_strength(by),
          hint=lambda own: "strength" if own.direction else "", worth=8),
    Action("steering.make", "Direction",
           "Make a direction: of texts that say one thing and texts that say another, of two branches, or from a file.",
           lambda own: own.make(), worth=9, place=1,
           hint=lambda own: "" if own.host.controller.transport.recorded else "another direction" if own.direction
           else "make a direction"),
    Action("steering.scope", "Scope",
           "Steer only this token's forward, all tokens from the prompt's last one on, or the whole context.",
           lambda own: own.control.turn_reach(), hint=lambda own: own.reach, worth=6),
    Action("steering.follow", "Follow", "Follow the logit of another candidate.",
           lambda own: own.control.follow(0), hint=lambda own: "follow" if own.direction else "", worth=5),
    Action("steering.against", "Against", "Subtract the logit of another candidate.",
           lambda own: own.control.follow(1), hint=lambda own: "against" if own.direction else "", worth=5),
    Action("steering.hold", "Hold", "Continue with it, in a branch that begins with this token.",
           lambda own: own.hold(), hint=lambda own: "hold" if own.direction else "", worth=7),
    Action("steering.release", "Release",
           "Leave a steered branch: return to the model's own token where it begins.", lambda own: own.release(),
           hint=lambda own: "release" if own.timeline.under else "", worth=7),
    Action("steering.save", "Save", "Save the direction to a file, for `--steer FILE` and for another session.",
           lambda own: own.save(), hint=lambda own: "save" if own.direction else "", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
    text="Any vector of that length changes what the model predicts. So every strength is tried with 32 random "
    "directions of the same length, too: only what lies outside of their band is due to the direction.",
)  # fmt: skip
DIRECTION_DIALOG = dialog_table(
    "While a direction is made",
    *fields(),
    applies("Make it, or read it from the file."),
)  # fmt: skip
SAVING_DIALOG = dialog_table("While a direction is saved", *fields(), told=False)
