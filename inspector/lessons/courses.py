"""Courses: lessons in the order in which a teacher gives them, with a time and talking points for each.

A course consists of lessons only; its exercises are lessons, too. The progress in it follows from the lessons that the
learner completed, in the course or outside it. Its file is TOML, with a table `[[part]]` for each lesson; its size is
limited like that of a lesson's file, since it may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from engine.errors import EngineError
from engine.files import typed
from inspector.lessons.catalogue import FOLDER, LessonProgress, Listed, called, listed, named, shipped
from inspector.lessons.errors import Faults, LessonError
from inspector.lessons.reading import TomlTable, text_of

ORDER = ("how-an-llm-writes", "inference-engineering", "interpretability")
"""Ids of the courses, in the order of the list."""
ENDING = ".toml"
HEAD = ("title", "about", "audience", "prepare")
"""Keys before the first part."""
PART = ("lesson", "minutes", "say", "discuss")
"""Keys in a part."""
PART_BEGINS = "[[part]]"
MOST_PARTS, MOST_POINTS, LONGEST = 40, 12, 400
"""Most parts of a course, points of a list, and characters of a text."""


class CoursePart(Struct, frozen=True):
    """One lesson of a course, with the teacher's notes."""

    listed: Listed
    minutes: float
    """Minutes in class: the lesson's own, and those of the talk around it."""
    say: tuple[str, ...] = ()
    """Talking points for the teacher."""
    discuss: tuple[str, ...] = ()
    """Questions for the class afterwards, which no run answers."""


class Course(Struct, frozen=True):
    """Lessons in the order in which they are taken."""

    id: str
    """Name of its file, without the ending."""
    title: str
    about: str
    audience: str
    """The people that it is for, in a sentence."""
    prepare: tuple[str, ...]
    """The teacher's tasks before the class."""
    parts: tuple[CoursePart, ...]

    @property
    def minutes(self) -> float:
        """Minutes of the whole class."""
        return sum(part.minutes for part in self.parts)

    @property
    def lesson_minutes(self) -> float:
        """Minutes of its lessons alone, without the talk around them."""
        return sum(part.listed.lesson.minutes for part in self.parts)

    def done(self, progress: Mapping[str, LessonProgress]) -> int:
        """The number of its lessons that the learner completed."""
        return sum(_is_done(part, progress) for part in self.parts)

    def next(self, progress: Mapping[str, LessonProgress]) -> int:
        """Place of the first part that isn't done, from 0; 0 if all are done."""
        left = (place for place, part in enumerate(self.parts) if not _is_done(part, progress))
        return next(left, 0)

    def find(self, name: str) -> int:
        """Place of a part, from 0.

        Args:
            name: Its number in the course, from 1, or its lesson's id or title.

        Raises:
            EngineError: There is no such part.
        """
        wanted = " ".join(name.casefold().split())
        for place, part in enumerate(self.parts):
            if wanted == str(place + 1) or called(wanted, part.listed.lesson):
                return place
        hint = f"It has {len(self.parts)} parts: give a number, or the name of a lesson."
        raise EngineError(f"{self.title} has no part “{name}”.", hint)


def _is_done(part: CoursePart, progress: Mapping[str, LessonProgress]) -> bool:
    return progress.get(part.listed.lesson.id, LessonProgress()).done


class CoursePlace(Struct, frozen=True):
    """A part of a course that is being taken."""

    course: Course
    place: int
    """The part's place, from 0."""

    @property
    def listed(self) -> Listed:
        """The lesson of the part."""
        return self.course.parts[self.place].listed

    @property
    def following(self) -> CoursePlace | None:
        """The part after it; None after the last one."""
        return CoursePlace(self.course, self.place + 1) if self.place + 1 < len(self.course.parts) else None

    @property
    def named(self) -> str:
        """Its name on a card: `2 of 6`."""
        return f"{self.place + 1} of {len(self.course.parts)}"


# ---- the list -----------------------------------------------------------------------------------


def shipped_courses() -> list[Course]:
    """The courses that come with the program."""
    known = _known()
    return [_read(FOLDER / f"{id}{ENDING}", known) for id in ORDER]


def find_course(name: str) -> Course:
    """A course by its id or its title, or the path of its file.

    Raises:
        EngineError: There is no such course, or its file has a fault.
    """
    wanted = " ".join(name.casefold().split())
    if wanted.endswith(ENDING):
        return _read(typed(name), _known())
    for course in shipped_courses():
        if wanted in (course.id, course.title.casefold()):
            return course
    hint = f"There are {', '.join(ORDER)}; a file of your own ends in {ENDING}."
    raise EngineError(f"No course is called “{name}”.", hint)


def _known() -> dict[str, Listed]:
    """The lessons of the list, by id."""
    return {each.lesson.id: each for each in shipped()}


def read_course(path: Path) -> tuple[Course | None, list[LessonError]]:
    """Read a course's file as far as possible; returns the course, if any, and the faults.

    Args:
        path: Path of the file.

    Raises:
        PathError: It can't be read.
    """
    return _drafted(path, _known())


