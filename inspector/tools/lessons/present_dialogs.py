"""What a presenter is asked: the class's votes, and the beat to jump to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input
from textual.widgets.option_list import Option

from inspector.display import visible
from inspector.tools.lessons.presenter import read_votes
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.option_list import SafeOptionList


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
        yield Input(" ".join(map(str, self._votes)), id="votes", placeholder="12 5 3")
        names = ", ".join(visible(each) for each in self._options)
        yield Remark(f"A number for each: {names}", id="votes-remark")

    def apply(self) -> None:
        """Take the numbers, if they are some."""
        votes = read_votes(self.query_one("#votes", Input).value, len(self._options))
        if votes is None:
            told = f"Type {len(self._options)} whole numbers with spaces between them."
            self.query_one("#votes-remark", Remark).say(told, wrong=True)
        else:
            self.dismiss(votes)


class BeatsDialog(Dialog[int]):
    """Lists the beats of a lesson; returns the one to jump to, from 0.

    Args:
        titles: Of the beats.
        present: The one on show.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In the list of beats",
        note("up down", hint="choose", worth=5),
        note("enter", hint="jump", worth=6),
        told=False,
    )
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
