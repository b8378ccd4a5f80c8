"""Keys and pasted texts, one after another: what is typed behind a key that opens a dialog goes into that dialog.

The toolkit hands each key at once to the widget that has the focus then. One that comes a few milliseconds behind the
key that opens a dialog thus went to the screen below, or to a dialog whose widgets were not there yet, and was lost.
Here it waits until the one before it was dealt with on its whole way, from the widget that had the focus up to the
application, which carries out what a key means, and until the screen that is then on top has its widgets. A key that
comes alone waits for nothing.

The way is followed by a callback in the queue of each node, behind the key: a queue is first in, first out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message import Message

PATIENCE = 2.0
"""Seconds after which the next key is handed on, whatever became of the one before."""


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
        self._way: deque[DOMNode] = deque()
        """The nodes that the key which is under way has yet to pass, the application at the end."""
        self._at: DOMNode | None = None
        """The node in whose queue it is followed; None while no key is under way, or in the application's queue."""
        self._opened: DOMNode | None = None
        """The screen whose queue was waited for since the last key: by then it has its widgets."""
        self._turn = 0
        """Counts the keys that were followed: a callback of an earlier one is late."""
        self.busy = False
        """True if a key is under way, or waits for one that is."""
        self._since = 0.0
        """When what is under way began."""

    async def take(self, event: events.Event) -> None:
        """Hand on a key or a pasted text, once its turn has come.

        Args:
            event: As the terminal's driver sent it.
        """
        self._waiting.append(event)
        if not self.busy:
            await self._go_on(self._turn)

    def look(self) -> None:
        """Go on where a node went away with what was in its queue; called with each frame while a key is under way."""
        gone = self._at is not None and not (self._at.is_running and self._at.is_attached)
        if gone or time.monotonic() - self._since > PATIENCE:
            if not gone:
                self._way = deque([self._app])
            self._app.post_message(events.Callback(callback=partial(self._go_on, self._turn)))

    async def _go_on(self, turn: int) -> None:
        """Wait behind the key in the next queue on its way. At the end of the way hand on what was typed next, and
        follow it; or wait until the screen on top has its widgets.

        Args:
            turn: That of the key.
        """
        if turn != self._turn:
            return
        while True:
            while self._way:
                node = self._way.popleft()
                self._at = node if node is not self._app else None
                if node.post_message(events.Callback(callback=partial(self._go_on, self._turn))):
                    return
            # in the application's queue
            self.busy = bool(self._waiting)
            if not self.busy:
                return
            self._turn += 1
            top = self._top()
            if not getattr(top, "takes_keys", True) and self._opened is not top:
                way: list[DOMNode] = [top]
                self._opened = top
            else:
                event, self._opened = self._waiting.popleft(), None
                # a screen that is shown again heeds nothing older
                event.time = Message().time
                way = (self._app.focused or top).ancestors_with_self
                self._since = time.monotonic()
                await self._hand_on(event)
            self._way, self._since = deque(way), time.monotonic()
            if self._app not in self._way:
                self._way.append(self._app)
