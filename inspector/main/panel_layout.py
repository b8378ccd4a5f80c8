"""Puts the panels of the main screen where the arrangement has them, for the size of the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from textual.screen import Screen

from inspector.main.arrangement import Arrangement, Layout, Place, layout_for
from inspector.main.tool import ToolActions


class PanelLayout:
    """Shows, hides and focuses panels.

    Args:
        screen: Its panels have the ids of the arrangement; `opening` takes the place of the text while there is none.
        arrangement: What a person looked at last.
        actions: The tools' actions by id: one may have a dialog open that leaves its panel in sight.
    """

    def __init__(
        self, screen: Screen[None], arrangement: Arrangement, actions: Mapping[str, ToolActions]
    ) -> None:
        self.arrangement = arrangement
        self._screen, self._actions = screen, actions
        self._arranged: tuple[Layout, frozenset[str], bool, bool] | None = None
        self.waiting = True
        """Whether there is no text yet."""

    @property
    def now(self) -> Layout:
        """How the panels are arranged now."""
        return layout_for(*self._screen.app.size, self.arrangement.enlarged)

    @property
    def _in_dialog(self) -> str | None:
        return next((id for id, actions in self._actions.items() if actions.in_dialog), None)

    @property
    def shown(self) -> frozenset[str]:
        """Ids of the panels that are, or are about to be, on screen."""
        dialog = self._in_dialog
        side = None if self.waiting else dialog or self.arrangement.open_side
        shown = self.arrangement.shown(self.now, side)
        low = dialog is not None and self.now is Layout.STACK and self._screen.app.size.height < 32
        return shown - {self.arrangement.text} if low else shown

    def apply(self) -> None:
        """Arrange the panels where anything about that changed, and focus the current one."""
        arranged = (self.now, self.shown, self.waiting, self._in_dialog is not None)
        if arranged != self._arranged:
            self._arranged = arranged
            self._place(*arranged)
        self._focus_current()

    def _place(self, layout: Layout, shown: frozenset[str], waiting: bool, in_dialog: bool) -> None:
        screen, arrangement = self._screen, self.arrangement
        places = {panel.place for panel in arrangement.panels if panel.id in shown}
        classes = {f"-{kind.value}": kind is layout for kind in Layout}
        below = Place.BELOW in places and Place.SIDE not in places
        # together: each change by itself has the styles of all widgets computed again
        screen.update_classes({**classes, "-waiting": waiting, "-trying": in_dialog, "-wide-below": below})
        for panel in arrangement.panels:
            replaced = waiting and panel.id == arrangement.text
            screen.query_one(f"#{panel.id}").display = panel.id in shown and not replaced
        screen.query_one("#opening").display = waiting and arrangement.text in shown

    def _focus_current(self) -> None:
        current, focused = self.arrangement.current, self._screen.focused
        name = "opening" if self.waiting and current == self.arrangement.text else current
        if focused is None or focused.id != name:
            self._screen.set_focus(self._screen.query_one(f"#{name}"), scroll_visible=False)
