"""The stages of a lesson: it runs in a live session, or in its recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from engine.protocol import (
    BeatReached,
    Command,
    Configure,
    Ended,
    Failure,
    LogitsRow,
    LookAhead,
    ModelVocabulary,
    MoveTo,
    Prefill,
    PromptOpened,
    Record,
    Reroll,
)
from inspector.keys import key_for
from inspector.lessons.actions import Before, LessonAction
from inspector.lessons.errors import LessonError
from inspector.lessons.lesson import PLAYED, Lesson
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.session.player import Player

_UNSEEN = BeatReached | Ended | LogitsRow | ModelVocabulary
"""Entries of a recording that change nothing on the screen."""


class LessonStage(Protocol):
    """Brings the session to the beginning of a beat, and does the learner's actions."""

    failure: Failure | None
    """The failure of something that was done for the lesson."""
    missed: str
    """A sentence on what the learner did instead of what the card asks for; empty for nothing."""
    recorded: bool
    """True if the lesson runs from a recording, without an engine."""

    @property
    def pending(self) -> int:
        """The number of actions left before the beat begins."""

    @property
    def busy(self) -> bool:
        """True if something is under way."""

    @property
    def done(self) -> bool:
        """True if the learner's actions in the current beat were done, by the learner or by the program."""

    @property
    def left(self) -> tuple[LessonAction, ...]:
        """The actions that are not done yet."""

    @property
    def keys(self) -> str:
        """The keys for the first of these actions, as the end of a sentence that begins with `Press`."""

    def begin(self, beat: int, arrived: Callable[[], object]) -> None:
        """Go to the beginning of a beat, from anywhere.

        Args:
            beat: Its number, from 0.
            arrived: Called at the end of the beat before: what follows belongs to this one.
        """

    def act(self) -> None:
        """Do the rest of the learner's actions."""

    def reached(self, done: bool) -> None:
        """Called when the beat is about to begin, or when its actions were done."""

    def tick(self) -> None:
        """Do what can be done now."""

    def close(self) -> None:
        """Leave the lesson; the session stays."""


