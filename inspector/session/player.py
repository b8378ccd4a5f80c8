"""A recording on the screen: read between frames, shown up to a place in it, played at its own pace.

A place is a number of entries, which are shown one after another. Going back clears the screen and shows all entries
up to an earlier place again, which takes a moment in a long recording but needs no stored states.

A step ends at a place at which the picture changes or a caption is shown. A caption about the token that the session
was at is shown where it was written. One that was written later, about an earlier token, is shown where that token was
added, so that an audience reads it as the token appears.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from engine import protocol
from engine.errors import RecordingError
from engine.recording import Entry, Kept, RecordingReader, asked, in_use, question
from engine.recording.file import uncollected
from engine.settings import LoadSettings, Settings
from inspector.recordings.recorder import UNFIT, unfit
from inspector.state.capability import ReplayStop
from inspector.state.timeline import STATES

Telling = tuple[type, ...]
"""Classes of records that change the screen of the tool on show."""
LATE_CAPTION = 3.0
"""Seconds after its step from which on a caption counts as written later, so that the recorded time leaves none to read
it."""
WORDS_A_SECOND = 3.0
_QUIET = (
    protocol.Marked, protocol.Ended, protocol.Measuring, protocol.Failure, protocol.Finished, protocol.Verified,
    protocol.Undone,
)  # fmt: skip
"""Records that don't change the picture."""
_PICTURES = (protocol.PrefillChunk, protocol.Prefilled, protocol.Step, protocol.Moved, protocol.Resampled)
"""Entries that change the main screen."""
STOPS: dict[type, ReplayStop] = {of: stop for state in STATES for of, (stop, _) in state.STOPS.items()}
LOOK_SECONDS = 2.0
"""Seconds between two checks whether a program still appends to the file."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
"""Multiples of the recorded pace; the last is as fast as possible."""
READ_SECONDS, SHOW_SECONDS = 0.012, 0.012
"""Seconds of a frame for reading the recording, and for showing its entries."""
LONGEST_PAUSE = 15.0
"""Seconds to which a longer pause of the recorded user is cut."""


# ---- captions and steps -------------------------------------------------------------------------


class Caption(Struct, frozen=True):
    """One caption."""

    node: int
    """Node of the token that it is about."""
    text: str
    """Not yet printable."""
    tool: str
    """Id of the panel or tool that shows what it is about; empty for none."""
    seconds: float
    """Time to read it, if the recorded time doesn't include it; else 0."""


