"""The recording of a lesson: what the engine said while all its beats were gone through, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine.protocol import LockstepOpened, ModelFacts, ReadLogits
from engine.settings import LoadSettings
from engine.trace import Entry, placed, save_as
from inspector.lessons.headless import HeadlessSession, live_play, live_session, settle
from inspector.lessons.lesson import Lesson
from inspector.lessons.play import LessonPhase, LessonPlay
from inspector.recordings.recorder import Recorder
from inspector.version import program


def record(
    lesson: Lesson, path: Path, load: LoadSettings, tell: Callable[[str], None] = lambda _: None
) -> int:
    """Go through a lesson and write its recording.

    Args:
        lesson: The lesson.
        path: Of the trace; replaced, if it is there.
        load: How its model is loaded.
        tell: Called with each beat's title.

    Returns:
        Bytes of the file.

    Raises:
        LessonError: The lesson can't be gone through.
        EngineError: The model can't be loaded, or the file can't be written.
    """
    with live_session(load, lesson) as session, recording(session, path, lesson.model, tell) as written:
        play = live_play(session, lesson)
        play.begin()
        rows = RowRecorder(session)

        def settled(*phases: LessonPhase) -> None:
            settle(session, play, *phases)
            rows.read()

        go_through(settled, play, tell)
    return written.bytes


@dataclass(slots=True)
class Written:
    """A trace that was written."""

    bytes: int = 0


@contextmanager
def recording(
    session: HeadlessSession, path: Path, model: str, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Written]:
    """Record a session from here on; at the end the trace is written.

    Args:
        session: Its model is loaded.
        path: Of the trace; replaced, if it is there.
        model: What the trace calls the model.
        tell: Called with what the recorder says.

    Raises:
        EngineError: The file can't be written.
    """
    written = Written()
    controller = session.controller
    setup, queries = controller.setup, controller.queries
    recorder = Recorder(None, program, lambda: setup.load, lambda: queries.in_force, tell)
    if controller.timeline.facts is not None:
        recorder.receive(controller.timeline.facts)
    controller.client.listeners.append(recorder.receive)
    yield written
    written.bytes = save_as(path, placed([_harmless(entry, model) for entry in recorder.entries]), program())


class RowRecorder:
    """Has the logits recorded where beats begin and end: there a learner tries settings, and no model is needed.

    Args:
        session: The session that is recorded.
    """

    def __init__(self, session: HeadlessSession) -> None:
        self._session = session
        self._known: set[int] = set()

    def read(self) -> None:
        """Record the row of the present place, once."""
        controller = self._session.controller
        node = controller.timeline.tip
        if node in self._known or controller.timeline.next is None:
            return
        self._known.add(node)
        controller.client.request(ReadLogits((node,)))
        self._session.until(lambda: not controller.client.outstanding)


def go_through(
    settle: Callable[..., None], play: LessonPlay, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Go through all beats, each prediction the first option and each action done.

    Args:
        settle: Waits until the lesson is in one of some phases, or anywhere where it waits for the learner.
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
    """Without the directory of whoever recorded."""
    match entry.value:
        case ModelFacts() as facts:
            return replace(entry, value=replace(facts, path=model))
        case LockstepOpened(facts=facts) as opened:
            return replace(entry, value=replace(opened, facts=replace(facts, path=model)))
        case _:
            return entry
