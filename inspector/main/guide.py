"""Goes where a caption of a recording points: to a panel, or to a screen of a tool until the replay goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from inspector.main.key_table import KeyTable, refusal
from inspector.main.tool import Host, Tool, ToolActions
from inspector.main.tool_screen import ToolScreen
from inspector.session.stops import ELSEWHERE, Caption
from inspector.widgets.actions import Action

if TYPE_CHECKING:
    from inspector.session.player import Player


class CaptionGuide:
    """Follows the captions as they speak.

    Args:
        screen: The main screen.
        host: What it does for its tools.
        table: All keys.
        actions: The actions of the tools, by id.
        opened: The open view, if any.
    """

    def __init__(
        self,
        screen: Screen[None],
        host: Host,
        table: KeyTable,
        actions: Mapping[str, ToolActions],
        opened: Callable[[], ToolScreen[Any] | None],
    ) -> None:
        self._screen, self._host, self._table, self._actions = screen, host, table, actions
        self._open = opened
        self._told: Caption | None = None
        self._due = False
        """True if what the caption points at has not been gone to: a race may begin after it."""
        self._opened: ToolScreen[object] | None = None
        """The screen that was opened for a caption."""
        self._pictures, self._at = 0, 0
        """Number of changes of the main screen, and of entries, that were on show then."""

    def follow(self) -> None:
        """Go where the caption that speaks now points; leave what was opened for the one before."""
        told = self._host.controller.transport.telling
        if told is not self._told:
            self._told, self._due = told, told is not None and bool(told.tool)
        if self._opened is not None and self._is_over(self._opened):
            self._leave(self._opened)
        if told is not None and self._due:
            self._go(told.tool)

    def _is_over(self, opened: ToolScreen[object]) -> bool:
        player, told = self._player, self._told
        since = player.file.entries[self._at : player.position] if player is not None else ()
        elsewhere = self._due and told is not None and told.tool != opened.TOOL
        kinds = [type(each.value) for each in since]
        other = any(issubclass(kind, ELSEWHERE) and not issubclass(kind, opened.TELLING) for kind in kinds)
        return opened.left or elsewhere or other or self._pictures != self._shown

    @property
    def _shown(self) -> int:
        """Number of changes of the main screen that are on show."""
        player = self._player
        return player.file.stops.pictures(player.position) if player is not None else 0

    @property
    def _player(self) -> Player | None:
        playback = self._host.playback
        return playback.player if playback is not None else None

    def _leave(self, opened: ToolScreen[object]) -> None:
        self._opened = None
        if not opened.left:
            opened.dismiss(None)

    def _go(self, place: str) -> None:
        """Go to a panel, or open the screen of a tool as soon as it has something to show."""
        screen, opened = self._screen, self._open()
        if any(panel.id == place for panel in self._host.arrangement.panels):
            self._due = False
            self._host.go_to(place)
        elif opened is not None and place == opened.TOOL:
            self._due = False
        elif (action := self._action(place)) is not None and opened is None and screen.is_active:
            self._due = False
            screen.call_later(self._open_view, action, place)

    def _action(self, place: str) -> Action | None:
        """The action that opens a tool's screen on what was recorded."""
        tool = next((tool for tool in self._table.tools if tool.id == place), None)
        return recorded_action(tool, self._actions[place]) if tool is not None and tool.screen else None

    async def _open_view(self, action: Action, place: str) -> None:
        if self._told is None or self._told.tool != place or not self._screen.is_active:
            return  # it went on meanwhile
        if action.run is not None and (done := action.run(self._actions[place])) is not None:
            await done
        if (opened := self._open()) is not None:
            self._opened, self._pictures = opened, self._shown
            self._at = self._player.position if self._player is not None else 0


def recorded_action(tool: Tool, own: ToolActions) -> Action | None:
    """The first action of a tool that has something to show without an engine; None where none has."""
    found = (each for each in tool.actions if each.recorded(own) and not refusal(each, own.controller, own))
    return next(found, None)
