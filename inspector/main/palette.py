"""The command palette: every key of the main screen by its name."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from inspector.main.tool import Key, KeyTable


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
