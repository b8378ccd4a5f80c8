"""The dialogs of lessons: the list of all, and of a course, with how far each is; the votes of a class, beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.content import Content
from textual.widget import Widget
from textual.widgets.option_list import Option

from inspector.display import pad, truncate, truncate_words, visible
from inspector.lessons.catalogue import END, LessonProgress, Listed, shipped
from inspector.lessons.courses import Course, CoursePlace, shipped_courses
from inspector.widgets.actions import ActionTable, dialog_table, list_table
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import SafeOptionList

HELP = (
    "Each asks before it shows; ≡ is a course of several. Nothing is lost: a lesson is a branch of your tree."
)
WIDEST, FRAME = 112, 11
"""Cells of the dialog at most, as in `overlays.tcss`, and those around its list, with its scroll bar."""
TITLE = 25
"""Cells of a title in a list."""


class LessonsDialog(Dialog[Listed | Course | str]):
    """Lists courses and lessons; returns the one to begin, or `END`.

    Args:
        progress: How far each is.
        under_way: Whether there is one to end.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of lessons", "begin")
    HEADING: ClassVar[str] = "Lessons"
    LEAVE: ClassVar[str] = "Close"

    def __init__(self, progress: Mapping[str, LessonProgress], under_way: bool) -> None:
        super().__init__()
        self._progress, self._under_way = progress, under_way
        self._results: list[Listed | Course | str] = []

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="lessons-list", markup=False, compact=True)
        yield Remark(HELP, id="lessons-remark")

    def on_mount(self) -> None:
        """Fill the list."""
        options = self.query_one(SafeOptionList)
        self._results = [*([END] if self._under_way else []), *shipped_courses(), *shipped()]
        options.add_options(Option(self._line(each)) for each in self._results)
        options.highlighted = 0
        options.focus()

    def on_resize(self, event: events.Resize) -> None:
        """A line each at any width."""
        options = self.query_one(SafeOptionList)
        for index, each in enumerate(self._results):
            options.replace_option_prompt_at_index(index, self._line(each))

    def _line(self, each: Listed | Course | str) -> Content:
        if isinstance(each, str):
            return Content.styled("End the lesson under way", "bold")
        if isinstance(each, Course):
            return course_line(each, self._progress, _width(self))
        return line(each, self._progress.get(each.lesson.id), _width(self))

    def on_key(self, event: events.Key) -> None:
        """Go to the lesson of a number."""
        for at, each in enumerate(self._results):
            if isinstance(each, Listed) and str(each.number) == event.character:
                self.query_one(SafeOptionList).highlighted = at

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._results[message.option_index])


class CourseDialog(Dialog[CoursePlace]):
    """Lists the lessons of a course; returns the place of the one to begin.

    Args:
        course: The course.
        progress: How far each of its lessons is.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In a course", "begin")
    LEAVE: ClassVar[str] = "Close"

    def __init__(self, course: Course, progress: Mapping[str, LessonProgress]) -> None:
        super().__init__()
        self._course, self._progress = course, progress

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="course-list", markup=False, compact=True)
        yield Remark(visible(self._course.about), id="course-remark")

    def on_mount(self) -> None:
        """Fill the list; the lesson to go on with is highlighted."""
        done = f"{self._course.done(self._progress)} of {len(self._course.parts)} done"
        self.query_one("#dialog").border_title = Content(visible(f"{self._course.title} · {done}"))
        options = self.query_one(SafeOptionList)
        options.add_options(Option(each) for each in self._lines())
        options.highlighted = self._course.next(self._progress)
        options.focus()

    def on_resize(self, event: events.Resize) -> None:
        """A line each at any width."""
        options = self.query_one(SafeOptionList)
        for index, each in enumerate(self._lines()):
            options.replace_option_prompt_at_index(index, each)

    def _lines(self) -> Iterable[Content]:
        for place, part in enumerate(self._course.parts, 1):
            yield line(part.listed, self._progress.get(part.listed.lesson.id), _width(self), place)

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(CoursePlace(self._course, message.option_index))


def _width(dialog: Widget) -> int:
    """Cells of a line in one of these dialogs."""
    return max(20, min(WIDEST, dialog.app.size.width) - FRAME)


def course_line(course: Course, progress: Mapping[str, LessonProgress], width: int) -> Content:
    """One course on one line of `width` cells, as `line`."""
    done, parts = course.done(progress), len(course.parts)
    far = f"✓ {done}/{parts}" if done == parts else f"{done}/{parts}" if done else ""
    return _row(
        f" ≡ {pad(visible(course.title), TITLE)}{course.minutes:>4g} min  {pad(far, 7)}", course.about, width
    )


def line(listed: Listed, progress: LessonProgress | None, width: int, number: int | None = None) -> Content:
    """One lesson on one line.

    Args:
        listed: The lesson.
        progress: How far it is.
        width: Cells of the line.
        number: That of the line; None for the lesson's own.
    """
    lesson = listed.lesson
    beats = len(lesson.beats)
    far = "✓" if progress is not None and progress.done else ""
    if progress is not None and progress.beat:
        far += f" {progress.beat + 1}/{beats}"
    shown = listed.number if number is None else number
    return _row(
        f"{shown:>2} {pad(visible(lesson.title), TITLE)}{lesson.minutes:>4g} min  {pad(far, 7)}",
        lesson.about,
        width,
    )


def _row(head: str, about: str, width: int) -> Content:
    """A line, what it is about in the ink of the row, highlighted too."""
    rest = truncate_words(visible(about), max(0, width - cell_len(head)))
    return Content.styled(truncate(head, width), "bold") + Content(rest)


# ---- what a presenter is asked ---------------------------------------------------------------


MOST_VOTES = 100_000


def read_votes(text: str, options: int) -> tuple[int, ...] | None:
    """The counts of a class as they are typed: a number for each option, with spaces or commas; None if they aren't."""
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
        """Take the numbers, if they are some."""
        votes = read_votes(self.query_one("#votes", SafeInput).value, len(self._options))
        if votes is None:
            advice = f"Type {len(self._options)} whole numbers with spaces between them."
            self.query_one("#votes-remark", Remark).say(advice, wrong=True)
        else:
            self.dismiss(votes)


class BeatsDialog(Dialog[int]):
    """Lists the beats of a lesson; returns the one to jump to, from 0.

    Args:
        titles: Of the beats.
        present: The one on show.
    """

    ACTIONS: ClassVar[ActionTable] = list_table("In the list of beats", "jump")
    HEADING: ClassVar[str] = "Jump to a beat"

    def __init__(self, titles: Sequence[str], present: int) -> None:
        super().__init__()
        self._titles, self._present = tuple(titles), present

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="beats-list", markup=False, compact=True)

    def on_mount(self) -> None:
        """Fill the list."""
        options = self.query_one(SafeOptionList)
        options.add_options(
            Option(Content(f"{number:>2} {visible(title)}")) for number, title in enumerate(self._titles, 1)
        )
        options.highlighted = self._present
        options.focus()

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(message.option_index)