class Captions:
    """The captions of a recording, collected from its entries in order; one may be written long after its token."""

    def __init__(self) -> None:
        self.at: dict[int, list[Caption]] = {}
        """Captions by the place at which they are shown."""
        self._of: dict[tuple[int, int], list[tuple[int, Caption]]] = {}
        """Captions in force with their places in ascending order, by the number of the tree and the node."""
        self._tree = 0
        self._reached: dict[int, tuple[int, float]] = {}
        """Place and time at which each node of the current tree was added."""
        self._prompt: list[int] = []
        """Nodes that the last prompt added, until something follows it."""
        self._tip, self._jumped = 0, 0.0
        """Last node of the path, and the time of its last change other than a step."""
        self._changed = 0
        """The place after the last entry that changed the picture."""

    def of(self, tree: int, node: int, place: int) -> str:
        """The caption of a node up to a place; empty if there is none."""
        texts = [caption.text for at, caption in self._of.get((tree, node), ()) if at <= place]
        return texts[-1] if texts else ""

    def before(self, place: int) -> int:
        """The last place with a caption, up to and including a place; 0 if there is none."""
        return max((at for at in self.at if at <= place), default=0)

    def note(self, place: int, entry: Entry) -> int | None:
        """Apply an entry.

        Args:
            place: Number of entries so far, including this one.
            entry: The entry.

        Returns:
            The place at which the caption of this entry is shown; None if the entry adds none.
        """
        if not isinstance(entry.value, _QUIET):
            self._changed = place
        match entry.value:
            case protocol.Marked():
                return self._written(place, entry.value, entry.at)
            case protocol.PromptOpened(new_tree=new_tree, tokens=tokens, parent=parent):
                if new_tree:
                    self._tree, self._reached = self._tree + 1, {}
                self._prompt = [token.node for token in tokens if token.node not in self._reached]
                self._come(self._prompt, place, entry.at)
                self._tip, self._jumped = tokens[-1].node if tokens else parent, entry.at
            case protocol.Prefilled() | protocol.PromptReadings():
                for node in self._prompt:
                    self._reached[node] = place, entry.at
            case protocol.Step(node=node, parent=parent):
                self._prompt = []
                self._jumped = self._jumped if parent == self._tip else entry.at
                self._tip = node
                self._come((node,), place, entry.at)
            case protocol.Moved(node=node):
                self._prompt = []
                self._tip, self._jumped = node, entry.at
            case protocol.BeamStep(live=live, finished=finished, greedy=greedy):
                self._prompt = []
                self._come(
                    (each.node for each in (*live, *finished, greedy) if each is not None), place, entry.at
                )
            case protocol.BeamEnded(ranking=ranking, greedy=greedy):
                self._come((each.node for each in (*ranking, greedy)), place, entry.at)
        return None

    def alone(self, place: int, stop: int) -> bool:
        """True if the picture at a place differs from that at an earlier stop by the caption alone."""
        return self._changed <= stop < place and stop not in self.at

    def _come(self, nodes: Iterable[int], place: int, at: float) -> None:
        for node in nodes:
            self._reached.setdefault(node, (place, at))

    # ---- captions ---------------------------------------------------------------------------

    def _written(self, place: int, mark: protocol.Marked, at: float) -> int | None:
        """Apply a mark; returns the place at which its caption is shown, None if it adds none."""
        if mark.node not in self._reached:
            return None
        written = self._of.setdefault((self._tree, mark.node), [])
        said = mark.caption, mark.tool
        known = next((n for n, (_, each) in enumerate(written) if (each.text, each.tool) == said), None)
        if (
            known is not None or not mark.caption
        ):  # only another mark changed, or a caption was removed or undone
            self._forget(written, len(written) - 1 if known is None else known + 1)
            return None
        reached, came = self._reached[mark.node]
        if mark.node == self._tip or at - max(came, self._jumped) <= LATE_CAPTION:
            reached = place  # written at the token that the session was at
        elif written:
            reached = written[-1][0]  # a correction of the earlier caption
            self._forget(written, len(written) - 1)
        # a caption with a panel was written for a replay, so the recorded time hardly includes its reading
        seconds = len(mark.caption.split()) / WORDS_A_SECOND if at - came > LATE_CAPTION or mark.tool else 0.0
        caption = Caption(mark.node, mark.caption, mark.tool, seconds)
        written.append((reached, caption))
        self.at.setdefault(reached, []).append(caption)
        return reached

    def _forget(self, written: list[tuple[int, Caption]], kept: int) -> None:
        """Remove all captions of a node but the first `kept`."""
        for place, caption in written[max(0, kept) :]:
            self.at[place] = [each for each in self.at[place] if each is not caption]
            if not self.at[place]:
                del self.at[place]
        del written[max(0, kept) :]


class Stops:
    """The places of one recording at which steps end.

    Args:
        entries: The entries read so far; the list grows.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self.places: list[int] = []
        """Places at which steps end, in ascending order."""
        self._pictures: list[int] = []
        self._row: type[object] | None = None
        """Class of the records in the current row."""
        self._spoken = 0
        """The last place to which a caption moved the end of a step."""

    def note(self, value: Kept) -> None:
        """Apply the value of the last entry read."""
        place, picture = len(self._entries), isinstance(value, _PICTURES)
        if picture:
            self._pictures.append(place)
        stop = ReplayStop.EACH if picture else STOPS.get(type(value))
        # shown with the step before: tokens drafted after it, and a prompt's logprobs
        late = isinstance(value, protocol.PromptReadings) or (
            isinstance(value, protocol.DraftRound) and value.stage == "taken"
        )
        if late and self.places and self.places[-1] != self._spoken:
            self.places[-1] = place
            return
        first = self._row is not type(value)
        if stop is not None:
            self._row = type(value)
        last = stop is ReplayStop.FIRST_AND_LAST and bool(getattr(value, "last", False))
        begins = first and stop in (ReplayStop.FIRST, ReplayStop.FIRST_AND_LAST)
        if begins or last or stop is ReplayStop.EACH:
            self.places.append(place)

    def speak(self, place: int, captions: Captions) -> None:
        """Let a step end at the place of a caption, instead of just before it."""
        if self.places and captions.alone(place, self.places[-1]):
            self.places[-1] = self._spoken = place
        elif self.upto(place) != place:
            insort(self.places, place)

    def cut(self) -> None:
        """Drop the places after the last entry."""
        for places in (self.places, self._pictures):
            del places[bisect_right(places, len(self._entries)) :]

    def pictures(self, place: int) -> int:
        """Number of changes of the main screen up to a place."""
        return bisect_right(self._pictures, place)

    def after(self, place: int, telling: Telling = ()) -> int:
        """The next place at which a step ends.

        Args:
            place: The current place.
            telling: Further classes of records that end a step.
        """
        stop = bisect_right(self.places, place)
        end = self.places[stop] if stop < len(self.places) else len(self._entries)
        found = (n + 1 for n in range(place, end) if isinstance(self._entries[n].value, telling))
        return next(found, end) if telling else end

    def upto(self, place: int, telling: Telling = ()) -> int:
        """The last place at which a step ends, up to and including a place; 0 for the beginning.

        Args:
            place: The current place.
            telling: Further classes of records that end a step.
        """
        stop = bisect_right(self.places, place) - 1
        begin = self.places[stop] if stop >= 0 else 0
        found = (n for n in range(place, begin, -1) if isinstance(self._entries[n - 1].value, telling))
        return next(found, begin) if telling else begin


# ---- the file and its player --------------------------------------------------------------------


class RecordedQuestions:
    """The questions of a recorded lesson and their answers, as far as the recording was read."""

    def __init__(self) -> None:
        self._answers: dict[str, list[protocol.Record]] = {}
        """Answers by the question, in the form that `QuestionAsked` has."""
        self._reading: list[protocol.Record] | None = None
        """The answer being read, if any."""
        self._kind = ""
        """Kind of the question being answered."""

    def note(self, value: Kept) -> None:
        """Apply the value of an entry; an answer consists of all records up to the end of its command."""
        if isinstance(value, protocol.QuestionAsked):
            command = asked(value.command)
            self._kind = "" if command is None else command.kind
            self._reading = self._answers[value.command if command is None else question(command)] = []
        elif isinstance(value, protocol.Ended | protocol.Failure) and value.command != self._kind:
            pass  # the end of a different command
        elif isinstance(value, protocol.Ended):
            self._reading = None
        elif self._reading is not None and not isinstance(value, Settings | LoadSettings):
            self._reading.append(value)

    def answer(self, command: protocol.Command) -> list[protocol.Record]:
        """The recorded answer to a question; empty if it wasn't asked."""
        return self._answers.get(question(command), []) if self._answers else []


