"""The panels' place on the screen: the dividers between them are dragged with the mouse."""

from __future__ import annotations

from collections.abc import Callable, Collection

from textual import events
from textual.containers import Container

from inspector.main.division import Grip
from inspector.main.panel_layout import PanelLayout


class PanelArea(Container):
    """Moves dividers; a panel that is left nearly no room is hidden.

    Args:
        layout: Puts the panels in their places.
        dragged: Has everything shown again, while the button is pressed with the panels that letting go would hide.
        hide: Hides panels.
        id: Of the widget.
    """

    def __init__(
        self,
        layout: PanelLayout,
        dragged: Callable[[Collection[str]], None],
        hide: Callable[[Collection[str]], None],
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._layout, self._dragged, self._hide = layout, dragged, hide
        self._grip: Grip | None = None
        """The divider under the pressed button."""
        self._sizes: dict[str, int] = {}
        """Those before it was moved: a panel that is shown again has its room back."""

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the divider under the mouse."""
        self._grip = self._layout.grip(int(event.screen_x), int(event.screen_y))
        if self._grip is not None:
            self._sizes = dict(self._layout.sizes)
            self.capture_mouse()
            self.screen.clear_selection()  # the toolkit began one with the press
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the divider along."""
        x, y = int(event.screen_x), int(event.screen_y)
        if self._grip is not None:
            self._layout.drag(self._grip.divider, x, y)
            self._dragged(self._grip.squeezed(x, y))
            event.stop()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Let go."""
        if self._grip is None:
            return
        squeezed = self._grip.squeezed(int(event.screen_x), int(event.screen_y))
        self._let_go()
        event.stop()
        if squeezed:
            self._layout.sizes = self._sizes
        self._hide(squeezed)

    def on_resize(self) -> None:
        """Let go: the panels are not where they were when the divider was taken hold of."""
        if self._grip is not None:
            self._let_go()
            self._dragged(())  # nothing is about to be hidden any more

    def _let_go(self) -> None:
        self._grip = None
        self.release_mouse()
