"""What strangers do to a server, told to whoever runs it in a line a minute: a flood of them is no flood of lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

SECONDS = 60.0
"""Between two lines."""


class Complaints:
    """Counts, and tells what was counted.

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
