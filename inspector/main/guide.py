"""Shows what a caption of a recording points at: a panel, or a tool's view until the replay continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.main.key_table import refusal
from inspector.main.tool import Tool, ToolActions
from inspector.main.view import View
from inspector.state.timeline import ELSEWHERE
from inspector.widgets.actions import Action

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen
    from inspector.session.player import Caption, Player


class CaptionGuide:
    """Goes to the panel or view that each caption of a replay points at.

    Args:
        main: The main screen.
    """

    def __init__(self, main: MainScreen) -> None:
        self._main = main
        self._told: Caption | None = None
        self._due = False
        """True until the guide has gone where the caption points: a race may begin only after the caption."""
        self._opened: View | None = None
        """The view that was opened for a caption."""
        self._pictures, self._at = 0, 0
        """Number of the recording's main screen changes, and of entries, shown when that view was opened."""

    def follow(self) -> None:
        """Go where the current caption points; leave the view that was opened for an earlier one."""
        told = self._main.controller.transport.telling
        if told is not self._told:
            self._told, self._due = told, told is not None and bool(told.tool)
        if self._opened is not None and self._is_over(self._opened):
            self._opened.dismiss()
            self._opened = None
        if told is not None and self._due:
            self._go(told.tool)

    def _is_over(self, opened: View) -> bool:
        player, told = self._player, self._told
        since = player.file.entries[self._at : player.position] if player is not None else ()
        elsewhere = self._due and told is not None and not self._shows(opened, told.tool)
        kinds = [type(each.value) for each in since]
        other = any(issubclass(kind, ELSEWHERE) and not issubclass(kind, opened.TELLING) for kind in kinds)
        return opened.left or elsewhere or other or self._pictures != self._shown

    @property
    def _shown(self) -> int:
        """Number of the recording's main screen changes that were shown so far."""
        player = self._player
        return player.file.stops.pictures(player.position) if player is not None else 0

    @property
    def _player(self) -> Player | None:
        playback = self._main.playback
        return playback.player if playback is not None else None

    def _go(self, place: str) -> None:
        """Go to a panel, or open a tool's view as soon as it has something to show."""
        main, opened = self._main, self._main.open_view
        if place in main.arrangement.by_id:
            self._due = False
            main.go_to(place)
        elif opened is not None and self._shows(opened, place):
            self._due = False
        elif (action := self._action(place)) is not None and opened is None and main.is_active:
            self._due = False
            main.call_later(self._open_view, action, place)

    def _action(self, place: str) -> Action | None:
        """The action that opens a recorded view: the one with that id, or else the first of its tool."""
        main, own = self._main, self._main.table.tool(place).id if place in self._main.table else place
        found = (tool for tool in main.table.tools if tool.id in (place, own))
        every = (each for tool in found for each in recorded_actions(tool, main.actions[tool.id]))
        return min(every, key=lambda each: each.id != place, default=None)

    def _shows(self, opened: View, place: str) -> bool:
        """True if the open view is the one that a caption names, by its action or else by its tool."""
        return place == (opened.opener if place in self._main.table else opened.TOOL)

    async def _open_view(self, action: Action, place: str) -> None:
        if self._told is None or self._told.tool != place or not self._main.is_active:
            return  # the replay continued meanwhile
        self._main.open_by(action)
        if (opened := self._main.open_view) is not None:
            self._opened, self._pictures = opened, self._shown
            self._at = self._player.position if self._player is not None else 0


def recorded_actions(tool: Tool, own: ToolActions) -> list[Action]:
    """A tool's actions that open a view of something that was recorded."""
    return [each for each in tool.opening if each.recorded(own) and not refusal(each, own.controller, own)]
