"""Keys and pasted texts, one after another: what is typed behind a key that opens a dialog goes into that dialog.

Textual hands each key at once to the widget that has the focus then. One that comes a few milliseconds behind the
key that opens a dialog thus went to the screen below, or to a dialog whose widgets were not there yet, and was lost.
Here it waits until the one before it was dealt with on its whole way, from the widget that had the focus up to the
application, which carries out what a key means, and until the screen that is then on top has its widgets. A key that
comes alone waits for nothing.

The way is followed by a callback in the queue of each node, behind the key: a queue is first in, first out.
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
"""Seconds after which the next key is handed on, whatever became of the one before."""
LOOK = 0.03
"""Seconds after which a node is looked at that may have gone away with what was in its queue."""


class KeysInOrder:
    """Hands on what is typed.

    Args:
        app: Whose keys they are.
        top: The view or dialog on top.
        hand_on: Gives one to the screen on top; awaited in the application's own queue.
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
        """The screen whose queue was waited for since the last key: by then it has its widgets."""
        self.busy = False
        """True if a key is under way, or waits for one that is."""
        self._follows: asyncio.Task[None] | None = None
        """Follows the key that is under way: a task without a reference may end early."""

    async def take(self, event: events.Event) -> None:
        """Hand on a key or a pasted text, once its turn has come.

        Args:
            event: As the terminal's driver sent it.
        """
        self._waiting.append(event)
        if not self.busy:
            await self._next()

    async def _next(self) -> None:
        """Hand on what was typed next, and follow it; or wait until the screen on top has its widgets."""
        self.busy, top = True, self._top()
        if not getattr(top, "takes_keys", True) and self._opened is not top:
            way, self._opened = [top], top
        else:
            event, self._opened = self._waiting.popleft(), None
            event.time = Message().time  # a screen that is shown again heeds nothing older
            way = (self._app.focused or top).ancestors_with_self
            await self._hand_on(event)
        self._follows = asyncio.create_task(self._follow(way))

    async def _follow(self, way: Iterable[DOMNode]) -> None:
        """Wait behind a key in each queue on its way, then hand on the next one."""
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
