"""Courses: what their files may hold, where a person goes on, the screen's list, and lessons one after another."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import EngineError
from inspector.cli.main import main
from inspector.lessons import courses
from inspector.lessons.catalogue import ORDER as LESSONS
from inspector.lessons.catalogue import LessonProgress, Progress, new_lesson, shipped
from inspector.lessons.courses import Course, CoursePlace, draft, find_course, shipped_courses
from inspector.lessons.lesson import LessonPhase
from inspector.views.lessons import LessonsView, VotesDialog
from tests.inspector.lessons.playing import WAITING, LearnerKeys
from tests.inspector.rig import Rig

COURSES = shipped_courses()
WRITING = COURSES[0]
ENDING = next(each for each in shipped() if each.lesson.id == "ending")
KNOWN = {each.lesson.id: each for each in shipped()}
GOOD = """title = "Mine"
about = "Two lessons."
audience = "Anybody."
prepare = ["Sleep well."]

[[part]]
lesson = "pieces"
minutes = 9
say = ["Begin.", "Go on."]
discuss = ["Why?"]

[[part]]
lesson = "one-loop"
"""


def read(text: str, path: Path = Path("mine.toml")) -> tuple[Course | None, list[str]]:
    """A course, and its faults as a compiler would say them."""
    made, faults = draft(text, path, KNOWN)
    return made, [fault.at(path.name) for fault in faults]


# ---- their files --------------------------------------------------------------------------------


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.id)
def test_each_shipped_course_has_its_times_and_talking_points(course: Course) -> None:
    assert course.about
    assert course.audience
    assert course.prepare
    for part in course.parts:
        assert part.say
        assert part.discuss
        assert part.minutes > part.listed.lesson.minutes
        assert part.listed.trace.is_file()
    assert not course.parts[-1].listed.number  # exercises, which the list of lessons doesn't have


def test_how_an_llm_writes_takes_45_minutes() -> None:
    assert WRITING.minutes == 45


def test_a_course_is_its_lessons_in_order_with_their_times() -> None:
    course, faults = read(GOOD)
    assert faults == []
    assert course is not None
    assert [part.listed.lesson.id for part in course.parts] == ["pieces", "one-loop"]
    assert [part.minutes for part in course.parts[:2]] == [9, 5]  # without minutes those of the lesson
    assert course.parts[0].say == ("Begin.", "Go on.")


@pytest.mark.parametrize("name", ["1", "Tokens: Pieces of text", "pieces"])
def test_a_course_names_a_lesson_as_the_command_line_does(name: str) -> None:
    course, faults = read(GOOD.replace('"pieces"', f'"{name}"'))
    assert faults == []
    assert course is not None
    assert course.parts[0].listed.lesson.id == "pieces"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"pieces"', '"pices"'), "mine.toml:7: No lesson is called “pices”. There are pieces, one-loop,"),
        (('"one-loop"', '"pieces"'), "mine.toml:12: Tokens: pieces of text is in the course twice."),
        (
            ("minutes = 9", "minutes = 2"),
            "mine.toml:8: 2 minutes are less than the 5 of Tokens: pieces of text.",
        ),
        (("minutes = 9", "minutes = nan"), "mine.toml:8: minutes must be from 0 to 600."),
        (('"Mine"', '" "'), "mine.toml:1: The course has no title."),
        (("about", "aboot"), "mine.toml:2: There is no aboot."),
        (("discuss", "ask"), "mine.toml:10: There is no ask."),
        (('["Why?"]', "3"), "mine.toml:10: discuss must be a list of texts in quotes."),
        (('"Begin."', f'"{"x" * 401}"'), "mine.toml:9: This text has 401 characters."),
        (('["Why?"]', str(["w"] * 13)), "mine.toml:10: discuss has 13 points."),
        (
            ('"one-loop"', '"../shipped/the-draw.md"'),
            "mine.toml:13: No lesson is called “../shipped/the-draw.md”.",
        ),
        (('"one-loop"', '"none.md"'), "mine.toml:13: none.md can't be read"),
        (('lesson = "one-loop"', "= ="), "mine.toml:13: This is not valid TOML"),
        (('lesson = "one-loop"', "a" + ".a" * 30000 + " = 1"), "mine.toml:13: This table is too large."),
        ((GOOD, 'title = "t"'), "mine.toml:1: There are 0 parts."),
        (("[[part]]", "[[part]]\n" * 50), "mine.toml:1: There are 100 parts."),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told_with_its_line(change: tuple[str, str], told: str) -> None:
    _, faults = read(GOOD.replace(*change))
    assert any(fault.startswith(told) for fault in faults), faults


def test_a_course_that_names_a_lesson_that_is_not_there_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace("one-loop", "x\x1b[31m"))
    assert main(["learn", "--course", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "\x1b" not in told
    path.write_text(GOOD.replace("one-loop", "nowhere"))
    assert main(["lesson", "check", str(path)]) == 2
    assert f"{path}:13: No lesson is called “nowhere”." in capsys.readouterr().out
    path.write_text(GOOD)
    assert main(["lesson", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing is wrong in 2 parts.\n"


def test_lessons_of_ones_own_stand_beside_the_course(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text(new_lesson("A lesson of mine"))
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace('"one-loop"', '"mine.md"'))
    assert [part.listed.lesson.title for part in find_course(str(path)).parts] == [
        "Tokens: pieces of text",
        "A lesson of mine",
    ]


# ---- where a person goes on ---------------------------------------------------------------------


def done(*ids: str) -> dict[str, LessonProgress]:
    """Progress in which these lessons were gone through."""
    return {id: LessonProgress(done=True) for id in ids}


def test_it_goes_on_with_the_first_lesson_that_is_not_done() -> None:
    ids = [part.listed.lesson.id for part in WRITING.parts]
    assert (WRITING.next({}), WRITING.done({})) == (0, 0)
    assert (WRITING.next(done(*ids[:2])), WRITING.done(done(*ids[:2]))) == (2, 2)
    assert WRITING.next(done(*ids[1:])) == 0
    assert (WRITING.next(done(*ids)), WRITING.done(done(*ids))) == (0, len(ids))  # all: again from the first
    assert WRITING.next(done("beams")) == 0  # of another course, or of none


def test_a_part_has_its_number_or_its_lesson_s_name() -> None:
    assert [WRITING.find(name) for name in ("3", "the-draw", " THE draw ")] == [2, 2, 2]
    with pytest.raises(EngineError, match="has no part “beams”"):
        WRITING.find("beams")


def test_courses_are_found_by_name_and_no_other_is() -> None:
    assert [find_course(name).id for name in (*courses.ORDER, "How an  LLM writes")] == [
        *courses.ORDER, WRITING.id,
    ]  # fmt: skip
    with pytest.raises(EngineError, match="No course is called “cooking”"):
        find_course("cooking")


def test_the_list_has_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().keep("pieces", LessonProgress(done=True))
    assert main(["learn"]) == 0
    told = capsys.readouterr().out
    assert "1 of 6 lessons done" in told
    assert told.count(" min  ") == len(LESSONS) + len(courses.ORDER)


# ---- as lines -----------------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def given(lines: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))

    return given


def test_it_is_left_and_gone_on_with_where_it_was_left(
    answers: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The last beat but one of the second lesson; then from there into the third."""
    course = ["learn", "--course", WRITING.id, "--plain", "--recorded"]
    answers("\n\n\n\n" * 40 + "q\n")
    Progress().keep("pieces", LessonProgress(done=True))
    Progress().keep("one-loop", LessonProgress(5))
    answers("1\n\n\n" + "1\nq\n")
    assert main(course) == 0
    told = capsys.readouterr().out
    assert "How an LLM writes, 2 of 6." in told
    assert "It begins at card 6." in told
    assert "How an LLM writes, 3 of 6." in told
    assert told.endswith("You left the lesson.\n")
    assert Progress().read()["one-loop"].done
    answers("q\n")
    assert main(course) == 0
    printed = capsys.readouterr()
    assert "How an LLM writes, 3 of 6." in printed.out
    assert "begins again" not in printed.err
    for part in WRITING.parts:
        Progress().keep(part.listed.lesson.id, LessonProgress(done=True))
    answers("q\n")
    assert main(course) == 0
    printed = capsys.readouterr()
    assert "How an LLM writes, 1 of 6." in printed.out
    assert "All lessons of How an LLM writes are done; the course begins again." in printed.err


