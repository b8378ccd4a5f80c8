"""A lesson without a screen: for checks, recordings and the plain dialogue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from engine.errors import EngineError, TraceError
from engine.protocol import Prefill, Record
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.lessons.lesson import Lesson
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.lessons.stages import LiveStage, RecordedStage
from inspector.session.client import Backend
from inspector.session.controller import Controller
from inspector.session.replay.player import Player
from inspector.session.replay.replay_backend import ReplayBackend
from inspector.state.timeline import Phase as SessionPhase

PATIENCE = 300.0
"""Seconds without any record after which a lesson is given up: a hung engine must not hang a check."""


class HeadlessSession:
    """A session whose records are taken in as they are waited for.

    Args:
        controller: Of it.
        turn: Takes in what came, waiting a moment for it; returns whether anything came.
    """

    def __init__(self, controller: Controller, turn: Callable[[], bool]) -> None:
        self.controller, self._turn = controller, turn

    def until(self, condition: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        """Take in records until a condition holds.

        Args:
            condition: Looked at after each.
            each: Called before each look.

        Raises:
            EngineError: Nothing came for a long time.
        """
        last = time.monotonic()
        each()
        while not condition():
            if self._turn():
                last = time.monotonic()
            elif time.monotonic() - last > PATIENCE:
                raise EngineError(f"The engine said nothing for {PATIENCE:.0f} seconds.", "Try again.")
            each()


def live_session(load: LoadSettings, lesson: Lesson) -> AbstractContextManager[HeadlessSession]:
    """A session with a lesson's loaded model; raises as `engine_session`."""
    return engine_session(load, lesson.settings)


@contextmanager
def engine_session(
    load: LoadSettings, settings: Settings, make: Callable[[Callable[[Record], None]], Backend] = EngineThread
) -> Iterator[HeadlessSession]:
    """A session with a loaded model.

    Args:
        load: The model.
        settings: Of the sampler.
        make: Makes the engine, given what receives its records.

    Raises:
        EngineError: It can't be loaded.
    """
    queue: SimpleQueue[Record] = SimpleQueue()
    engine = make(queue.put)
    controller = Controller(engine, load, settings, Prefill("", False))

    def turn() -> bool:
        try:
            controller.client.receive(queue.get(timeout=0.5))
        except Empty:
            return False
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


class _NoEngine:
    """Takes the place of an engine until the recording's backend does."""

    def start(self) -> None:
        """Nothing is to be started."""

    def send(self, command: object) -> None:
        """Nobody answers."""

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing is to be ended."""
        return True


@contextmanager
def recorded_session(trace: Path, lesson: Lesson) -> Iterator[tuple[HeadlessSession, Player]]:
    """A session from a recording, without MLX.

    Raises:
        TraceError: It can't be read.
    """
    queue: SimpleQueue[Record] = SimpleQueue()
    controller = Controller(_NoEngine(), LoadSettings(), lesson.settings, Prefill("", False))
    backend = ReplayBackend(controller, queue.put, lambda _: None)
    player = Player(trace, backend.show, backend.begin, from_start=True)
    backend.questions = player.file.questions
    controller.client.backend = backend
    backend.begin()

    def turn() -> bool:
        moved = player.tick()
        if player.file.failure is not None:
            raise TraceError(str(player.file.failure))
        while not queue.empty():
            controller.client.receive(queue.get())
            moved = True
        return moved

    try:
        yield HeadlessSession(controller, turn), player
    finally:
        player.close()


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
        LessonError: It can't go on.
    """
    session.until(lambda: play.problem is not None or play.phase in (phases or SETTLED), play.tick)
    if play.problem is not None:
        raise play.problem
