"""The reference in the authors' page, made from the tables, and the teacher's page, made from the courses' files:
`inspector/help/lessons.md` from its heading on, and `inspector/help/courses.md` from its first course on.

`python -m tests.inspector.lessons.reference` writes both anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.settings import FIELDS
from inspector.export.documents import escaped, markdown_table
from inspector.lessons.actions import VERBS
from inspector.lessons.courses import Course, CoursePart, shipped_courses
from inspector.lessons.lesson import PANELS, PARTS, SCREENS
from inspector.lessons.quantities import FUNCTIONS, Function
from inspector.lessons.values import FORMS

HEADING = "## Reference"
PAGE, COURSES = Path("inspector/help/lessons.md"), Path("inspector/help/courses.md")


def current(page: str) -> str:
    """The page with its reference made anew.

    Args:
        page: All of it, as it is.
    """
    own, _, _ = page.partition(f"\n{HEADING}\n")
    return own + "\n" + "\n".join(_lines()) + "\n"


def current_courses(page: str) -> str:
    """The teacher's page with its courses made anew.

    Args:
        page: All of it, as it is.
    """
    own, _, _ = page.partition("\n## ")
    return own + "".join(f"\n{line}" for course in shipped_courses() for line in _course(course))


def _course(course: Course) -> Iterator[str]:
    yield from (f"## {escaped(course.title)}", "")
    yield escaped(
        f"{course.minutes:g} minutes, {len(course.parts)} lessons. {course.about} {course.audience}"
    )
    yield from ("", "Before the class:", "", *(f"- {escaped(each)}" for each in course.prepare), "")
    yield from markdown_table(("from", "minutes", "lesson", "of that the lesson itself"), _rows(course))
    for place, part in enumerate(course.parts):
        yield from _part(place, part)
    yield ""


def _rows(course: Course) -> Iterator[tuple[str, ...]]:
    begins = 0.0
    for part in course.parts:
        lesson = part.listed.lesson
        yield _at(begins), f"{part.minutes:g}", lesson.title, f"{lesson.minutes:g}"
        begins += part.minutes
    yield _at(course.minutes), "", "end", ""


def _at(minutes: float) -> str:
    """A time of the class: `1:05` for 65 minutes."""
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}"


def _part(place: int, part: CoursePart) -> Iterator[str]:
    lesson = part.listed.lesson
    link = Path(os.path.relpath(part.listed.path, COURSES.parent.resolve())).as_posix()
    yield from ("", f"### {place + 1}. {escaped(lesson.title)}", "")
    yield f"{escaped(lesson.about)} [The lesson]({link})."
    yield from ("", *(f"- {escaped(each)}" for each in part.say))
    yield from ("", "Ask the class:", "", *(f"- {escaped(each)}" for each in part.discuss))


def _lines() -> Iterator[str]:
    yield HEADING
    yield from ("", "### Actions", "", "| written | what it does |", "|---|---|")
    for verb in VERBS.values():
        yield f"| `{verb.usage}` | {verb.help} |"
    yield from ("", "### Functions", "", "Each with its fields; the first named stands for all of it.")
    told: dict[tuple[str, ...], str] = {}
    for function in FUNCTIONS.values():
        yield from _function(function, told)
    yield from ("", "### Forms", "", "| form | 0.4567 |", "|---|---|")
    for name, form in FORMS.items():
        yield f"| `{name}` | {form(0.4567)} |"
    yield from ("", "### What can be shown", "")
    yield f"Panels, which `hide` can name too: {', '.join(f'`{each}`' for each in PANELS)}."
    yield ""
    yield f"Parts of them, for `hide` alone: {', '.join(f'`{each}`' for each in PARTS)}."
    yield ""
    yield f"Screens of tools: {', '.join(f'`{each}`' for each in SCREENS)}."
    yield from ("", "### Settings", "", "| name | what it is |", "|---|---|")
    for field in FIELDS:
        yield f"| `{field.name}` | {field.help.replace('|', '/')} |"


def _function(function: Function, told: dict[tuple[str, ...], str]) -> Iterator[str]:
    kind = function.gives
    names = tuple(kind.fields)
    yield from ("", f"**`{function.usage}`** {function.help}", "")
    if names in told:
        yield f"Its fields are those of `{told[names]}`."
        return
    told[names] = function.name
    first = (kind.default, *(name for name in names if name != kind.default))
    yield "; ".join(f"`.{name}` {kind.fields[name][0].replace(';', ',')}" for name in first) + "."


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    COURSES.write_text(current_courses(COURSES.read_text(encoding="utf-8")), encoding="utf-8")
