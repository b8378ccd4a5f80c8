"""The panels' place on the screen: the dividers between them are dragged with the mouse."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.containers import Container

from inspector.main.panel_layout import PanelLayout


class PanelArea(Container):
    """Moves dividers.

    Args:
        layout: Puts the panels in their places.
        changed: Has everything shown again.
        id: Of the widget.
    """

    def __init__(self, layout: PanelLayout, changed: Callable[[], None], id: str | None = None) -> None:
        super().__init__(id=id)
        self._layout, self._changed = layout, changed
        self._dragged = ""
        """The divider under the pressed button."""

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the divider under the mouse."""
        self._dragged = self._layout.divider_at(int(event.screen_x), int(event.screen_y))
        if self._dragged:
            self.capture_mouse()
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the divider along."""
        x, y = int(event.screen_x), int(event.screen_y)
        if self._dragged:
            self._layout.drag(self._dragged, x, y)
            self._changed()
            event.stop()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Let go."""
        if self._dragged:
            self._dragged = ""
            self.release_mouse()
            self.screen.clear_selection()
            event.stop()
