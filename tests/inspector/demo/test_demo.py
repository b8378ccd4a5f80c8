"""The demonstration that comes with the program: what is in it, and that it is of the bundled model as it is now."""

from __future__ import annotations

import re

import pytest

from engine import pocket
from engine.model.facts import fingerprint
from engine.protocol import BeamEnded, BeatReached, Finished, ModelFacts, RaceEnded, Step
from engine.recording import RecordedSession, load
from engine.settings import LoadSettings, Settings
from inspector.demo import DEMONSTRATION, LESSON
from inspector.lessons.catalogue import listed
from inspector.lessons.headless import (
    go_through,
    live_play,
    live_session,
    recorded_play,
    recorded_session,
    settle,
)
from inspector.lessons.play import Card, LessonPlay
from tests.inspector.lessons.playing import LearnerKeys

LIMIT = 200_000
"""Bytes."""
LISTED = listed(LESSON)


@pytest.fixture(scope="module")
def recording() -> RecordedSession:
    return load(DEMONSTRATION)


def cards(session: object, play: LessonPlay) -> list[Card]:
    seen: list[Card] = []
    play.begin()
    go_through(lambda *phases: settle(session, play, *phases), play, lambda _: seen.append(play.card))  # type: ignore[arg-type]
    return seen


def test_it_is_whole_and_small(recording: RecordedSession) -> None:
    assert DEMONSTRATION.stat().st_size < LIMIT
    assert recording.header.ends
    assert re.fullmatch(r"mlx-inspector \d+\.\d+\.\d+.*", recording.header.program)
    assert listed(LESSON).trace == DEMONSTRATION


def test_it_has_six_beats_that_stop_and_ask(recording: RecordedSession) -> None:
    beats = LISTED.lesson.beats
    assert len(beats) == 6
    assert all(beat.question is not None and beat.act for beat in beats)
    reached = {
        (each.value.beat, each.value.done)
        for each in recording.entries
        if isinstance(each.value, BeatReached)
    }
    assert reached == {(number, done) for number in range(6) for done in (False, True)}


def test_it_has_temperature_end_penalties_race_and_beams(recording: RecordedSession) -> None:
    values = [entry.value for entry in recording.entries]
    assert {Step, BeamEnded, RaceEnded} <= {type(value) for value in values}
    assert any(isinstance(value, Finished) and value.reason == "eos" for value in values)
    settings = [value for value in values if isinstance(value, Settings)]
    assert any(value.temp > 1 for value in settings)
    assert any(value.presence_penalty for value in settings)


@pytest.mark.slow
def test_it_says_what_the_model_does_now() -> None:
    with live_session(LoadSettings(), LISTED.lesson) as session:
        live = cards(session, live_play(session, LISTED.lesson))
    with recorded_session(LISTED.trace, LISTED.lesson) as (session, player):
        recorded = cards(session, recorded_play(session, player, LISTED.lesson))
    assert [card.right for card in live] == [card.right for card in recorded]
    assert None not in [card.right for card in live]


@pytest.mark.lesson(listed=LISTED, recorded=True)
async def test_it_is_gone_through_by_keys(learner: LearnerKeys) -> None:
    for _ in LISTED.lesson.beats:
        await learner.beat(guess=0)
    assert len(learner.play.right) == 6


def test_it_names_no_directory_of_the_machine_it_was_recorded_on(recording: RecordedSession) -> None:
    assert not re.search(r"/(home|root|tmp|Users|work)/", repr([entry.value for entry in recording.entries]))


def test_it_is_of_the_bundled_model_so_that_it_can_be_gone_on_with(recording: RecordedSession) -> None:
    facts = next(entry.value for entry in recording.entries if isinstance(entry.value, ModelFacts))
    assert facts.fingerprint == fingerprint(pocket.directory()), (
        "record it again: python -m tests.make_demo.record"
    )
