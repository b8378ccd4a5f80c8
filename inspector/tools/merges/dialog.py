"""The dialog that asks for the second tokenizer, or for a text to train on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from inspector.tools.merges.tool import NAME_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import SafeInput


class NameDialog(Dialog[str]):
    """Asks for a name.

    Args:
        name: The initial value of the field.
        remark: What may be named; printable.
    """

    ACTIONS: ClassVar[ActionTable] = NAME_KEYS
    KEPT: ClassVar[tuple[str, ...]] = ("given", "remark")
    HEADING: ClassVar[str] = "Which one"
    APPLY: ClassVar[str] = "Take it"

    def __init__(self, name: str, remark: str) -> None:
        super().__init__()
        self.given, self.remark = name, remark

    def body(self) -> Iterable[Widget]:
        yield SafeInput("", id="merges-name")
        yield Remark(id="merges-remark")

    def begin(self) -> None:
        """Begin in the field, at its end."""
        super().begin()
        field = self.query_one("#merges-name", SafeInput)
        field.value = self.given
        field.cursor_position = len(self.given)
        self.set_focus(field)
        self.query_one("#merges-remark", Remark).say(self.remark)

    def apply(self) -> None:
        """Take what was typed."""
        self.dismiss(self.query_one("#merges-name", SafeInput).value.strip())
