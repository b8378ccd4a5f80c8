"""What panels say to the main screen, whichever of them it is."""

from __future__ import annotations

from typing import ClassVar

from textual.message import Message


class CandidateChosen(Message):
    """The highlighted candidate was clicked: take it."""

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class CandidateClicked(Message):
    """Another candidate was clicked: highlight it."""

    def __init__(self, id: int) -> None:
        self.id = id
        super().__init__()


class SlotSelected(Message):
    """A token was clicked: look at it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        super().__init__()


class StepClicked(Message):
    """A step was clicked, in the table or in the strip under it."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__()


class ToolMessage(Message):
    """Base of what a tool's panel says to the tool's actions."""

    tool: ClassVar[str]
    """Id of the tool."""
