"""A recording on the screen: read between frames, shown up to a place in it, played at its own pace.

The place is a number of entries, which are shown one after another. Going back means to begin again and show all up to
an earlier place, which takes a moment in a long recording and needs nothing kept for it.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from engine import protocol
from engine.errors import RecordingError
from engine.protocol import Command, Distribution, Ended, Failure, Marked, ModelFacts, PromptOpened, Record
from engine.recording import Entry, Kept, RecordingReader, asked, in_use, question
from engine.recording.file import uncollected
from engine.settings import LoadSettings, Settings
from inspector.recordings.recorder import UNFIT, unfit
from inspector.session.stops import LATE_CAPTION, Caption, Captions, Stops, Telling

LOOK_SECONDS = 2.0
"""Seconds between two checks whether a program still appends to the file."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
"""Times the recorded pace; the last is as fast as it can be shown."""
READ_SECONDS, SHOW_SECONDS = 0.012, 0.012
"""Seconds of a frame, while a recording is read, and while entries are caught up with."""
LONGEST_PAUSE = 15.0
"""Seconds: a longer pause of the recorded user is cut."""


class RecordedQuestions:
    """Questions of a lesson that was recorded, as far as it was read: the same question gets the same answer."""

    def __init__(self) -> None:
        self._answers: dict[str, list[Record]] = {}
        """Answers by the question, as `QuestionAsked` has it."""
        self._reading: list[Record] | None = None
        """The answer that is being read."""
        self._kind = ""
        """Kind of the question that it answers."""

    def note(self, value: Kept) -> None:
        """Take in an entry: an answer is all up to the end of its command."""
        if isinstance(value, protocol.QuestionAsked):
            command = asked(value.command)
            self._kind = "" if command is None else command.kind
            self._reading = self._answers[value.command if command is None else question(command)] = []
        elif isinstance(value, Ended | Failure) and value.command != self._kind:
            pass  # of a command before it, or meanwhile
        elif isinstance(value, Ended):
            self._reading = None
        elif self._reading is not None and not isinstance(value, Settings | LoadSettings):
            self._reading.append(value)

    def answer(self, command: Command) -> list[Record]:
        """The answer to a question; empty if it was not asked."""
        return self._answers.get(question(command), []) if self._answers else []


class RecordedEntries:
    """One file, read a little at a time.

    Args:
        path: The trace.
        follow: Whether to continue at its end while a program appends to it.

    Raises:
        RecordingError: There is no such file, or it is no trace that this version reads.
    """

    def __init__(self, path: Path, follow: bool = False) -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Entries that were read."""
        self.reading = True
        """True if there is more of the file to come; what a program appends later aside."""
        self.failure: RecordingError | None = None
        """Why the rest can't be read, if so; what was read before it stands."""
        self.stopped = False
        """True if the user had the rest left unread."""
        self.stops = Stops(self.entries)
        """Places where steps through it end."""
        self.opened: list[int] = []
        """Places after the prompts that begin a tree."""
        self.questions = RecordedQuestions()
        """Questions of a lesson, with their answers."""
        self.captions = Captions()
        self.reader, self._follow = RecordingReader(path, torn_ok=True, follow=follow), follow
        self._looked, self._left = -math.inf, False

    @property
    def following(self) -> bool:
        """True if more may come at the end."""
        return self._follow and self.reader.follows

    @property
    def left(self) -> bool:
        """True if no program appends to a file that is followed, as far as was seen a moment ago."""
        if (now := time.monotonic()) - self._looked >= LOOK_SECONDS:
            self._looked, self._left = now, self.following and not in_use(self.path)
        return self._left

    def read(self, enough: Callable[[], bool]) -> None:
        """Read on, entry by entry, until `enough` or the end; called while there may be more."""
        try:
            with uncollected():
                while not enough():
                    entry = next(self.reader)
                    self.entries.append(entry)
                    place, value = len(self.entries), entry.value
                    if isinstance(value, PromptOpened) and value.new_tree:
                        self.opened.append(place)
                    self.stops.note(value)
                    if (speaks := self.captions.note(place, entry)) is not None:
                        self.stops.speak(speaks, self.captions)
                    self.questions.note(value)
        except StopIteration:
            self.reading = False
        except RecordingError as error:  # what was read before it stands
            self.failure, self.reading = error, False

    def stop(self) -> bool:
        """Leave the rest of the file unread; returns whether there was any."""
        if not self.reading:
            return False
        self.reading, self.stopped = False, True
        self.close()
        return True

    def end_before(self, position: int, failure: RecordingError) -> None:
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
        self.reader.close()


