"""Skeleton, being filled in."""

from __future__ import annotations

from textual.widget import Widget

from engine.settings import Settings
from inspector.timeline import Timeline


class HeaderLine(Widget):
    """One line: model, phase, context used and the sampling settings."""

    DEFAULT_CSS = "HeaderLine { height: 1; }"

    def show(self, timeline: Timeline, settings: Settings) -> None:
        """Show the timeline as it is now."""

    def render(self) -> str:
        return ""
