"""Positions as a tool: what is tried of the position of a token, each a question to the engine with its words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field, replace

from engine.frozen import frozen, slotted
from engine.protocol import PositionChange, PositionTried, PositionUse, TryPosition
from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import Host, Tool, ToolActions
from inspector.scales import count
from inspector.session.requests import LookReplies
from inspector.widgets.actions import Action, Needs, both

LATER = 32
"""Tokens after the one that is looked at which it sees without the mask, at most."""


# ---- what is tried ------------------------------------------------------------------------------


@frozen
class PositionTrial:
    """One change, at one token.

    Args:
        position: Of the token, from 0.
        change: What is changed.
        offset: What is added to positions.
        later: Tokens after it that go through with it.
        until: The node of the last of these.
    """

    position: int
    change: PositionChange
    offset: int = 0
    later: int = 0
    until: int | None = None

    def question(self, node: int) -> tuple[Hashable, TryPosition]:
        """The key of the trial at a token, which is `key_of` the answer, and the command."""
        return (
            (node, self.change, self.offset, self.later),
            TryPosition(node, self.change, self.offset, until=self.until),
        )

    @property
    def given(self) -> int:
        """The position that the token is given."""
        return self.position + self.offset

    def label(self, short: bool) -> str:
        """Its row in the table, which begins with `What if`."""
        match self.change:
            case "token":
                position = "" if short else "it is given position "
                return f"{position}{count(self.given)}, not {count(self.position)}"
            case "path":
                more = f"{count(abs(self.offset))} {'more' if self.offset >= 0 else 'less'}"
                return f"all: {more}" if short else f"all tokens are given {more}"
            case "mask":
                return "no mask" if short else f"no causal mask: it sees {self.later or 'none'} later"

    def words(self, use: PositionUse) -> str:
        """The lesson of the trial."""
        match self.change:
            case "mask" if self.later:
                return (
                    "Without the mask the answer leaks: the token sees what comes after it. Training would be "
                    "cheating, and in generation nothing is there to see."
                )
            case "mask":
                return (
                    "Nothing comes after it yet, but the tokens before it saw those after them. "
                    "Press ← for a token that sees its own answer."
                )
            case "path" if use.way == "learned":
                return "Each position has a vector of its own, learned by itself: moved on, all of them are others."
            case "path":
                return (
                    "Queries and keys are turned alike, and only the angle between them counts: the distance. "
                    "So the same number for all changes next to nothing."
                )
            case "token":
                why = "Its offset was forgotten: all" if not self.given else "All"
                off = count(abs(self.offset))
                return (
                    f"{why} its distances are off by {off}, though the keys in the cache are right. "
                    "Nothing fails, the text stays fluent: a silent bug."
                )


def trials(position: int, offsets: Sequence[int], later: int, until: int | None) -> list[PositionTrial]:
    """The trials at a token.

    Args:
        position: Of the token.
        offsets: Of the rows that a person can change: three of the token, one of the path.
        later: Tokens after it that are seen without the mask.
        until: The node of the last of these.
    """
    return [
        PositionTrial(position, "token", -position),
        *(PositionTrial(position, "token", offset) for offset in offsets[:-1]),
        PositionTrial(position, "path", offsets[-1]),
        PositionTrial(position, "mask", 0, later, until if later else None),
    ]


def key_of(answer: PositionTried) -> Hashable:
    """The key of an answer."""
    return answer.node, answer.change, answer.offset, answer.later


# ---- what keys do -------------------------------------------------------------------------------


@slotted
class PositionChoices:
    """The choices of a person, kept from opening to opening."""

    row: int = 0
    offsets: list[int] = field(default_factory=lambda: [-1, 1, 100, 100])
    """Of the rows between the first and the last: three of the token, one of the path."""


class PositionsActions(ToolActions):
    """Opens the screen, and keeps the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = LookReplies(host.controller.client, PositionTried, key_of)
        self.choices = PositionChoices()

    def open(self) -> None:
        """Look at the position of the selected token."""
        from inspector.tools.positions.screen import PositionsScreen

        self.open_screen(PositionsScreen(self.host, self.answers, self.choices))


# ---- keys ---------------------------------------------------------------------------------------

POSITIONS_SCREEN = inside_table(
    "In the positions",
    *both(("positions.above", "positions.below"), ("Row above", "Row below"),
          "Look at another what-if: its candidates before and after stand under the table.",
          lambda own, by: own.turn_row(by), hint="what if", worth=7),
    *both(("positions.less", "positions.more"), ("Less", "More"), "Tell it a position less or more.",
          lambda own, by: own.shift(by), hint="another offset", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip
POSITIONS = Tool(
    "positions",
    "Positions",
    PositionsActions,
    screen=True,
    actions=(
        Action("positions", "Positions",
            "Show how this token is given its position, and what a wrong offset or no causal mask would do.",
            PositionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="rope, rotary embedding, position encoding, positional embedding, causal mask", view="positions"),
    ),
    owners=(POSITIONS_SCREEN,),
)  # fmt: skip
