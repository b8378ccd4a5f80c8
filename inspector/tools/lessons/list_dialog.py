"""The dialog that lists the lessons, with how far each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets.option_list import Option

from inspector.display import pad, truncate, visible
from inspector.lessons.catalogue import END, Listed, shipped
from inspector.lessons.progress import LessonProgress
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.option_list import SafeOptionList

HELP = "Each asks before it shows. Nothing of your session is lost: a lesson is a branch of its tree."
WIDEST, FRAME = 112, 8
"""Cells of the dialog at most, as in `inspector.tcss`, and those around its list."""


class LessonsDialog(Dialog[Listed | str]):
    """Lists lessons; returns the one to begin, or `END`.

    Args:
        progress: How far each is.
        under_way: Whether there is one to end.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In the list of lessons",
        note("up down", hint="choose", worth=5),
        note("enter", hint="begin", worth=6),
        told=False,
    )
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
        width = max(20, min(WIDEST, self.app.size.width) - FRAME)
        listed = shipped()
        self._results = [*([END] if self._under_way else []), *listed]
        if self._under_way:
            options.add_option(Option(Content.styled("End the lesson under way", "bold")))
        options.add_options(Option(line(each, self._progress.get(each.lesson.id), width)) for each in listed)
        options.highlighted = 0
        options.focus()

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
    about = truncate(visible(lesson.about), max(0, width - len(head)))
    return Content.styled(truncate(head, width), "bold") + Content(
        about
    )  # in the ink of the row, highlighted too