class LiveStage:
    """A lesson with an engine.

    Args:
        lesson: The lesson.
        controller: The session; its model is the lesson's.
    """

    def __init__(self, lesson: Lesson, controller: Controller) -> None:
        self._lesson, self._controller = lesson, controller
        self._queue: deque[LessonAction | Command | Callable[[], object]] = deque()
        self._places: dict[tuple[int, bool], Before] = {}
        """The places at which beats began (False) and were done (True), by the beat's number."""
        self._beat = 0
        self._number = 0
        """The number of the beat's actions that were done."""
        self._begun = False
        """True if the beat's beginning was reached: what happens before it is not the learner's doing."""
        self._before = self._snapshot()
        self.failure: Failure | None = None
        self.missed, self.recorded = "", False
        self._missed_under = lesson.settings
        """The settings in force when something was missed."""
        controller.client.listen(self._receive)

    def close(self) -> None:
        """Stop listening to the session's records."""
        self._controller.client.ignore(self._receive)

    def _snapshot(self) -> Before:
        timeline = self._controller.timeline
        reroll = timeline.next.reroll if timeline.next is not None else 0
        return Before(timeline.tip, len(timeline.completion), self._controller.queries.in_force, reroll)

    def _receive(self, record: Record) -> None:
        self._before.since.append(record)
        if isinstance(record, PromptOpened) and record.new_tree:
            self._places.clear()

    # ---- going to a beat --------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of actions left before the beat begins."""
        return 0 if self._begun else sum(isinstance(each, LessonAction) for each in self._queue)

    @property
    def busy(self) -> bool:
        """True if the engine works, or has more to do for the lesson."""
        return bool(self._queue) or self._under_way

    @property
    def _under_way(self) -> bool:
        """True if the engine works, except on a look-ahead, which gives way by itself."""
        outstanding = self._controller.client.outstanding
        return any(not isinstance(each, LookAhead) for each in outstanding)

    def begin(self, beat: int, arrived: Callable[[], object]) -> None:
        """Go to the beginning of a beat: from the nearest known place, or through all beats before it."""
        self._queue.clear()
        self.failure, self.missed, self._begun = None, "", False
        # the program's actions before a beat are done again: the beat's values may depend on them
        known = [place for place in self._places if place < (beat, not self._lesson.beats[beat].begin)]
        begin = max(known, default=None)
        if begin is None:
            self._queue += [Configure(self._lesson.settings)]
            if self._lesson.prompt:
                self._queue.append(Prefill(self._lesson.prompt, self._lesson.chat))
            self._do_beats(0, beat)
        else:
            self._return(self._places[begin])
            self._do_rest(begin, beat)
        if beat:
            self._queue.append(arrived)
        self._queue += self._lesson.beats[beat].begin
        self._beat, self._number = beat, 0

    def _return(self, place: Before) -> None:
        self._queue.append(Configure(place.settings))
        if place.tip:
            self._queue += [MoveTo(place.tip), Reroll(place.reroll)]

    def _do_rest(self, known: tuple[int, bool], beat: int) -> None:
        number, done = known
        if (number, done) == (beat, False):
            return
        if not done:
            self._queue += self._lesson.beats[number].act
        self._do_beats(number + 1, beat)

    def _do_beats(self, first: int, beat: int) -> None:
        for each in self._lesson.beats[first:beat]:
            self._queue += [*each.begin, *each.act]

    def tick(self) -> None:
        """Once nothing is under way, see what the learner did, and send what is next."""
        while not self._under_way:  # some of the queue needs no command
            if self._begun:
                self._look()
            if self._queue or not self._begun:
                self._raise_failure()
            if not self._queue:
                return
            wanted = self._queue.popleft()
            if isinstance(wanted, LessonAction | Command):
                self._send(wanted)
            else:
                wanted()

    def _send(self, wanted: LessonAction | Command) -> None:
        self._controller.timeline.select(None)
        commands = wanted.commands(self._controller) if isinstance(wanted, LessonAction) else [wanted]
        if not commands and self._begun and wanted in self._rest:
            self._number += 1  # the engine isn't asked, so no record will say that it was done
        for command in commands:
            if isinstance(command, Configure):
                self._controller.setup.configure(command.settings, self._ended)
            elif not self._holds(command):
                if isinstance(command, Prefill):
                    self._controller.setup.prompt = command  # forms begin with the prompt on show
                self._controller.client.request(command, self._ended)

    def _ended(self, request: Request[Any]) -> None:
        self.failure = self.failure or request.failure

    def _holds(self, command: Command) -> bool:
        """True if the session is already in the state that a command leads to."""
        timeline = self._controller.timeline
        match command:
            case MoveTo():
                return command.node == timeline.tip
            case Reroll(count=int(count)):
                return timeline.next is None or timeline.next.reroll == count
        return False

    def _raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            beat = self._lesson.beats[self._beat]
            raise LessonError(beat.line, failure.message, failure.hint, "action")

    # ---- acting -----------------------------------------------------------------------------

    @property
    def left(self) -> tuple[LessonAction, ...]:
        """The actions that are not done yet; of the first one, only the rest."""
        return tuple(each.left(self._controller, self._before) for each in self._rest[:1]) + self._rest[1:]

    @property
    def keys(self) -> str:
        """The keys for the first of these actions."""
        return self.left[0].keys

    @property
    def _rest(self) -> tuple[LessonAction, ...]:
        """The actions that are not done completely."""
        return self._lesson.beats[self._beat].act[self._number :]

    @property
    def done(self) -> bool:
        """True if all of the beat's actions were done."""
        return not self._rest

    def _look(self) -> None:
        """Count the actions that were done, and undo a step that was taken instead of one."""
        while self._rest and self._rest[0].done(self._controller, self._before):
            self._number += 1
            self._before, self.missed = self._snapshot(), ""
        in_force = self._controller.queries.in_force
        if self._rest and (missed := self._rest[0].missed(self._controller, self._before)):
            self.missed, self._missed_under = missed, in_force
            self._before = replace(self._before, since=[])
            if self._rest[0].name != "prompt" and self._controller.timeline.tip != self._before.tip:
                self._queue.append(MoveTo(self._before.tip))
        elif in_force != self._missed_under:  # other settings were set back
            self.missed = ""

    def act(self) -> None:
        """Do the rest of the actions, once, from the place where they begin."""
        if not self.busy and self._rest:
            self.failure = None
            here = replace(self._snapshot(), since=self._before.since)
            if here != self._before and self._rest[0].name != "prompt":  # a prompt is read from anywhere
                self._return(self._before)
            self._queue += self._rest

    def reached(self, done: bool) -> None:
        """Keep the place, and mark it in the recording."""
        self._places[self._beat, done] = self._snapshot()
        if not done:
            self._before, self._begun, self._number = self._snapshot(), True, 0
        self._controller.client.receive(BeatReached(self._lesson.id, self._beat, done))