def _drafted(path: Path, known: Mapping[str, Listed]) -> tuple[Course | None, list[LessonError]]:
    try:
        return draft(text_of(path), path, known)
    except LessonError as error:
        return None, [error]


def _read(path: Path, known: Mapping[str, Listed]) -> Course:
    """The course of a file; the error names the line of its first fault."""
    made, faults = _drafted(path, known)
    if faults:
        raise EngineError(min(faults, key=lambda fault: fault.line).at(path.name))
    assert made is not None
    return made


# ---- a course's file ----------------------------------------------------------------------------


def draft(text: str, path: Path, known: Mapping[str, Listed]) -> tuple[Course | None, list[LessonError]]:
    """Read a course as far as possible; returns the course, if any, and the faults.

    Args:
        text: Text of its file.
        path: Path of its file, beside which its own lessons are.
        known: The lessons of the list, by id.
    """
    faults = Faults()
    return faults.of(lambda: _course(text, path, known, faults), None), faults.found


def _course(text: str, path: Path, known: Mapping[str, Listed], faults: Faults) -> Course | None:
    (head, _), *parts = _tables(text)
    if not 1 <= len(parts) <= MOST_PARTS:
        hint = f"A course has 1 to {MOST_PARTS}; each begins with a line of {PART_BEGINS}."
        raise LessonError(1, f"There are {len(parts)} parts.", hint, "part")
    table = TomlTable(head, 0, HEAD, faults)
    title = _text(table, "title", faults)
    if not title.strip():
        faults.add(1, "The course has no title.", 'Write title = "...".', "entry")
    read = [_read_part(*each, path, known, faults) for each in parts]
    made = tuple(part for part in read if part is not None)
    for place, (_, line) in enumerate(parts):
        own = read[place]
        if own is not None and any(own.listed.path == each.listed.path for each in read[:place] if each):
            title_of = own.listed.lesson.title
            faults.add(line, f"{title_of} is in the course twice.", "Leave one out.", "lesson")
    about, audience = _text(table, "about", faults), _text(table, "audience", faults)
    return Course(path.stem, title, about, audience, _points(table, "prepare", faults), made)


def _tables(text: str) -> list[tuple[str, int]]:
    """The head and the parts, each with the number of lines before it in the file."""
    tables: list[tuple[list[str], int]] = [([], 0)]
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.strip() == PART_BEGINS:
            tables.append(([], number))
        else:
            tables[-1][0].append(line)
    return [("\n".join(lines), before) for lines, before in tables]


def _read_part(
    source: str, before: int, path: Path, known: Mapping[str, Listed], faults: Faults
) -> CoursePart | None:
    return faults.of(lambda: _part(source, before, path, known, faults), None)


def _part(source: str, before: int, path: Path, known: Mapping[str, Listed], faults: Faults) -> CoursePart:
    table = TomlTable(source, before, PART, faults)
    found = _lesson(table.get("lesson", str, ""), table.line("lesson"), path, known)
    minutes = table.minutes(found.lesson.minutes)
    if minutes < found.lesson.minutes:
        wrong = f"{minutes:g} minutes are less than the {found.lesson.minutes:g} of {found.lesson.title}."
        faults.add(table.line("minutes"), wrong, "Give it more, or leave minutes out.", "minutes")
    return CoursePart(found, minutes, _points(table, "say", faults), _points(table, "discuss", faults))


def _lesson(name: str, line: int, path: Path, known: Mapping[str, Listed]) -> Listed:
    """A lesson of the list, or a file beside the course's: a course, perhaps from a stranger, can open no other."""
    if name.endswith(".md") and Path(name).name == name:
        try:
            return listed(path.with_name(name))
        except LessonError as error:
            raise LessonError(line, error.at(name), rule="lesson") from error
        except EngineError as error:
            raise LessonError(line, error.message, error.hint, "lesson") from error
    if (found := named(name, known.values())) is not None:
        return found
    hint = f"There are {', '.join(known)}, and files beside this one, as exercises.md."
    raise LessonError(line, f"No lesson is called “{name}”.", hint, "lesson")


def _text(table: TomlTable, name: str, faults: Faults) -> str:
    text: str = table.get(name, str, "")
    return _bounded(" ".join(text.split()), table.line(name), faults)


def _points(table: TomlTable, name: str, faults: Faults) -> tuple[str, ...]:
    points = table.texts(name)
    if len(points) > MOST_POINTS:
        line = table.line(name)
        faults.add(line, f"{name} has {len(points)} points.", f"{MOST_POINTS} are allowed.", "entry")
    line_of = [table.line(name, each[:20]) for each in points[:MOST_POINTS]]
    return tuple(
        _bounded(" ".join(each.split()), line, faults) for each, line in zip(points, line_of, strict=False)
    )


def _bounded(text: str, line: int, faults: Faults) -> str:
    if len(text) > LONGEST:
        faults.add(line, f"This text has {len(text)} characters.", f"{LONGEST} are allowed.", "entry")
    return text[:LONGEST]