class RecordedEntries:
    """One file, read a little at a time.

    Args:
        path: The trace.
        follow: Whether to wait at the end for what another program appends.

    Raises:
        RecordingError: There is no such file, or it isn't a trace that this version reads.
    """

    def __init__(self, path: Path, follow: bool = False) -> None:
        self.path = path
        self.entries: list[Entry] = []
        """Entries read so far."""
        self.reading = True
        """True while there is more to read, not counting what another program appends later."""
        self.failure: RecordingError | None = None
        """Why the rest can't be read, if so; the entries before it stay valid."""
        self.stopped = False
        """True if the user stopped the reading."""
        self.stops = Stops(self.entries)
        self.opened: list[int] = []
        """Places after the prompts that begin a tree."""
        self.questions = RecordedQuestions()
        """Questions of a lesson, with their answers."""
        self.captions = Captions()
        self.reader, self._follow = RecordingReader(path, torn_ok=True, follow=follow), follow
        self._looked, self._left = -math.inf, False

    @property
    def following(self) -> bool:
        """True if another program may append entries."""
        return self._follow and self.reader.follows

    @property
    def left(self) -> bool:
        """True if no program appends to a followed file any more; checked every `LOOK_SECONDS`."""
        if (now := time.monotonic()) - self._looked >= LOOK_SECONDS:
            self._looked, self._left = now, self.following and not in_use(self.path)
        return self._left

    def read(self, enough: Callable[[], bool]) -> None:
        """Read further entries until `enough` returns True or the file ends."""
        try:
            with uncollected():
                while not enough():
                    entry = next(self.reader)
                    self.entries.append(entry)
                    place, value = len(self.entries), entry.value
                    if isinstance(value, protocol.PromptOpened) and value.new_tree:
                        self.opened.append(place)
                    self.stops.note(value)
                    if (speaks := self.captions.note(place, entry)) is not None:
                        self.stops.speak(speaks, self.captions)
                    self.questions.note(value)
        except StopIteration:
            self.reading = False
        except RecordingError as error:  # the entries before it stay valid
            self.failure, self.reading = error, False

    def stop(self) -> bool:
        """Leave the rest of the file unread; returns whether there was any."""
        if not self.reading:
            return False
        self.reading, self.stopped = False, True
        self.close()
        return True

    def end_before(self, position: int, failure: RecordingError) -> None:
        """Let the recording end before an entry that can't be shown.

        Args:
            position: Number of entries up to and including that entry.
            failure: The reason.
        """
        self.reading, self.failure = False, failure
        self.close()
        del self.entries[position - 1 :]
        self.stops.cut()

    def close(self) -> None:
        self.reader.close()


