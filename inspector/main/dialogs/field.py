"""Dialogs with one field: for a step, for the path of a file to write, and their base."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, Input

from engine.errors import PathError
from engine.files import free, here, typed
from inspector.widgets.actions import ActionTable, dialog_table
from inspector.widgets.dialog import Dialog, Remark, Result
from inspector.widgets.fields import SafeInput


class FieldDialog(Dialog[Result]):
    """Asks for a text in one field; the remark below it helps, or says what is wrong.

    Args:
        value: The initial text.
        placeholder: Shown while there is no text.
        help: The remark while nothing is wrong.
    """

    FIELD: ClassVar[str] = ""
    """Id of the field; the remark's id is this with `-remark`."""
    FIRST: ClassVar[str] = "SafeInput"

    def __init__(self, value: str, placeholder: str, help: str) -> None:
        super().__init__()
        self.help = help
        self.field = SafeInput(value, placeholder, self.FIELD)

    def body(self) -> Iterable[Widget]:
        yield self.field
        yield Remark(id=f"{self.FIELD}-remark")

    def begin(self) -> None:
        """Show the remark on the initial text."""
        super().begin()
        self.changed()

    @property
    def typed(self) -> str:
        """The text in the field, without blanks around it."""
        return self.field.value.strip()

    @on(Input.Changed)
    def _changed(self) -> None:
        self.changed()

    def changed(self) -> None:
        """Called for the initial text and after each change of it: show the remark."""
        self.say(self.help)


class JumpDialog(FieldDialog[int]):
    """Asks for the number of a step.

    Args:
        first: Number of the first step of the path.
        last: Number of the last one.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table("In a jump", told=False)
    HEADING: ClassVar[str] = "Jump to a step"
    APPLY: ClassVar[str] = "Jump"
    FIELD: ClassVar[str] = "jump-step"

    def __init__(self, first: int, last: int) -> None:
        super().__init__("", f"{first} to {last}", f"A whole number from {first} to {last}.")
        self.steps = range(first, last + 1)

    @property
    def step(self) -> int | None:
        """The step that was typed; None if there is no such step."""
        text = self.typed
        number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
        return number if number in self.steps else None

    def changed(self) -> None:
        wrong = bool(self.typed) and self.step is None
        self.say(f"There is no step {self.typed}. {self.help}" if wrong else self.help, wrong)
        self.query_one("#apply", Button).disabled = self.step is None

    def apply(self) -> None:
        """Jump, if there is such a step."""
        if (step := self.step) is not None:
            self.dismiss(step)
        else:
            self.changed()


# ---- a file to write ----------------------------------------------------------------------------


class PathDialog(FieldDialog[Result]):
    """Asks for the path of a file to write; an existing file is replaced only after a warning."""

    _warned: str = ""
    """The path of an existing file that the user was warned about."""

    def destination(self) -> tuple[Path, bool] | None:
        """The path, and whether an existing file may be replaced; None if the file can't be written, after a remark
        with the reason."""
        text = self.typed
        try:
            if not text:
                raise PathError("No file was named.", "Give a name.")
            path, known = typed(text), text == self._warned
            if not known and path.is_file():
                self._warned = text
            return free(path, known, f"{self.APPLY} again to replace it, or give another name."), known
        except PathError as error:
            self.say(str(error), wrong=True)
            return None


def directory_hint() -> str:
    """A sentence with the directory for a file name without a path, or the reason why there is none."""
    try:
        return f"Saved in {here()} unless you give a path"
    except PathError as error:
        return str(error)
