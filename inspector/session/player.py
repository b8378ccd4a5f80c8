"""A recording on the screen: read between frames, shown up to a place in it, played at its own pace. Without Textual.

The place is a number of entries: what is on show is what they tell, one after another. Going back means beginning anew
and showing all up to an earlier place, which takes a moment in a long recording and needs nothing kept for it.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from engine.errors import TraceError
from engine.records import (
    BeamEnded,
    BeamStep,
    Distribution,
    Ended,
    Marked,
    ModelFacts,
    Moved,
    PrefillChunk,
    Prefilled,
    PromptOpened,
    QuestionAsked,
    Record,
    Resampled,
    Step,
)
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, Kept, TraceReader, Unknown
from engine.trace.file import uncollected
from inspector.state.unfit import UNFIT, unfit

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
"""Times the recorded pace; the last is as fast as it can be shown."""
READ_SECONDS, SHOW_SECONDS = 0.012, 0.012
"""Of a frame, while a recording is read, and while entries are caught up with."""
LONGEST_PAUSE = 15.0
"""Seconds: a person who was away is not waited for any longer."""
LATE_CAPTION = 3.0
"""A caption that was written so many seconds after its step is read by nobody in the recorded time."""
WORDS_A_SECOND = 3.0
_STOPS = (PrefillChunk, Prefilled, Step, Moved, Resampled, BeamStep, BeamEnded)
"""Entries that change the picture: where a step forward or back ends."""


class Player:
    """One recording, shown up to a place in it.

    Args:
        path: The trace.
        show: Shows what an entry tells.
        begin: Clears the screen, before the first entry is shown again.
        from_start: Whether it stands at its beginning once it is read, rather than at its end.
        clock: Seconds.

    Raises:
        TraceError: There is no such file, or it is no trace that this version reads.
    """

    def __init__(
        self,
        path: Path,
        show: Callable[[Kept], None],
        begin: Callable[[], None],
        from_start: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Those that were read."""
        self.position = 0
        """How many of them are on show."""
        self.playing = False
        self.speed = 1.0
        self.failure: TraceError | None = None
        """Why the rest can't be read, if so; what was read before it stands."""
        self.stopped = False
        """Whether a person had the rest left unread."""
        self.rerolls: dict[int, int] = {}
        """How often was drawn again after the nodes of the tree on show."""
        self._reader, self._show, self._begin, self._clock = (
            TraceReader(path, torn_ok=True),
            show,
            begin,
            clock,
        )
        self._read_whole = False
        self._stops: list[int] = []
        """Places after the entries that change the picture."""
        self._opened: list[int] = []
        """Places after the prompts that begin a tree."""
        self.answered: dict[str, list[Record]] = {}
        """What was answered to questions of a lesson, by the question."""
        self._asked: list[Record] | None = None
        """The answer that is being read."""
        self._captions: dict[tuple[int, int], tuple[str, float]] = {}
        """By number of the tree and node: what was written there last, and when."""
        self._target: int | None = 0 if from_start else None
        """The place to show; None for all that there is."""
        self._then = 0.0
        """When the entry before the next one was due."""

    # ---- what is known ----------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Whether there is more of the file to come."""
        return not self._read_whole

    @property
    def progress(self) -> float:
        """How much of the file was read, 0 to 1."""
        return self._reader.progress

    @property
    def at_end(self) -> bool:
        """Whether all is on show."""
        return self._read_whole and self.position == len(self.entries)

    @property
    def settled(self) -> bool:
        """Whether nothing is being read or caught up with."""
        return self._read_whole and self.position == self._wanted

    @property
    def stop(self) -> tuple[int, int]:
        """How many changes of the picture are on show, and how many there are."""
        return bisect_right(self._stops, self.position), len(self._stops)

    @property
    def torn(self) -> int:
        """Bytes of an incomplete last line that were left out."""
        return self._reader.torn

    def caption(self, node: int) -> str:
        """What the author wrote on a node of the tree on show; empty for most."""
        return self._captions.get((self._tree(self.position), node), ("", 0.0))[0]

    @property
    def has_captions(self) -> bool:
        """Whether any was read, on any node."""
        return any(text for text, _ in self._captions.values())

    def _tree(self, place: int) -> int:
        return bisect_right(self._opened, place)

    @property
    def _wanted(self) -> int:
        return len(self.entries) if self._target is None else self._target

    # ---- what a person asks for -------------------------------------------------------------

    def play(self) -> None:
        """Play on from here; from the end, play all from the start."""
        if self.at_end:
            self.start()
        self.playing, self._then = True, self._clock()

    def pause(self) -> None:
        """Stand still."""
        self.playing = False
        if self._target is not None:
            self._target = max(self._target, self.position)

    def start(self) -> None:
        """Go to where the first prompt begins."""
        self.go(self._opened[0] if self._opened else 0)

    def end(self) -> None:
        """Go to the end."""
        self.playing, self._target = False, None

    def step(self) -> None:
        """Show the next change of the picture."""
        self.playing = False
        place = bisect_right(self._stops, self._wanted)
        self._target = self._stops[place] if place < len(self._stops) else len(self.entries)

    def back(self) -> None:
        """Show what was there a change of the picture before."""
        self.playing = False
        place = bisect_right(self._stops, self._wanted) - 2  # what is on show now is that of the one after it
        self.go(self._stops[place] if place >= 0 else 0)

    def go(self, place: int) -> None:
        """Show all entries up to a place, and no more."""
        self._target = place
        if place < self.position:
            self.position, self.rerolls = 0, {}
            self._begin()

    def stop_reading(self) -> bool:
        """Leave the rest of the file unread; returns whether there was any."""
        if self._read_whole:
            return False
        self._read_whole = self.stopped = True
        self._reader.close()
        return True

    def change_speed(self, by: int) -> None:
        """Play at another speed, `by` places further in `SPEEDS`."""
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, SPEEDS.index(self.speed) + by))]

    # ---- frame by frame ---------------------------------------------------------------------

    def tick(self) -> bool:
        """Do what a frame has time for: read, catch up, play.

        Returns:
            Whether anything on show changed.
        """
        before = (self.position, self.playing, self.reading)
        self._read()
        self._catch_up()
        if self.playing and self.position >= self._wanted:
            self._play()
        return before != (self.position, self.playing, self.reading)

    def _read(self) -> None:
        if self._read_whole:
            return
        end = self._clock() + READ_SECONDS
        try:
            with uncollected():
                while self._clock() < end:
                    entry = next(self._reader)
                    self.entries.append(entry)
                    self._note(entry)
        except StopIteration:
            self._read_whole = True
        except TraceError as error:  # what was read before it stands
            self.failure, self._read_whole = error, True

    def _note(self, entry: Entry) -> None:
        """Take in what has to be known before an entry is shown."""
        place = len(self.entries)
        match entry.value:
            case PromptOpened(new_tree=True):
                self._opened.append(place)
            case Marked(node=node, caption=caption):
                self._captions[len(self._opened), node] = (caption, entry.at)
        self._note_answer(entry.value)
        if isinstance(entry.value, _STOPS):
            self._stops.append(place)

    def _note_answer(self, value: Kept | Unknown) -> None:
        """Keep what was answered to a question: all up to the end of its command."""
        if isinstance(value, QuestionAsked):
            self._asked = self.answered.setdefault(value.command, [])
            self._asked.clear()
        elif isinstance(value, Ended):
            self._asked = None
        elif self._asked is not None and not isinstance(value, Unknown | Settings | LoadSettings):
            self._asked.append(value)

    def _catch_up(self) -> None:
        end = self._clock() + SHOW_SECONDS
        while self.position < min(self._wanted, len(self.entries)) and self._clock() < end:
            self._next()

    def _play(self) -> None:
        end = self._clock() + SHOW_SECONDS
        while self.position < len(self.entries) and (now := self._clock()) < end:
            due = self._then + self._pause() / self.speed
            if now < due:
                break
            self._then = max(due, now - READ_SECONDS)
            self._next()
        self._target = self.position
        if self.at_end:
            self.playing, self._target = False, None

    def _pause(self) -> float:
        """Seconds between the last entry on show and the next one."""
        if self.position == 0:
            return 0.0
        last, following = self.entries[self.position - 1], self.entries[self.position]
        recorded = min(max(0.0, following.at - last.at), LONGEST_PAUSE)
        if isinstance(last.value, ModelFacts | PromptOpened):
            return 0.0
        return max(recorded, self._reading_time(last))

    def _reading_time(self, entry: Entry) -> float:
        """What a caption needs that was written afterwards, where nobody waited for it to be read."""
        if not isinstance(entry.value, Step):
            return 0.0
        text, at = self._captions.get((self._tree(self.position), entry.value.node), ("", 0.0))
        return len(text.split()) / WORDS_A_SECOND if at - entry.at > LATE_CAPTION else 0.0

    def _next(self) -> None:
        value = self.entries[self.position].value
        self.position += 1
        if isinstance(value, Unknown):
            return
        if isinstance(value, PromptOpened) and value.new_tree:
            self.rerolls = {}
        following = getattr(value, "next", None)
        if isinstance(following, Distribution):
            self.rerolls.pop(following.node, None)  # a draw may have been taken back
            if following.reroll:
                self.rerolls[following.node] = following.reroll
        try:
            self._show(value)
        except UNFIT as error:
            self._unfit(value, error)

    def _unfit(self, value: Kept, error: Exception) -> None:
        """An entry that tells of what no entry before it told: the recording ends before it, and is shown anew."""
        self.playing, self._read_whole, self._target = False, True, None
        del self.entries[self.position - 1 :]
        self._stops = [place for place in self._stops if place <= len(self.entries)]
        self.failure = unfit(self.position, value, error)
        self.position, self.rerolls = 0, {}
        self._begin()

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
