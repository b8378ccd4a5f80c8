"""Skeleton, being filled in."""

from __future__ import annotations

from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from inspector.timeline import Timeline


class TextPanel(ScrollView):
    """The text, token by token."""

    DEFAULT_CSS = "TextPanel { border: round $panel; }"
    HELP = "# Text"
    metric: reactive[str] = reactive("surprisal", init=False)

    class SlotSelected(Message):
        """A token was clicked."""

        def __init__(self, slot: int) -> None:
            self.slot = slot
            super().__init__()

    def show(self, timeline: Timeline) -> None:
        """Show the timeline as it is now."""

    def render_line(self, y: int) -> Strip:
        return Strip.blank(self.size.width, self.rich_style)
