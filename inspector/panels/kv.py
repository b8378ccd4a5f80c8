"""Skeleton, being filled in."""

from __future__ import annotations

from textual.widget import Widget

from inspector.timeline import Timeline


class KVPanel(Widget, can_focus=True):
    """KV."""

    DEFAULT_CSS = "KVPanel { border: round $panel; }"
    HELP = "# KV"

    def show(self, timeline: Timeline) -> None:
        """Show the timeline as it is now."""

    def render(self) -> str:
        return ""