class Player:
    """One recording, shown up to a place in it.

    Args:
        path: The trace.
        show: Shows an entry.
        begin: Clears the screen before the first entry is shown again.
        from_start: Whether to stay at the beginning once the file is read, instead of going to the end.
        clock: Returns seconds.
        follow: Whether to wait at the end for what another program appends.

    Raises:
        RecordingError: There is no such file, or it isn't a trace that this version reads.
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
        """The file, as far as it has been read."""
        self.position = 0
        """Number of entries on show."""
        self.playing = False
        self.speed = 1.0
        self._show, self._begin, self._clock = show, begin, clock
        self._speaks = False
        """True if the captions of the place are shown, because it was reached by a step or by playing."""
        self._nth = 0
        """Index of the caption on show, if the place has several."""
        self._seen: tuple[object, ...] = ()
        """State at the end of the previous frame."""
        self._target: int | None = 0 if from_start else None
        """The place to show; None for the end."""
        self._then = 0.0
        """Time at which the last entry was due."""

    # ---- what is known ----------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """True if all entries are read and on show."""
        return not self.file.reading and self.position == len(self.file.entries)

    @property
    def behind(self) -> int:
        """Number of steps after the place to show; 0 if new entries are shown as they come."""
        places = self.file.stops.places
        return 0 if self._target is None else len(places) - bisect_right(places, self._target)

    @property
    def settled(self) -> bool:
        """True if the file is read and the place to show is reached."""
        return not self.file.reading and self.position == self._wanted

    @property
    def stop(self) -> tuple[int, int]:
        """Number of steps on show, and of all."""
        places = self.file.stops.places
        return bisect_right(places, self.position), len(places)

    @property
    def last(self) -> Kept | None:
        """Value of the last entry on show."""
        return self.file.entries[self.position - 1].value if self.position else None

    def caption(self, node: int) -> str:
        """The author's caption of a node of the tree on show, up to the current place; empty if there is none."""
        return self.file.captions.of(bisect_right(self.file.opened, self.position), node, self.position)

    @property
    def telling(self) -> Caption | None:
        """The caption on show, until the main screen or the caption changes; None if the place wasn't reached by a step
        or by playing."""
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
        """Play from the current place, or from the start if it is the end."""
        if self.at_end:
            self.start()
        self.playing, self._then, self._speaks = True, self._clock(), True

    def pause(self) -> None:
        self.playing = False
        if self._target is not None:
            self._target = max(self._target, self.position)

    def start(self) -> None:
        """Go to the beginning of the first prompt."""
        self.go(self.file.opened[0] if self.file.opened else 0)

    def end(self) -> None:
        self.playing, self._target, self._speaks = False, None, False

    def step(self, telling: Telling = ()) -> None:
        """Show the next change of the picture, or the next caption.

        Args:
            telling: Further classes of records that change the picture.
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
        """Go back by one change of the picture, or one caption.

        Args:
            telling: Further classes of records that change the picture.
        """
        self.playing = False
        if self._speaks and self._nth:
            self._nth -= 1
            return
        now = self.file.stops.upto(self._wanted, telling)  # the picture on show is that of this place
        self.go(self.file.stops.upto(now - 1, telling))
        self._speaks, self._nth = True, max(0, len(self.file.captions.at.get(self._wanted, ())) - 1)

    def go(self, place: int) -> None:
        """Show the entries up to a place."""
        self._target, self._nth = place, 0
        if place < self.position:
            self.position = 0
            self._begin()

    def change_speed(self, by: int) -> None:
        """Change the speed by some places in `SPEEDS`."""
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, SPEEDS.index(self.speed) + by))]

    # ---- frame by frame ---------------------------------------------------------------------

    def tick(self) -> bool:
        """Do the work of one frame: read, catch up, play.

        Returns:
            Whether anything on show changed.
        """
        file, more = self.file, self.file.reading or self.file.following
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
        return before != seen

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
        """True if all entries read so far are on show, and the last caption too."""
        captions = self.file.captions.at.get(self.position, ())
        return self.position == len(self.file.entries) and self._nth + 1 >= len(captions)

    def _pause(self) -> float:
        """Seconds between the current entry or caption and the next."""
        captions = self.file.captions.at.get(self.position, ())
        reading = captions[self._nth].seconds if self._nth < len(captions) else 0.0
        if self.position == 0 or self._nth + 1 < len(captions):
            return reading
        last, following = self.file.entries[self.position - 1], self.file.entries[self.position]
        recorded = min(max(0.0, following.at - last.at), LONGEST_PAUSE)
        if isinstance(last.value, protocol.ModelFacts | protocol.PromptOpened):
            recorded = 0.0
        if self.position + 1 in self.file.captions.at and isinstance(following.value, protocol.Marked):
            recorded = min(recorded, LATE_CAPTION)  # don't wait while the caption was being written
        return max(recorded, reading)

    def _next(self) -> None:
        value = self.file.entries[self.position].value
        self.position += 1
        try:
            self._show(value)
        except (
            UNFIT
        ) as error:  # it refers to something that earlier entries lack: end the recording before it
            self.playing = False
            self.file.end_before(self.position, unfit(self.position, value, error))
            self.position, self._target, self._nth = 0, None, 0
            self._begin()