# ---- on the screen ------------------------------------------------------------------------------


async def test_the_list_shows_courses_with_what_is_done_and_begins_where_one_goes_on(rig: Rig) -> None:
    Progress().keep("pieces", LessonProgress(done=True))
    await rig.ready()
    await rig.press("6")
    view = rig.app.top
    assert isinstance(view, LessonsView)
    assert view.facts(0) == ("≡", "How an LLM writes", WRITING.lesson_minutes, "1/6")
    await rig.press("enter")
    assert view.picks.highlighted == 1
    assert sum(view.facts(place)[2] for place in range(len(WRITING.parts))) == WRITING.lesson_minutes
    assert [view.facts(place)[:2] for place in range(2)] == [
        ("1", "Tokens: pieces of text"),
        ("2", "The loop, token by token"),
    ]
    assert view.facts(0)[3] == "✓"
    assert str(view.picks.border_title) == "How an LLM writes · 1 of 6 done"
    await rig.press("escape")
    assert view.facts(0)[0] == "≡"
    assert view.is_open
    await rig.press("escape")
    assert not view.is_open


@pytest.mark.lesson(listed=ENDING, recorded=True, size=(80, 24), course=CoursePlace(WRITING, 4))
async def test_after_a_lesson_the_next_one_begins_with_enter(learner: LearnerKeys) -> None:
    """From a recording, to its exercises' recording; then the course is at its end."""
    assert "How a text ends, card 1 of 4" in learner.text()
    for _ in ENDING.lesson.beats:
        await learner.beat(guess=0)
    assert "next comes Exercises: writing, 6 minutes." in learner.told
    assert "next lesson" in learner.text()
    before = learner.play
    await learner.press("enter")
    await learner.until(lambda: learner.actions.play not in (None, before))
    await learner.phase(*WAITING)
    assert learner.play.lesson.id == "how-an-llm-writes-exercises"
    assert "6 of 6 · Exercises: writing, card 1 of 4" in learner.text()
    await learner.press(*["J"] * 3)
    await learner.until(lambda: learner.play.beat_number == 3)
    assert (
        Progress().read()["how-an-llm-writes-exercises"].beat == 3
    )  # where it would go on, before any reveal
    await learner.beat(guess=0)
    assert learner.play.phase is LessonPhase.ENDED
    assert "is at its end" in learner.told
    await learner.press("enter")
    await learner.until(lambda: learner.actions.play is None)
    assert learner.actions.course is None