class Player:
    """One recording, shown up to a place in it.

    Args:
        path: The trace.
        show: Shows what an entry says.
        begin: Clears the screen, before the first entry is shown again.
        from_start: Whether it stands at its beginning once it is read, rather than at its end.
        clock: Seconds.
        follow: Whether to continue at its end while a program appends to it.

    Raises:
        RecordingError: There is no such file, or it is no trace that this version reads.
    """

    def __init__(
        self,
        path: Path,
        show: Callable[[Kept], None],
        begin: Callable[[], None],
        from_start: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        follow: bool = False,
    ) -> None:
        self.file = RecordedEntries(path, follow)
        """The file, as far as it was read."""
        self.position = 0
        """Number of its entries that are on show."""
        self.playing = False
        self.speed = 1.0
        self.rerolls: dict[int, int] = {}
        """Number of times that was drawn again after the nodes of the tree on show."""
        self._show, self._begin, self._clock = show, begin, clock
        self._speaks = False
        """True if the captions of the place are shown: where it was stepped or played to."""
        self._nth = 0
        """Index of the one that is shown: two may speak at one place."""
        self._seen: tuple[object, ...] = ()
        """State at the end of the frame before."""
        self._rested: tuple[object, ...] = ()
        """Place at the end of a frame that left nothing to do."""
        self._target: int | None = 0 if from_start else None
        """The place to show; None for all that there is."""
        self._then = 0.0
        """When the entry before the next one was due."""

    # ---- what is known ----------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """True if all is on show."""
        return not self.file.reading and self.position == len(self.file.entries)

    @property
    def behind(self) -> int:
        """Number of changes of the picture after the place to show; 0 if what comes is shown."""
        places = self.file.stops.places
        return 0 if self._target is None else len(places) - bisect_right(places, self._target)

    @property
    def settled(self) -> bool:
        """True if nothing is being read or caught up with."""
        return not self.file.reading and self.position == self._wanted

    @property
    def stop(self) -> tuple[int, int]:
        """Number of changes of the picture on show, and of all."""
        places = self.file.stops.places
        return bisect_right(places, self.position), len(places)

    @property
    def last(self) -> Kept | None:
        """Value of the last entry on show."""
        return self.file.entries[self.position - 1].value if self.position else None

    def caption(self, node: int) -> str:
        """The author's caption of a node of the tree on show up to here; empty for most."""
        return self.file.captions.of(bisect_right(self.file.opened, self.position), node, self.position)

    @property
    def telling(self) -> Caption | None:
        """The caption that speaks, until the main screen or the caption changes; None unless the user stepped there."""
        if not self._speaks or self.position != self._wanted:
            return None
        place = self.file.captions.before(self.position)
        if not place or self.file.stops.pictures(place) != self.file.stops.pictures(self.position):
            return None
        captions = self.file.captions.at[place]
        return captions[self._nth if place == self.position else -1]

    @property
    def _wanted(self) -> int:
        return len(self.file.entries) if self._target is None else self._target

    # ---- keys -------------------------------------------------------------------------------

    def play(self) -> None:
        """Play on from here; from the end, play all from the start."""
        if self.at_end:
            self.start()
        self.playing, self._then, self._speaks = True, self._clock(), True

    def pause(self) -> None:
        """Stand still."""
        self.playing = False
        if self._target is not None:
            self._target = max(self._target, self.position)

    def start(self) -> None:
        """Go to where the first prompt begins."""
        self.go(self.file.opened[0] if self.file.opened else 0)

    def end(self) -> None:
        """Go to the end."""
        self.playing, self._target, self._speaks = False, None, False

    def step(self, telling: Telling = ()) -> None:
        """Show the next change of the picture, or the next caption.

        Args:
            telling: Records that change the picture, too.
        """
        self.playing = False
        here = self.file.captions.at.get(self._wanted, ())
        if here and self._nth + self._speaks < len(here):
            self._nth, self._speaks = self._nth + self._speaks, True
            return
        self._nth, self._speaks = 0, True
        after = self.file.stops.after(self._wanted, telling)
        self._target = None if self.file.following and self.at_end and after == self._wanted else after

    def back(self, telling: Telling = ()) -> None:
        """Show what was there a change of the picture, or a caption, before.

        Args:
            telling: Records that change the picture, too.
        """
        self.playing = False
        if self._speaks and self._nth:
            self._nth -= 1
            return
        now = self.file.stops.upto(self._wanted, telling)  # what is on show now is that of this place
        self.go(self.file.stops.upto(now - 1, telling))
        self._speaks, self._nth = True, max(0, len(self.file.captions.at.get(self._wanted, ())) - 1)

    def go(self, place: int) -> None:
        """Show all entries up to a place, and no more."""
        self._target, self._nth = place, 0
        if place < self.position:
            self.position, self.rerolls = 0, {}
            self._begin()

    def change_speed(self, by: int) -> None:
        """Play at another speed, `by` places further in `SPEEDS`."""
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, SPEEDS.index(self.speed) + by))]

    # ---- frame by frame ---------------------------------------------------------------------

    def tick(self) -> bool:
        """Do what a frame has time for: read, catch up, play.

        Returns:
            Whether anything on show changed.
        """
        file, more = self.file, self.file.reading or self.file.following
        if not (more or self.playing) and self._rested == self._place:
            return False
        if more:
            end = self._clock() + READ_SECONDS
            file.read(lambda: self._clock() >= end)
        end = self._clock() + SHOW_SECONDS
        while self.position < min(self._wanted, len(file.entries)) and self._clock() < end:
            self._next()
        if self.playing and self.position >= self._wanted:
            self._play()
        behind, left = (self.behind, file.left) if more else (0, False)
        seen = self.position, self.playing, file.reading, self.telling, behind, left
        before, self._seen = self._seen, seen
        rests = not (file.reading or self.playing) and self.position == self._wanted
        self._rested = self._place if rests else ()
        return before != self._seen

    @property
    def _place(self) -> tuple[object, ...]:
        return self.position, self._target, self._speaks, self._nth

    def _play(self) -> None:
        end = self._clock() + SHOW_SECONDS
        while not self._played and (now := self._clock()) < end:
            due = self._then + self._pause() / self.speed
            if now < due:
                break
            self._then = max(due, now - READ_SECONDS)
            if self._nth + 1 < len(self.file.captions.at.get(self.position, ())):
                self._nth += 1
            else:
                self._nth = 0
                self._next()
        self._target = self.position
        if self.at_end and self._played:
            self.playing, self._target = False, None

    @property
    def _played(self) -> bool:
        """True if all that was read is on show, the last caption too."""
        captions = self.file.captions.at.get(self.position, ())
        return self.position == len(self.file.entries) and self._nth + 1 >= len(captions)

    def _pause(self) -> float:
        """Seconds between what is on show and what comes next."""
        captions = self.file.captions.at.get(self.position, ())
        reading = captions[self._nth].seconds if self._nth < len(captions) else 0.0
        if self.position == 0 or self._nth + 1 < len(captions):
            return reading
        last, following = self.file.entries[self.position - 1], self.file.entries[self.position]
        recorded = min(max(0.0, following.at - last.at), LONGEST_PAUSE)
        if isinstance(last.value, ModelFacts | PromptOpened):
            recorded = 0.0
        if self.position + 1 in self.file.captions.at and isinstance(following.value, Marked):
            recorded = min(recorded, LATE_CAPTION)  # it need not be seen being written
        return max(recorded, reading)

    def _next(self) -> None:
        value = self.file.entries[self.position].value
        self.position += 1
        if isinstance(value, PromptOpened) and value.new_tree:
            self.rerolls = {}
        following = getattr(value, "next", None)
        if isinstance(following, Distribution):
            self.rerolls.pop(following.node, None)  # a draw may have been taken back
            if following.reroll:
                self.rerolls[following.node] = following.reroll
        try:
            self._show(value)
        except UNFIT as error:  # it names what no entry before it has: the recording ends before it
            self.playing = False
            self.file.end_before(self.position, unfit(self.position, value, error))
            self.position, self.rerolls, self._target, self._nth = 0, {}, None, 0
            self._begin()
