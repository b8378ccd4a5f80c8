"""Two parts of the program ask the same kind of question at once: each gets the answer to its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine.protocol import Explain, Explained, Tokenize, Tokenized, WhatIf, WhatIfAnswered
from engine.remote.client import RemoteEngine
from engine.settings import LoadSettings, Settings
from inspector.lessons.catalogue import shipped
from inspector.lessons.headless import HeadlessSession, engine_session, recorded_session, recording
from inspector.lessons.scope import Scope
from inspector.session.lookup import Lookup
from inspector.session.prefill import Prompt
from tests.engine.remote.far import PROGRAM, hosted

USED, TRIED = Settings(temp=1.0, seed=3), Settings(temp=5.0, seed=3)
LESSON = shipped()[2].lesson
ORDERS = [("panel", "lesson"), ("lesson", "panel")]


@contextmanager
def live(far: bool) -> Iterator[HeadlessSession]:
    """A session of three steps, in this process or over a socket."""
    with ExitStack() as stack:
        if far:
            link = stack.enter_context(hosted()).link()

            def make(emit: Callable[..., None]) -> RemoteEngine:
                engine = RemoteEngine(emit, link, PROGRAM)
                engine.connect()
                return engine

            session = stack.enter_context(engine_session(LoadSettings("pocket"), USED, make))
        else:
            session = stack.enter_context(engine_session(LoadSettings("pocket"), USED))
        yield session


def begun(session: HeadlessSession) -> Scope:
    """Three steps after a prompt, with the sampler on show; what a lesson looks at."""
    controller = session.controller
    controller.setup.give(Prompt("Once upon a time", False))
    session.until(lambda: controller.resting)
    for _ in range(3):
        controller.transport.step()
        session.until(lambda: controller.resting)
    controller.queries.watching = True
    return Scope(controller)


def ask_both(session: HeadlessSession, scope: Scope, order: tuple[str, str], tried: Settings = TRIED) -> None:
    """The panel asks why this token, the lesson how it would be under other settings, before either is answered."""
    controller = session.controller
    timeline = controller.timeline
    timeline.last_explanation = None
    asks = {
        "panel": lambda: controller.queries.ask(timeline),
        "lesson": lambda: scope.ask(Explain(timeline.tip, tried)),
    }
    for name in order:
        asks[name]()
    session.until(lambda: not scope.waiting and timeline.explanation() is not None)


def bits(explained: Explained | None) -> float:
    assert explained is not None
    return explained.next.sampler_entropy_bits


@pytest.mark.parametrize("far", [False, True])
def test_the_panel_and_a_lesson_get_the_answers_to_their_own_questions(far: bool) -> None:
    with live(far) as session:
        scope = begun(session)
        timeline, queries = session.controller.timeline, session.controller.queries
        for order in ORDERS:
            scope.forget()
            ask_both(session, scope, order)
            told = timeline.explanation()
            assert told is not None
            assert bits(told.explained) == timeline.next.sampler_entropy_bits
            assert told.explained.used
            answer = scope.answer(Explain(timeline.tip, TRIED), Explained)
            assert answer.next.sampler_entropy_bits > timeline.next.sampler_entropy_bits + 5

            # steps under settings that are tried, and under those of a lesson
            queries.try_out(timeline, TRIED)
            asks = [lambda: queries.ask(timeline), lambda: scope.ask(WhatIf(USED, timeline.tip))]
            for ask in asks[:: 1 if order is ORDERS[0] else -1]:
                ask()
            session.until(lambda: not scope.waiting and timeline.trial.answered is not None)
            same = scope.answer(WhatIf(USED, timeline.tip), WhatIfAnswered)
            assert all(step.same for step in same.steps)
            assert not all(step.same for step in timeline.trial.answers.values())
            queries.try_out(timeline, None)
        scope.close()


@pytest.mark.parametrize("far", [False, True])
def test_the_prompt_dialog_and_a_lesson_get_their_own_texts(far: bool) -> None:
    with live(far) as session:
        scope = begun(session)
        for order in (1, -1):
            scope.forget()
            told: list[object] = []
            lookup = Lookup(Tokenized, session.controller.client)
            lookup.tell = told.append
            asks = [
                lambda lookup=lookup: lookup.ask(Tokenize("a dog")),
                lambda: scope.ask(Tokenize("two cats")),
            ]
            for ask in asks[::order]:
                ask()
            session.until(lambda told=told: bool(told) and not scope.waiting)
            assert [answer.text for answer in told] == ["a dog"]
            assert scope.answer(Tokenize("two cats"), Tokenized).text == "two cats"


def test_a_recording_answers_each_with_what_answered_it(tmp_path: Path) -> None:
    """Recorded while both were out, and asked again while both are out, in both orders."""
    for recorded in ORDERS:
        path = tmp_path / f"{recorded[0]}.jsonl"
        with live(far=False) as session, recording(session, path, "pocket"):
            scope = begun(session)
            ask_both(session, scope, recorded)
            timeline = session.controller.timeline
            used = timeline.next.sampler_entropy_bits
            tried = bits(scope.answer(Explain(timeline.tip, TRIED), Explained))
        for asked in ORDERS:
            with recorded_session(path, LESSON) as (session, player):
                player.end()
                session.until(lambda player=player: player.settled)
                session.controller.queries.watching = True
                scope = Scope(session.controller)
                ask_both(session, scope, asked)
                timeline = session.controller.timeline
                told = timeline.explanation()
                assert told is not None
                assert bits(told.explained) == timeline.next.sampler_entropy_bits == pytest.approx(used)
                assert bits(scope.answer(Explain(timeline.tip, TRIED), Explained)) == pytest.approx(tried)


def test_a_lesson_that_goes_on_waits_for_no_answer_of_the_beat_before() -> None:
    """`J` and then `j` while an answer is on its way."""
    with live(far=False) as session:
        scope = begun(session)
        question = Explain(session.controller.timeline.tip, TRIED)
        scope.ask(question)
        scope.forget()
        assert not scope.waiting
        scope.ask(Explain(session.controller.timeline.tip, TRIED))
        session.until(lambda: not scope.waiting)
        session.until(lambda: not session.controller.client.outstanding)
        assert bits(scope.answer(question, Explained)) > 5
        assert not [record for record in scope.since if isinstance(record, Explained)]
