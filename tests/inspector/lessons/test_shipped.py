"""Each shipped lesson from start to end: without a screen, by real keys, live, recorded, without MLX; and checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.settings import LoadSettings
from inspector.demo import LESSON
from inspector.lessons.catalogue import ORDER, Listed, shipped
from inspector.lessons.check import OWN_DTYPES, check_live, read_checked
from inspector.lessons.courses import shipped_courses
from inspector.lessons.headless import (
    go_through,
    live_play,
    live_session,
    recorded_play,
    recorded_session,
    settle,
)
from inspector.lessons.play import Card, LessonPlay
from inspector.lessons.reading import text_of
from tests.inspector.lessons.playing import LearnerKeys
from tests.system import without_mlx

EXERCISES = [part.listed for course in shipped_courses() for part in course.parts if not part.listed.number]
LESSONS = [*shipped(), *EXERCISES]
EACH = pytest.mark.parametrize("listed", LESSONS, ids=lambda listed: listed.lesson.id)
LIVE = pytest.mark.parametrize(
    "listed",
    [
        pytest.param(each, marks=pytest.mark.slow) if each.lesson.id in ("the-cache",) else each
        for each in LESSONS
    ],
    ids=lambda listed: listed.lesson.id,
)
"""Races take a minute."""


def cards(play: LessonPlay, settle: Callable[..., None]) -> list[Card]:
    """All beats' cards, as they are when they are revealed."""
    seen: list[Card] = []
    play.begin()
    go_through(settle, play, lambda _: seen.append(play.card))
    return seen


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def words(text: str) -> list[str]:
    """What stands between the numbers of a text."""
    return NUMBER.split(text)


def numbers(text: str) -> list[float]:
    """The numbers of a text: another BLAS library, or its code for another processor, rounds their last digits
    otherwise, and the difference of two logprobs may be nothing else."""
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.wide(1)
@LIVE
def test_the_recording_says_what_the_engine_says(listed: Listed) -> None:
    """But for what rests on milliseconds; in the type of the recording."""
    with live_session(LoadSettings(listed.lesson.model, dtype="float32"), listed.lesson) as session:
        play = live_play(session, listed.lesson)
        live = cards(play, lambda *phases: settle(session, play, *phases))
    with recorded_session(listed.trace, listed.lesson) as (session, player):
        again = recorded_play(session, player, listed.lesson)
        recorded = cards(again, lambda *phases: settle(session, again, *phases))
    assert len(live) == len(recorded) == len(listed.lesson.beats)
    for one, other in zip(live, recorded, strict=True):
        assert one.right == other.right
        if one.answer is not None and not one.answer.timed:
            assert other.answer is not None
            assert words(one.answer.plain) == words(other.answer.plain)
            assert numbers(one.answer.plain) == pytest.approx(numbers(other.answer.plain), rel=1e-4, abs=1e-4)


@pytest.mark.wide(1)
@EACH
@pytest.mark.parametrize("size", [pytest.param((120, 40), marks=pytest.mark.slow), (80, 24)], ids=str)
@pytest.mark.lesson(recorded=True)
async def test_its_recording_is_played_by_its_keys(
    learner: LearnerKeys, listed: Listed, size: tuple[int, int]
) -> None:
    await play_all(learner, listed)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
async def test_it_is_played_by_its_keys(learner: LearnerKeys, listed: Listed, size: tuple[int, int]) -> None:
    await play_all(learner, listed)


async def play_all(learner: LearnerKeys, listed: Listed) -> None:
    """Go through a lesson, every guess the second option, so that wrong ones are among them."""
    for number in range(len(listed.lesson.beats)):
        assert learner.play.beat_number == number
        await learner.beat(guess=1)
    asked = {number for number, beat in enumerate(listed.lesson.beats) if beat.question is not None}
    assert learner.play.right.keys() == asked
    await learner.press("enter")
    await learner.until(lambda: learner.actions.play is None)


# ---- where there is no MLX --------------------------------------------------------------------

PLAYED = """
import asyncio
from inspector.lessons.catalogue import find
from tests.inspector.lessons.playing import on_lesson
async def play(id):
    async with on_lesson(find(id), size=(80, 24), recorded=True) as learner:
        for number in range(len(learner.play.lesson.beats)):
            await learner.beat(guess=number)
        print(id, len(learner.play.right))
for id in sys.argv[1:]:
    asyncio.run(play(id))
"""


@pytest.mark.slow
@pytest.mark.parametrize("lessons", [("the-draw",), ORDER], ids=["one", "all"])
def test_lessons_are_played_where_there_is_no_mlx(lessons: tuple[str, ...]) -> None:
    told = without_mlx(PLAYED, *lessons)
    assert [line.split()[0] for line in told] == list(lessons)
    assert "the-draw 6" in told


# ---- the authors' check -----------------------------------------------------------------------

PATHS = [*(listed.path for listed in LESSONS), LESSON]
QUICK = ("pieces", "one-loop", "the-draw", "filters-and-order")
"""A second each; races without a cache take minutes in bfloat16."""


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_nothing_is_wrong_that_needs_no_model(path: Path) -> None:
    _, faults = read_checked(text_of(path), path.stem)
    assert [fault.at(path.name) for fault in faults] == []


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow) for path in PATHS],
    ids=lambda path: path.stem,
)
def test_nothing_is_wrong_on_the_model(path: Path) -> None:
    lesson, _ = read_checked(text_of(path), path.stem)
    assert lesson is not None
    runs, faults = check_live(lesson, LoadSettings(lesson.model), OWN_DTYPES)
    assert [fault.at(path.name) for fault in faults] == []
    assert [len(run.findings) for run in runs] == [len(lesson.beats)] * len(OWN_DTYPES)
