"""The dialogs of lessons: the list of all, and of a course, with the progress of each; beats; the votes of a class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widget import Widget

from inspector.display import pad, truncate, truncate_words, visible
from inspector.lessons.catalogue import END, LessonProgress, Listed, shipped
from inspector.lessons.courses import Course, CoursePlace, shipped_courses
from inspector.widgets.actions import ActionTable, dialog_table, list_table
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import LinesDialog, SafeOptionList

HELP = (
    "Each asks before it shows; ≡ is a course of several. Nothing is lost: a lesson is a branch of your tree."
)
TITLE = 25
"""Cells of a title in a list."""


class LessonsDialog(LinesDialog[Listed | Course | str]):
    """Lists courses and lessons; returns the one to begin, or `END`.

    Args:
        progress: How far each is.
        under_way: Whether there is one to end.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of lessons", "begin")
    HEADING: ClassVar[str] = "Lessons"
    WIDTH, FRAME = 112, 11

    def __init__(self, progress: Mapping[str, LessonProgress], under_way: bool) -> None:
        super().__init__([*[END] * under_way, *shipped_courses(), *shipped()], remark=HELP)
        self._progress = progress

    def line(self, choice: Listed | Course | str, width: int) -> Content:
        if isinstance(choice, str):
            return Content.styled("End the lesson under way", "bold")
        if isinstance(choice, Course):
            done, parts = choice.done(self._progress), len(choice.parts)
            far = f"✓ {done}/{parts}" if done == parts else f"{done}/{parts}" if done else ""
            return _row("≡", choice.title, choice.minutes, far, choice.about, width)
        return _lesson_row(choice.number, choice, self._progress, width)

    def on_key(self, event: events.Key) -> None:
        """Highlight the lesson of a number."""
        for at, each in enumerate(self._choices):
            if isinstance(each, Listed) and str(each.number) == event.character:
                self.query_one(SafeOptionList).highlighted = at


class CourseDialog(LinesDialog[CoursePlace]):
    """Lists the lessons of a course; returns the place of the one to begin.

    Args:
        course: The course; its next lesson is highlighted.
        progress: How far each of its lessons is.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In a course", "begin")
    WIDTH, FRAME = 112, 11

    def __init__(self, course: Course, progress: Mapping[str, LessonProgress]) -> None:
        places = [CoursePlace(course, place) for place in range(len(course.parts))]
        super().__init__(places, course.next(progress), visible(course.about))
        self._course, self._progress = course, progress

    def on_mount(self) -> None:
        """Name the course in the frame."""
        done = f"{self._course.done(self._progress)} of {len(self._course.parts)} done"
        self.query_one("#dialog").border_title = Content(visible(f"{self._course.title} · {done}"))

    def line(self, choice: CoursePlace, width: int) -> Content:
        return _lesson_row(choice.place + 1, choice.listed, self._progress, width)


class BeatsDialog(LinesDialog[int]):
    """Lists the beats of a lesson; returns the one to jump to, from 0.

    Args:
        titles: Of the beats.
        present: The one on show.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of beats", "jump")
    HEADING: ClassVar[str] = "Jump to a beat"
    LEAVE: ClassVar[str] = "Cancel"

    def __init__(self, titles: Sequence[str], present: int) -> None:
        super().__init__(range(len(titles)), present)
        self._titles = titles

    def line(self, choice: int, width: int) -> Content:
        return Content(f"{choice + 1:>2} {visible(self._titles[choice])}")


def _lesson_row(number: int, listed: Listed, progress: Mapping[str, LessonProgress], width: int) -> Content:
    lesson, reached = listed.lesson, progress.get(listed.lesson.id, LessonProgress())
    far = "✓" if reached.done else ""
    if reached.beat:
        far += f" {reached.beat + 1}/{len(lesson.beats)}"
    return _row(str(number), lesson.title, lesson.minutes, far, lesson.about, width)


def _row(sign: str, title: str, minutes: float, far: str, about: str, width: int) -> Content:
    """A line: its beginning is bold, the rest has the ink of the row, highlighted too."""
    head = f"{sign:>2} {pad(visible(title), TITLE)}{minutes:>4g} min  {pad(far, 7)}"
    rest = truncate_words(visible(about), max(0, width - cell_len(head)))
    return Content.styled(truncate(head, width), "bold") + Content(rest)


# ---- the votes of a class ---------------------------------------------------------------------


MOST_VOTES = 100_000


def read_votes(text: str, options: int) -> tuple[int, ...] | None:
    """The votes as typed: a whole number for each option, with spaces or commas between; None for anything else."""
    words = text.replace(",", " ").split()
    if len(words) != options or not all(word.isdecimal() and len(word) < 7 for word in words):
        return None
    return tuple(min(MOST_VOTES, int(word)) for word in words)


class VotesDialog(Dialog[tuple[int, ...]]):
    """Asks for the votes of a class.

    Args:
        options: Of the question.
        votes: Those that are known; empty for none.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table("Among the votes", told=False)
    HEADING: ClassVar[str] = "Votes of the class"
    APPLY: ClassVar[str] = "Show"

    def __init__(self, options: Sequence[str], votes: Sequence[int]) -> None:
        super().__init__()
        self._options, self._votes = tuple(options), tuple(votes)

    def body(self) -> Iterable[Widget]:
        yield SafeInput(" ".join(map(str, self._votes)), "12 5 3", id="votes")
        names = ", ".join(visible(each) for each in self._options)
        yield Remark(f"A number for each: {names}", id="votes-remark")

    def apply(self) -> None:
        """Take the numbers, or ask for them again."""
        votes = read_votes(self.query_one("#votes", SafeInput).value, len(self._options))
        if votes is None:
            advice = f"Type {len(self._options)} whole numbers with spaces between them."
            self.query_one("#votes-remark", Remark).say(advice, wrong=True)
        else:
            self.dismiss(votes)
