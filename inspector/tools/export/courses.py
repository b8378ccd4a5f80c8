"""A course for the teacher, as Markdown: when each lesson begins, what to say, what to ask the class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from inspector.display import visible
from inspector.lessons.catalogue import FOLDER
from inspector.lessons.courses import Course, CoursePart
from inspector.tools.export.documents import escaped, markdown_table

HELP = FOLDER.parent.parent / "help"


def plan(course: Course) -> str:
    """The teacher's page of a course.

    Args:
        course: The course. Links to its lessons' files are as the page of the help needs them.
    """
    return "\n".join(_lines(course)) + "\n"


def _lines(course: Course) -> Iterator[str]:
    yield from (f"## {_shown(course.title)}", "")
    yield _shown(
        f"{course.minutes:g} minutes, {len(course.parts)} lessons. {course.about} {course.audience}".strip()
    )
    if course.prepare:
        yield from ("", "Before the class:", "", *(f"- {_shown(each)}" for each in course.prepare))
    yield ""
    yield from markdown_table(("from", "minutes", "lesson", "of that the lesson itself"), _rows(course))
    for place, part in enumerate(course.parts):
        yield from _part(place, part)


def _rows(course: Course) -> Iterator[tuple[str, ...]]:
    for place, part in enumerate(course.parts):
        lesson = part.listed.lesson
        yield at(course.begins(place)), f"{part.minutes:g}", visible(lesson.title), f"{lesson.minutes:g}"
    yield at(course.minutes), "", "end", ""


def at(minutes: float) -> str:
    """A time of the class: `1:05` for 65 minutes."""
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}"


def _part(place: int, part: CoursePart) -> Iterator[str]:
    lesson = part.listed.lesson
    link = Path(os.path.relpath(part.listed.path, HELP)).as_posix()
    title = _shown(lesson.title)
    ours = part.listed.path.is_relative_to(FOLDER)
    yield from ("", f"### {place + 1}. {title}", "")
    yield f"{_shown(lesson.about)} [The lesson]({link})." if ours else _shown(lesson.about)
    if part.say:
        yield from ("", *(f"- {_shown(each)}" for each in part.say))
    if part.discuss:
        yield from ("", "Ask the class:", "", *(f"- {_shown(each)}" for each in part.discuss))


def _shown(text: str) -> str:
    return escaped(visible(text))
