"""The command palette: every action of the key table by its name."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from inspector.main.keys import KEYS, Key


class KeyCommands(Provider):
    """Offers the actions of the main screen."""

    async def discover(self) -> Hits:
        """All actions, in the order of the help."""
        for key in KEYS:
            yield DiscoveryHit(key.label, self._callback(key), key.label, self._help(key))

    async def search(self, query: str) -> Hits:
        """The actions whose name or sentence fits what was typed."""
        matcher = self.matcher(query)
        for key in KEYS:
            score = max(matcher.match(key.label), 0.8 * matcher.match(key.tooltip))
            if score > 0:
                yield Hit(
                    score, matcher.highlight(key.label), self._callback(key), key.label, self._help(key)
                )

    def _help(self, key: Key) -> str:
        return f"{key.shown} · {key.tooltip}"

    def _callback(self, key: Key) -> partial[Coroutine[Any, Any, None]]:
        return partial(self.screen.run_action, key.action)
