"""Skeleton, being filled in."""

from __future__ import annotations

from textual.widget import Widget

from inspector.timeline import Timeline


class TimingPanel(Widget, can_focus=True):
    """Time."""

    DEFAULT_CSS = "TimingPanel { border: round $panel; }"
    HELP = "# Time"

    def show(self, timeline: Timeline) -> None:
        """Show the timeline as it is now."""

    def render(self) -> str:
        return ""
