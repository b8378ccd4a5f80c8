"""Skeleton, being filled in."""

from __future__ import annotations

from textual.message import Message
from textual.widget import Widget

from engine.records import Candidate
from inspector.timeline import Timeline


class CandidatesPanel(Widget, can_focus=True):
    """What could come next."""

    DEFAULT_CSS = "CandidatesPanel { border: round $panel; }"
    HELP = "# Next token"
    highlighted: int = 0

    class CandidateChosen(Message):
        """The highlighted candidate was clicked again."""

        def __init__(self, id: int) -> None:
            self.id = id
            super().__init__()

    class CandidateHighlighted(Message):
        """Another row was highlighted."""

        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate."""
        return None

    def move(self, delta: int) -> None:
        """Highlight another row."""

    def show(self, timeline: Timeline) -> None:
        """Show the timeline as it is now."""

    def render(self) -> str:
        return ""
