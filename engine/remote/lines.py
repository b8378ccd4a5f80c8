"""Lines over a socket: bounded in length, and in the time that the other end may take."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from engine.errors import WireError
from engine.trace.values import Misfit, parse

TICK = 1.0
"""Seconds for which one call of the system waits: so often it is looked whether the time is over."""
_BLOCK = 2**16


class Lines:
    """Reads and writes the lines of one connection; one thread may read while another one writes.

    Args:
        connection: Connected; it is closed by `close`.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TICK)
        with suppress(OSError):  # a socket of files has no such option
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._buffer = bytearray()

    def read(self, limit: int, patience: float, whole: float = float("inf")) -> bytes | None:
        """Read one line.

        Args:
            limit: Bytes that it may have.
            patience: Seconds for which the other end may send nothing.
            whole: Seconds until the line must be complete.

        Returns:
            The line without its end; None where the connection ended, also in the middle of a line.

        Raises:
            WireError: The line is too long.
            TimeoutError: The time is over.
        """
        began = heard = time.monotonic()
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > limit:
                raise WireError(f"A line is longer than {limit:,} bytes.")
            if time.monotonic() - began > whole or time.monotonic() - heard > patience:
                raise TimeoutError("nothing came for too long")
            try:
                came = self._connection.recv(_BLOCK)
            except TimeoutError:
                continue
            except OSError:
                return None
            if not came:
                return None
            heard = time.monotonic()
            self._buffer += came
        if end > limit:
            raise WireError(f"A line is longer than {limit:,} bytes.")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def write(self, data: bytes, patience: float) -> None:
        """Write complete lines.

        Args:
            data: The lines, each with its end.
            patience: Seconds for which the other end may take nothing.

        Raises:
            OSError: The connection ended, or the time is over.
        """
        left, moved = memoryview(data), time.monotonic()
        while left:
            try:
                left = left[self._connection.send(left) :]
                moved = time.monotonic()
            except TimeoutError:
                if time.monotonic() - moved > patience:
                    raise

    def say(self, patience: float, **content: Any) -> None:
        """Write one object as a line; raises as `write` does."""
        self.write(line_of(**content), patience)

    def hang_up(self) -> None:
        """End the connection in both directions: what another thread reads or writes on it ends."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the socket."""
        with suppress(OSError):
            self._connection.close()


def line_of(**content: Any) -> bytes:
    """One object as a line."""
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def object_of(line: bytes) -> dict[str, Any]:
    """The object of a line.

    Raises:
        WireError: It is none.
    """
    try:
        value = parse(line)
    except Misfit as error:
        raise WireError(f"A line {error}.") from None
    if type(value) is not dict:
        raise WireError("A line is not a JSON object.")
    return value


# ---- what strangers do to a server: a flood of them is no flood of lines -----------------------

SECONDS = 60.0
"""Between two lines."""


class Complaints:
    """Counts, and reports what was counted.

    Args:
        tell: Gets the lines; called in the thread that counts.
        clock: Seconds.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._counts: Counter[str] = Counter()
        self._next = float("-inf")
        self._lock = Lock()

    def add(self, what: str) -> None:
        """Count one connection.

        Args:
            what: What it did, as it follows "1": `that sent no request`.
        """
        with self._lock:
            self._counts[what] += 1
        self.tell()

    def tell(self) -> None:
        """Tell what was counted, unless the last line is too fresh; called now and then, for what came after it."""
        with self._lock:
            if not self._counts or self._clock() < self._next:
                return
            self._next = self._clock() + SECONDS
            counts, self._counts = self._counts, Counter()
        self._tell(f"Connections closed: {', '.join(f'{count:,} {what}' for what, count in counts.items())}.")