class RecordedStage:
    """A lesson in its recording.

    Args:
        lesson: The lesson.
        player: Plays the recording; others let it continue once a frame.
    """

    def __init__(self, lesson: Lesson, player: Player) -> None:
        self._lesson, self._player = lesson, player
        self.failure: Failure | None = None
        self.missed, self.recorded, self.pending = "", True, 0
        self._beat: int | None = None
        self._wanted: tuple[int, bool] | None = None
        """The place to go to, once the file was read up to it."""
        self._arrived: Callable[[], object] | None = None
        """See `begin`; until it is called, the destination is the end of the beat before."""

    def close(self) -> None:
        """Nothing needs to be released."""

    def _place(self, beat: int, done: bool) -> int | None:
        """Number of entries up to where a beat begins, or was done; 0 before the first beat, None if it isn't read."""
        if beat < 0:
            return 0
        wanted = BeatReached(self._lesson.id, beat, done)
        places = (place for place, entry in enumerate(self._player.file.entries, 1) if entry.value == wanted)
        return next(places, None)

    @property
    def busy(self) -> bool:
        """True while the recording is on the way to a place."""
        return self._wanted is not None or not self._player.settled

    def begin(self, beat: int, arrived: Callable[[], object]) -> None:
        """Go to the beginning of a beat."""
        self._beat, self._wanted, self._arrived = beat, (beat, False), arrived
        self.tick()

    def tick(self) -> None:
        """Go to the wanted place, as soon as the file was read up to it.

        Raises:
            LessonError: The recording doesn't have it.
        """
        if self._wanted is None:
            return
        beat, done = self._wanted
        if self._arrived is not None:
            beat, done = beat - 1, bool(self._lesson.beats[beat - 1].act)
        place = self._place(beat, done)
        if place is not None:
            self._player.playing = False
            self._player.go(place)
            if self._arrived is None:
                self._wanted = None
            elif self._player.position == place:
                self._arrived()
                self._arrived = None
                self.tick()
        elif not self._player.file.reading:
            line, self._wanted = self._lesson.beats[beat].line, None
            raise LessonError(line, "The recording was made with another version of this lesson.",
                              "Record it again: inspector lesson record FILE.", "recording")  # fmt: skip

    @property
    def left(self) -> tuple[LessonAction, ...]:
        """All of the beat's actions, until they were done."""
        return () if self.done or self._beat is None else self._lesson.beats[self._beat].act

    @property
    def done(self) -> bool:
        """True if the recording is past the actions, or only entries that show nothing are left before their end.

        A key of the player may stop there.
        """
        place = self._place(self._beat, True) if self._beat is not None else None
        if place is None:
            return False
        left = self._player.file.entries[self._player.position : place]
        return all(isinstance(entry.value, _UNSEEN) for entry in left)

    @property
    def keys(self) -> str:
        """The keys for the first of the actions; for one that a recording can't do, the key that shows it."""
        action = self.left[0]
        if action.verb.action or action.name in PLAYED:
            return action.keys
        return f"{key_for('lesson.help')}: the recording shows it"

    def act(self) -> None:
        """Continue to the place where the actions were done."""
        if self._beat is not None:
            self._wanted = self._beat, True
            self.tick()

    def reached(self, done: bool) -> None:
        """Nothing to do: the recording has the mark."""
