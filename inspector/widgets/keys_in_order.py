"""Keys and pasted texts, one after another: text typed right after a key that opens a dialog goes into that dialog.

Textual passes each key at once to the widget that has the focus at that time. A key that came a few milliseconds after
the one that opens a dialog thus went to the screen below, or to a dialog without widgets yet, and was lost. Here, a key
waits until the one before it was handled on its whole way, from the widget that had the focus up to the application,
which runs the action, and until the screen that is then on top has its widgets. A key that comes alone doesn't wait.

To know when a key was handled, a callback is put into the queue of each node on its way, after the key: a queue is
first in, first out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message import Message

PATIENCE = 2.0
"""Seconds after which the next key is passed on even if the one before was not handled."""
LOOK = 0.03
"""Seconds between two checks that a node wasn't removed together with its queue."""


class KeysInOrder:
    """Passes keys and pasted texts on, one at a time.

    Args:
        app: The application that receives the keys.
        hand_on: Passes an event to the screen on top; awaited in the application's own queue.
        top: Returns the view or dialog on top.
    """

    def __init__(
        self,
        app: App[Any],
        hand_on: Callable[[events.Event], Awaitable[None]],
        top: Callable[[], DOMNode],
    ) -> None:
        self._app, self._hand_on, self._top = app, hand_on, top
        self._waiting: deque[events.Event] = deque()
        self._opened: DOMNode | None = None
        """The screen with a queue that was waited for since the last key: by now it has its widgets."""
        self.busy = False
        """True if a key is under way, or waits for another key."""
        self._follows: asyncio.Task[None] | None = None
        """Waits for the key under way; kept because a task without a reference may end early."""

    async def take(self, event: events.Event) -> None:
        """Pass on a key or a pasted text when it is its turn.

        Args:
            event: As the terminal's driver sent it.
        """
        self._waiting.append(event)
        if not self.busy:
            await self._next()

    async def _next(self) -> None:
        """Pass the next event on, and wait for it; or wait until the screen on top has its widgets."""
        self.busy, top = True, self._top()
        if not getattr(top, "takes_keys", True) and self._opened is not top:
            way, self._opened = [top], top
        else:
            event, self._opened = self._waiting.popleft(), None
            event.time = Message().time  # a screen that is shown again ignores older events
            way = (self._app.focused or top).ancestors_with_self
            await self._hand_on(event)
        self._follows = asyncio.create_task(self._follow(way))

    async def _follow(self, way: Iterable[DOMNode]) -> None:
        """Wait after a key in each queue on its way, then pass on the next one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for node in dict.fromkeys((*way, self._app)):
                    reached = asyncio.Event()
                    posted = node.post_message(events.Callback(callback=reached.set))
                    while posted and not reached.is_set() and node.is_running and node.is_attached:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(reached.wait(), LOOK)
        self.busy = bool(self._waiting)
        if self.busy:
            self._app.post_message(events.Callback(callback=self._next))
