"""The dialog that asks for the number of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, Input

from inspector.display import visible
from inspector.widgets.actions import ActionTable, dialog_table
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput


class JumpDialog(Dialog[int]):
    """Asks for a step.

    Args:
        first: Number of the first step of the path.
        last: Number of the last one.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table("In a jump", told=False)
    HEADING: ClassVar[str] = "Jump to a step"
    APPLY: ClassVar[str] = "Jump"

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.step: int | None = None

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", f"{self.first} to {self.last}", id="jump-step")
        yield Remark(self._range(), id="jump-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#jump-step", SafeInput).focus()
        self.query_one("#apply", Button).disabled = True

    def _range(self) -> str:
        return f"A whole number from {self.first} to {self.last}."

    @on(Input.Changed, "#jump-step")
    def _typed(self) -> None:
        text = self.query_one("#jump-step", SafeInput).value.strip()
        number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
        self.step = number if self.first <= number <= self.last else None
        wrong = bool(text) and self.step is None
        no = f"There is no step {visible(text)}. " if wrong else ""
        self.query_one("#jump-remark", Remark).say(no + self._range(), wrong)
        self.query_one("#apply", Button).disabled = self.step is None

    def apply(self) -> None:
        """Jump, if there is such a step."""
        self._typed()
        if self.step is not None:
            self.dismiss(self.step)
