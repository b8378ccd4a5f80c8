"""A lesson without a screen, as checks, recordings and the plain dialogue run it: live, or from its recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from engine.errors import EngineError, RecordingError
from engine.protocol import LockstepOpened, ModelFacts, Prefill, ReadLogits, Received
from engine.recording import Entry, placed, save_as
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.lessons.lesson import Lesson, LessonPhase
from inspector.lessons.play import LessonPlay
from inspector.lessons.stages import LiveStage, RecordedStage
from inspector.recordings.recorder import Recorder
from inspector.session.client import Backend, IdleBackend
from inspector.session.controller import Controller
from inspector.session.player import Player
from inspector.session.replay_backend import ReplayBackend
from inspector.state.timeline import Phase as SessionPhase
from inspector.version import program

PATIENCE = 300.0
"""Seconds without any record after which a lesson is given up: a hung engine must not hang a check."""


class HeadlessSession:
    """A session that applies its records only while a caller waits for something.

    Args:
        controller: The session's controller.
        turn: Waits a moment for records and applies them; returns whether any came.
    """

    def __init__(self, controller: Controller, turn: Callable[[], bool]) -> None:
        self.controller, self._turn = controller, turn

    def until(self, condition: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        """Apply records until a condition holds.

        Args:
            condition: Checked after each turn.
            each: Called before each check.

        Raises:
            EngineError: No record came for `PATIENCE` seconds.
        """
        last = time.monotonic()
        each()
        while not condition():
            if self._turn():
                last = time.monotonic()
            elif time.monotonic() - last > PATIENCE:
                raise EngineError(f"The engine did not answer for {PATIENCE:.0f} seconds.", "Try again.")
            each()


def live_session(load: LoadSettings, lesson: Lesson) -> AbstractContextManager[HeadlessSession]:
    """A session with a lesson's loaded model; raises as `engine_session`."""
    return engine_session(load, lesson.settings)


@contextmanager
def engine_session(
    load: LoadSettings,
    settings: Settings,
    make: Callable[[Callable[[Received], None]], Backend] = EngineThread,
) -> Iterator[HeadlessSession]:
    """A session with a loaded model.

    Args:
        load: The model.
        settings: Settings of the sampler.
        make: Makes the engine from the function that receives its records.

    Raises:
        EngineError: The model can't be loaded.
    """
    queue: SimpleQueue[Received] = SimpleQueue()
    engine = make(queue.put)
    controller = Controller(engine, load, settings, Prefill("", False))

    def turn() -> bool:
        try:
            received = queue.get(timeout=0.5)
        except Empty:
            return False
        controller.client.receive(received.record, received.id)
        return True

    session = HeadlessSession(controller, turn)
    engine.start()
    try:
        controller.setup.open(load)
        session.until(lambda: not controller.client.outstanding)
        if controller.timeline.phase is SessionPhase.FAILED and controller.timeline.load_failure is not None:
            failure = controller.timeline.load_failure
            raise EngineError(failure.message, failure.hint)
        yield session
    finally:
        engine.close()


@contextmanager
def recorded_session(trace: Path, lesson: Lesson) -> Iterator[tuple[HeadlessSession, Player]]:
    """A session from a recording, without MLX.

    Raises:
        RecordingError: It can't be read.
    """
    queue: SimpleQueue[Received] = SimpleQueue()
    controller = Controller(IdleBackend(), LoadSettings(), lesson.settings, Prefill("", False))
    backend = ReplayBackend(controller, queue.put, lambda _: None)
    player = Player(trace, backend.show, backend.begin, from_start=True)
    backend.questions = player.file.questions
    controller.client.backend = backend
    backend.begin()

    def turn() -> bool:
        moved = player.tick()
        if player.file.failure is not None:
            raise RecordingError(str(player.file.failure))
        while not queue.empty():
            received = queue.get()
            controller.client.receive(received.record, received.id)
            moved = True
        return moved

    try:
        yield HeadlessSession(controller, turn), player
    finally:
        player.file.close()