@pytest.mark.lesson(listed=ENDING, recorded=True, present=True, course=CoursePlace(WRITING, 3))
async def test_a_class_goes_on_to_the_next_lesson_and_its_teacher_reads_what_to_say(
    learner: LearnerKeys,
) -> None:
    part = WRITING.parts[3]
    await learner.phase(LessonPhase.ASKING)
    assert learner.told.endswith("\n\n" + "\n".join(part.say))
    await learner.press("v")
    await learner.until(lambda: isinstance(learner.app.top, VotesDialog))
    await learner.press("1", "space", "2", "space", "3", "enter")
    await learner.until(lambda: bool(learner.actions.presenting._votes))
    await learner.press("J")
    await learner.press("J")
    await learner.press("J")
    await learner.until(lambda: learner.play.beat_number == 3)
    await learner.phase(LessonPhase.ASKING)
    assert part.say[0] not in learner.told
    while learner.play.phase is not LessonPhase.ENDED:
        await learner.press("pagedown")
        await learner.phase(*WAITING, LessonPhase.ENDED)
    assert "next comes Training, from noise on" in learner.told
    assert learner.told.endswith("\n\n" + "\n".join(part.discuss))
    await learner.press("enter")
    await learner.until(lambda: learner.actions.play is not None and learner.play.lesson.id == "learning")
    await learner.phase(*WAITING)
    assert learner.actions.presenting.on
    assert learner.play.beat_number == 0
    assert not learner.actions.presenting._votes  # those of the lesson before


@pytest.mark.lesson(listed=ENDING, recorded=True)
async def test_a_lesson_alone_is_no_part_of_a_course(learner: LearnerKeys) -> None:
    assert " · How a text ends" not in learner.actions.narration().title  # type: ignore[union-attr]
