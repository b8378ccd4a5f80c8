"""The dialog in which the prompts of a batch are typed, one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.widget import Widget
from textual.widgets import Button, TextArea

from engine.errors import EngineError
from engine.frozen import frozen
from inspector.config.presets import FORM
from inspector.display import visible
from inspector.widgets.actions import ActionTable, dialog_table, note
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.typed_area import TypedTextArea

KEYS = "A prompt on each line: ⏎ applies, ctrl+n begins a line."
OWN = f"One with settings of its own: {FORM}"


@frozen
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
        check: Raises `EngineError` where the lines can't be prompts.
        begins: Whether they begin a batch; else they are added to one.
        how: How they are given to the model, and how many run at once, in a sentence.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "Among the prompts of a batch",
        note("enter", hint="use", worth=6),
        note("ctrl+n", hint="new line", worth=5),
        told=False,
    )
    HEADING: ClassVar[str] = "Prompts of a batch"
    APPLY: ClassVar[str] = "Use"

    def __init__(self, text: str, check: Callable[[Sequence[str]], object], begins: bool, how: str) -> None:
        super().__init__()
        self.initial, self._check, self.begins, self.how = text, check, begins, how

    def body(self) -> Iterable[Widget]:
        yield Remark(("They begin another batch. " if self.begins else "They join the others. ") + self.how)
        yield TypedTextArea(self.initial, id="batch-prompts", soft_wrap=True, tab_behavior="focus")
        yield Remark(OWN)
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
    def apply(self) -> None:
        """Use what was typed, unless it is nothing."""
        remark = self.query_one("#batch-remark", Remark)
        if not self.typed.prompts:
            remark.say("Nothing was typed. Type a prompt on each line.", wrong=True)
            return
        try:
            self._check(self.typed.prompts)
        except EngineError as error:
            remark.say(visible(str(error)), wrong=True)
        else:
            self.dismiss(self.typed)

    def leave(self) -> None:
        """Leave; what was typed is kept for the next time."""
        self.dismiss(TypedPrompts(self.typed.text, False))
