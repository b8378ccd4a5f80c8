"""The dialog in which the prompts of a batch are typed, one a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, TextArea

from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.key_hints import KeyHint
from inspector.widgets.typed_area import TypedTextArea

KEYS = "A prompt on each line: ⏎ applies, ctrl+n begins a line."


@dataclass(frozen=True, slots=True)
class TypedPrompts:
    """What was typed, and whether it is to be used."""

    text: str
    submitted: bool

    @property
    def prompts(self) -> list[str]:
        """One a line; empty lines are none."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]


class BatchDialog(Dialog[TypedPrompts]):
    """Asks for prompts.

    Args:
        text: The initial value of the field.
        begins: Whether they begin a batch; else they are added to one.
        how: How they are given to the model, and how many run at once, in a sentence.
    """

    HEADING: ClassVar[str] = "Prompts of a batch"
    APPLY: ClassVar[str] = "Use"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("⏎", "use", 6), ("ctrl+n", "new line", 5))

    def __init__(self, text: str, begins: bool, how: str) -> None:
        super().__init__()
        self.initial, self.begins, self.how = text, begins, how

    def body(self) -> Iterable[Widget]:
        yield Remark(("They begin another batch. " if self.begins else "They join the others. ") + self.how)
        yield TypedTextArea(self.initial, id="batch-prompts", soft_wrap=True, tab_behavior="focus")
        yield Remark(KEYS, id="batch-remark")

    def begin(self) -> None:
        """Begin in the text, at its end."""
        super().begin()
        area = self.query_one("#batch-prompts", TypedTextArea)
        self.set_focus(area)
        area.move_cursor(area.document.end)
        self._count()

    @property
    def typed(self) -> TypedPrompts:
        """What is in the field."""
        return TypedPrompts(self.query_one("#batch-prompts", TypedTextArea).text, True)

    @on(TextArea.Changed, "#batch-prompts")
    def _count(self) -> None:
        count = len(self.typed.prompts)
        self.query_one("#apply", Button).disabled = not count
        told = f"{count} prompt" + "s" * (count != 1)
        self.query_one("#batch-remark", Remark).say(f"{told}. {KEYS}" if count else KEYS)

    @on(TypedTextArea.TextSubmitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Use what was typed, unless it is nothing."""
        if self.typed.prompts:
            self.dismiss(self.typed)
        else:
            self.query_one("#batch-remark", Remark).say(
                "Nothing was typed. Type a prompt on each line.", wrong=True
            )

    def action_leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss(TypedPrompts(self.typed.text, False))
