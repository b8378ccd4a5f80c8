"""The dialogs of lessons: the list of all, with how far each is; the votes of a class, and the beat to jump to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.content import Content
from textual.widget import Widget
from textual.widgets.option_list import Option

from inspector.display import pad, truncate, truncate_words, visible
from inspector.lessons.catalogue import END, LessonProgress, Listed, all_lessons
from inspector.widgets.actions import ActionTable, dialog_table, list_table
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import SafeOptionList

HELP = "Each asks before it shows. Nothing of your session is lost: a lesson is a branch of its tree."
WIDEST, FRAME = 112, 11
"""Cells of the dialog at most, as in `inspector.tcss`, and those around its list, with both scrollbars."""


class LessonsDialog(Dialog[Listed | str]):
    """Lists lessons; returns the one to begin, or `END`.

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
        self._results: list[Listed | str] = []

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="lessons-list", markup=False, compact=True)
        yield Remark(HELP, id="lessons-remark")

    def on_mount(self) -> None:
        """Fill the list."""
        options = self.query_one(SafeOptionList)
        self._results = [*([END] if self._under_way else []), *all_lessons()]
        options.add_options(Option(self._line(each)) for each in self._results)
        options.highlighted = 0
        options.focus()

    def on_resize(self, event: events.Resize) -> None:
        """A line each at any width."""
        options = self.query_one(SafeOptionList)
        for index, each in enumerate(self._results):
            options.replace_option_prompt_at_index(index, self._line(each))

    def _line(self, each: Listed | str) -> Content:
        if isinstance(each, str):
            return Content.styled("End the lesson under way", "bold")
        width = max(20, min(WIDEST, self.app.size.width) - FRAME)
        return line(each, self._progress.get(each.lesson.id), width)

    def on_key(self, event: events.Key) -> None:
        """Go to the lesson of a number."""
        for at, each in enumerate(self._results):
            if isinstance(each, Listed) and str(each.number) == event.character:
                self.query_one(SafeOptionList).highlighted = at

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._results[message.option_index])


def line(listed: Listed, progress: LessonProgress | None, width: int) -> Content:
    """One lesson on one line of `width` cells."""
    lesson = listed.lesson
    beats = len(lesson.beats)
    far = "✓" if progress is not None and progress.done else ""
    if progress is not None and progress.beat:
        far += f" {progress.beat + 1}/{beats}"
    head = f"{listed.number:>2} {pad(visible(lesson.title), 20)}{lesson.minutes:>4g} min  {pad(far, 7)}"
    about = truncate_words(visible(lesson.about), max(0, width - len(head)))
    return Content.styled(truncate(head, width), "bold") + Content(
        about
    )  # in the ink of the row, highlighted too


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
