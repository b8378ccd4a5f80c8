"""The entries of one recording, as far as its file was read, and what has to be known of them before they are shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from engine.errors import TraceError
from engine.protocol import PromptOpened
from engine.trace import Entry, TraceReader, in_use
from engine.trace.file import uncollected
from inspector.session.replay.captions import Captions
from inspector.session.replay.questions import RecordedQuestions
from inspector.session.replay.stops import Stops

LOOK_SECONDS = 2.0
"""Between two looks whether a program still appends to the file."""


class RecordedEntries:
    """One file, read a little at a time.

    Args:
        path: The trace.
        follow: Whether to go on at its end while a program appends to it.

    Raises:
        TraceError: There is no such file, or it is no trace that this version reads.
    """

    def __init__(self, path: Path, follow: bool = False) -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Those that were read."""
        self.reading = True
        """Whether there is more of the file to come; what a program appends later aside."""
        self.failure: TraceError | None = None
        """Why the rest can't be read, if so; what was read before it stands."""
        self.stopped = False
        """Whether a person had the rest left unread."""
        self.stops = Stops(self.entries)
        """Where steps through it end."""
        self.opened: list[int] = []
        """Places after the prompts that begin a tree."""
        self.questions = RecordedQuestions()
        """Of a lesson, with their answers."""
        self.captions = Captions()
        self._reader = TraceReader(path, torn_ok=True, follow=follow)
        self._looked, self._left = -math.inf, False

    @property
    def progress(self) -> float:
        """How much of the file was read, 0 to 1."""
        return self._reader.progress

    @property
    def torn(self) -> int:
        """Bytes of an incomplete last line that were left out."""
        return self._reader.torn

    @property
    def following(self) -> bool:
        """Whether more may come at the end."""
        return self._reader.follows

    @property
    def left(self) -> bool:
        """Whether no program appends to a file that is followed, as far as was seen a moment ago."""
        if (now := time.monotonic()) - self._looked >= LOOK_SECONDS:
            self._looked, self._left = now, self.following and not in_use(self.path)
        return self._left

    def read(self, enough: Callable[[], bool]) -> None:
        """Read on, entry by entry, until `enough` or the end."""
        if not (self.reading or self.following):
            return
        try:
            # a few entries now and then are no reason to freeze everything
            with uncollected() if self.reading else nullcontext():
                while not enough():
                    entry = next(self._reader)
                    self.entries.append(entry)
                    self._note(entry)
        except StopIteration:
            self.reading = False
        except TraceError as error:  # what was read before it stands
            self.failure, self.reading = error, False

    def stop(self) -> bool:
        """Leave the rest of the file unread; returns whether there was any."""
        if not self.reading:
            return False
        self.reading, self.stopped = False, True
        self.close()
        return True

    def end_before(self, position: int, failure: TraceError) -> None:
        """Have the recording end before an entry that can't be shown.

        Args:
            position: Entries up to it, itself among them.
            failure: Why.
        """
        self.reading, self.failure = False, failure
        self.close()
        del self.entries[position - 1 :]
        self.stops.cut()

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def _note(self, entry: Entry) -> None:
        """Take in what has to be known before an entry is shown."""
        place, value = len(self.entries), entry.value
        if isinstance(value, PromptOpened) and value.new_tree:
            self.opened.append(place)
        self.stops.note(value)
        if (speaks := self.captions.note(place, entry)) is not None:
            self.stops.speak(speaks, self.captions)
        self.questions.note(value)