def live_play(session: HeadlessSession, lesson: Lesson) -> LessonPlay:
    """A lesson in a live session."""
    return LessonPlay(lesson, LiveStage(lesson, session.controller), session.controller)


def recorded_play(session: HeadlessSession, player: Player, lesson: Lesson) -> LessonPlay:
    """A lesson in its recording."""
    return LessonPlay(lesson, RecordedStage(lesson, player), session.controller)


SETTLED = (LessonPhase.ASKING, LessonPhase.ACTING, LessonPhase.REVEALED, LessonPhase.ENDED)


def settle(session: HeadlessSession, play: LessonPlay, *phases: LessonPhase) -> None:
    """Wait until the lesson is in one of some phases.

    Raises:
        LessonError: The lesson can't continue.
    """
    session.until(lambda: play.problem is not None or play.phase in (phases or SETTLED), play.tick)
    if play.problem is not None:
        raise play.problem


# ---- the recording of a lesson ---------------------------------------------------------------


def record(
    lesson: Lesson, path: Path, load: LoadSettings, tell: Callable[[str], None] = lambda _: None
) -> int:
    """Go through a lesson and write its recording.

    Args:
        lesson: The lesson.
        path: Path of the trace, which is replaced if it exists.
        load: How its model is loaded.
        tell: Called with each beat's title.

    Returns:
        The size of the file, in bytes.

    Raises:
        LessonError: The lesson can't be completed.
        EngineError: The model can't be loaded, or the file can't be written.
    """
    with live_session(load, lesson) as session, recording(session, path, lesson.model, tell):
        play, client, known = live_play(session, lesson), session.controller.client, set[int]()

        def settled(*phases: LessonPhase) -> None:
            """Settle, and record the logits where beats begin and end, as a learner may try settings there."""
            settle(session, play, *phases)
            timeline = session.controller.timeline
            if timeline.tip not in known and timeline.next is not None:
                known.add(timeline.tip)
                client.request(ReadLogits((timeline.tip,)))
                session.until(lambda: not client.outstanding)

        play.begin()
        go_through(settled, play, tell)
    return path.stat().st_size


@contextmanager
def recording(
    session: HeadlessSession, path: Path, model: str, tell: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Record a session from here on, and write the trace at the end.

    Args:
        session: A session with a loaded model.
        path: Path of the trace, which is replaced if it exists.
        model: Name of the model in the trace, instead of its directory.
        tell: Called with the recorder's messages.

    Raises:
        EngineError: The file can't be written.
    """
    controller = session.controller
    setup, queries = controller.setup, controller.queries
    recorder = Recorder(
        None, program, lambda: setup.load, lambda: queries.in_force, lambda text, *_: tell(text)
    )
    if controller.timeline.facts is not None:
        recorder.receive(controller.timeline.facts)
    controller.client.listen(recorder.receive)
    yield
    save_as(path, placed([_harmless(entry, model) for entry in recorder.entries]), program())


def go_through(
    settle: Callable[..., None], play: LessonPlay, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Go through all beats: predict the first option of each question, and do each action.

    Args:
        settle: Waits until the lesson is in one of the given phases; without any, until it waits for the learner.
        play: The lesson, begun.
        tell: Called with each beat's title, once it is revealed.
    """
    settle()
    while play.phase is not LessonPhase.ENDED:
        match play.phase:
            case LessonPhase.ASKING:
                play.predict(0)
            case LessonPhase.ACTING:
                play.do_it()
                settle(LessonPhase.REVEALED)
                continue
            case _:
                tell(play.beat.title)
                play.go_on()
        settle()


def _harmless(entry: Entry, model: str) -> Entry:
    """The entry without the directory of the machine that recorded it."""
    match entry.value:
        case ModelFacts() as facts:
            return replace(entry, value=replace(facts, path=model))
        case LockstepOpened(facts=facts) as opened:
            return replace(entry, value=replace(opened, facts=replace(facts, path=model)))
        case _:
            return entry
