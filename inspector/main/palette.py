"""The command palette: every key of the main screen by its name."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, cast

from textual.app import ComposeResult
from textual.command import (
    CommandInput,
    CommandList,
    CommandPalette,
    DiscoveryHit,
    Hit,
    Hits,
    Provider,
    SearchIcon,
)
from textual.containers import Horizontal, Vertical
from textual.widgets import LoadingIndicator

from inspector.main.tool import Key, KeyTable
from inspector.widgets.dialog import HintLine
from inspector.widgets.option_list import SafeOptionList
from inspector.widgets.overlay import Overlay


class SafeCommandList(CommandList, SafeOptionList):
    """The list of commands."""


class Palette(CommandPalette, Overlay[None]):
    """The toolkit's palette, left once like any other dialog, with a list that no early key ends the program in."""

    def compose(self) -> ComposeResult:
        """The toolkit's own, but for the list."""
        with Vertical(id="--container"):
            with Horizontal(id="--input"):
                yield SearchIcon()
                yield CommandInput(placeholder=self._placeholder, select_on_focus=False)
            with Vertical(id="--results"):
                yield SafeCommandList()
                yield LoadingIndicator()
        yield HintLine()

    def let_go(self) -> None:
        """End the clocks: the toolkit's would ask for the list when it has gone."""
        self._stop_busy_countdown()
        self._stop_no_matches_countdown()


class _HasKeys(Protocol):
    """The main screen."""

    table: KeyTable


class KeyCommands(Provider):
    """Offers the actions of the main screen."""

    @property
    def _keys(self) -> Sequence[Key]:
        return cast(_HasKeys, self.screen).table.keys

    async def discover(self) -> Hits:
        """All actions, in the order of the help."""
        for key in self._keys:
            yield DiscoveryHit(key.label, self._callback(key), key.label, self._help(key))

    async def search(self, query: str) -> Hits:
        """The actions whose name or sentence fits what was typed."""
        matcher = self.matcher(query)
        for key in self._keys:
            score = max(matcher.match(key.label), 0.8 * matcher.match(key.tooltip))
            if score > 0:
                yield Hit(
                    score, matcher.highlight(key.label), self._callback(key), key.label, self._help(key)
                )

    def _help(self, key: Key) -> str:
        return f"{key.shown} · {key.tooltip}"

    def _callback(self, key: Key) -> partial[Coroutine[Any, Any, None]]:
        return partial(self.screen.run_action, key.action)
