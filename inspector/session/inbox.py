"""Records on their way from the engine's thread to the screen, which takes them in frame by frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter

from engine.protocol import Command, Ended, LookedAhead, Record
from engine.timing import drawing

SHARE = 6
"""A frame is followed by none for so many times its own length: on a slow machine the engine comes first."""


class RecordInbox:
    """Holds what the engine handed out until the screen has time for it.

    Args:
        receive: Takes in one record.
        show: Shows what the records of a frame changed.
        open: Tells whether there is a screen to show them: not while the program is being left.
        soon: Has the screen's thread call something as soon as it can; called in the engine's thread.
    """

    def __init__(
        self,
        receive: Callable[[Record], None],
        show: Callable[[Sequence[Record]], None],
        open: Callable[[], bool],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._receive, self._show, self._open, self._soon = receive, show, open, soon
        self.adopt: Callable[[Command], None] = lambda command: None
        """Takes in a command of another client of the engine, which was carried out."""
        self.waiting: deque[Record | Command] = deque()
        """What was not taken in yet."""
        self._due = 0.0
        """When the next frame may be shown, on the clock of `perf_counter`."""

    def emit(self, record: Record | Command) -> None:
        """Take one record, or a command that another client gave; called in the engine's thread."""
        self.waiting.append(record)
        if isinstance(record, Ended) or (isinstance(record, LookedAhead) and record.last):
            self._soon(self._hurry)

    def _hurry(self) -> None:
        """Drain now: somebody may wait for what has ended, and the next tick is up to a frame away."""
        if self.waiting and self._open():
            self.drain()

    def tick(self) -> None:
        """Drain, unless the last frame was so dear that the engine should have the time."""
        began = perf_counter()
        if self.waiting and began >= self._due:
            self.drain()
            self._due = began + (perf_counter() - began) * SHARE

    def drain(self) -> None:
        """Bring everything that the engine handed out to the screen."""
        with drawing:
            taken: list[Record] = []
            while self.waiting:
                record = self.waiting.popleft()
                if isinstance(record, Command):
                    self.adopt(record)
                    continue
                taken.append(record)
                self._receive(record)
            self._show(taken)
