"""Copies of what passes between a client and a server, on their way to whoever reads them: never waited for."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import Literal, NamedTuple

MOST = 32 * 2**20
"""Bytes that may wait: minutes of many chats, where a disk takes nothing."""
EACH = 256
"""Bytes that a copy takes beside its data."""

What = Literal["asked", "answered", "lost", "over"]


class Copy(NamedTuple):
    """The traffic of a connection."""

    connection: int
    """Its number."""
    what: What
    """Bytes of the client; of the server, none where it sends no more; some of either were left out; it is over."""
    at: float
    """Seconds of `time.monotonic`."""
    data: bytes = b""


class Copies:
    """A queue that never lets its writers wait: what doesn't fit is left out, with the rest of its connection.

    Args:
        most: Bytes.
    """

    def __init__(self, most: int = MOST) -> None:
        self.lost = 0
        """Bytes that were left out."""
        self._most, self._size = most, 0
        self._waiting: deque[Copy] = deque()
        self._cut: set[int] = set()
        """Connections of which something was left out."""
        self._changed = Condition()
        self._closed = False

    def put(self, copy: Copy) -> None:
        """Add a copy."""
        with self._changed:
            if copy.connection in self._cut:
                self.lost += len(copy.data)
                if copy.what != "over":
                    return
                self._cut.discard(copy.connection)
            elif copy.data and self._size + len(copy.data) + EACH > self._most:
                self.lost += len(copy.data)
                self._cut.add(copy.connection)
                copy = Copy(copy.connection, "lost", copy.at)
            self._size += len(copy.data) + EACH
            self._waiting.append(copy)
            self._changed.notify()

    def take(self) -> Copy | None:
        """The next copy, waited for; None after `close`, once all are taken."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            copy = self._waiting.popleft()
            self._size -= len(copy.data) + EACH
            return copy

    def close(self) -> None:
        """Add no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
