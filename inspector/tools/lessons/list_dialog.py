"""The dialog that lists the lessons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets.option_list import Option

from inspector.display import visible
from inspector.lessons.catalogue import Listed, shipped
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.key_hints import KeyHint
from inspector.widgets.option_list import SafeOptionList


class LessonsDialog(Dialog[Listed]):
    """Lists lessons; returns the one to begin."""

    HEADING: ClassVar[str] = "Lessons"
    LEAVE: ClassVar[str] = "Close"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("↑↓", "choose", 5), ("⏎", "begin", 6))

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[Listed] = []

    def body(self) -> Iterable[Widget]:
        yield SafeOptionList(id="lessons-list", markup=False, compact=True)
        yield Remark("Each asks before it shows. Nothing of your session is lost.", id="lessons-remark")

    def on_mount(self) -> None:
        """Fill the list."""
        self._listed = shipped()
        options = self.query_one(SafeOptionList)
        options.add_options(Option(line(each)) for each in self._listed)
        options.highlighted = 0
        options.focus()

    @on(SafeOptionList.OptionSelected)
    def _selected(self, message: SafeOptionList.OptionSelected) -> None:
        self.dismiss(self._listed[message.option_index])


def line(listed: Listed) -> Content:
    """One lesson."""
    lesson = listed.lesson
    head = Content.styled(f"{listed.number} {visible(lesson.title)}", "bold")
    return head + Content.styled(f"  {lesson.minutes:g} min  {visible(lesson.about)}", "$ink-muted")
