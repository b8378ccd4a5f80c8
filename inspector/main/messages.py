"""What panels say: to the actions of the tool that takes it."""

from __future__ import annotations

from typing import ClassVar

from textual.message import Message


class ToolMessage(Message):
    """Base of what a panel says to a tool's actions."""

    tool: ClassVar[str]
    """Id of the tool."""


class CandidateChosen(ToolMessage):
    """The highlighted candidate was clicked: take it."""

    tool = "branching"

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class CandidateClicked(ToolMessage):
    """Another candidate was clicked: highlight it."""

    tool = "branching"

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class SlotSelected(ToolMessage):
    """A token was clicked: look at it."""

    tool = "looking"

    def __init__(self, slot: int) -> None:
        self.slot = slot
        super().__init__()


class StepClicked(Message):
    """A step was clicked, in the table or in the strip under it."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__()
