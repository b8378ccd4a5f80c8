"""Skeleton, being filled in."""

from __future__ import annotations

from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from inspector.timeline import Timeline


class StepsPanel(Widget, can_focus=True):
    """The steps as a table, and a strip of the chosen metric."""

    DEFAULT_CSS = "StepsPanel { border: round $panel; }"
    HELP = "# Steps"
    metric: reactive[str] = reactive("surprisal", init=False)

    class SlotSelected(Message):
        """A step was clicked."""

        def __init__(self, slot: int) -> None:
            self.slot = slot
            super().__init__()

    def show(self, timeline: Timeline) -> None:
        """Show the timeline as it is now."""

    def render(self) -> str:
        return ""
