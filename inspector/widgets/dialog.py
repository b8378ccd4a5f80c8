"""The base of all dialogs: a framed box over the screen, a body that scrolls, buttons, Escape and ctrl+s."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static
from textual.widgets.button import ButtonVariant

from inspector.keys import key_for, names_of
from inspector.widgets.actions import ActionTable, KeyLine, dialog_table, note
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")


class Dialog(ModalScreen[Result], Overlay[Result]):
    """A dialog: subclasses give a title and a body, and define what applying does."""

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In a dialog", note("tab", hint="next field", worth=5), told=False
    )
    HEADING: ClassVar[str] = ""
    APPLY: ClassVar[str] = ""
    """Label of the button that applies; empty if there is nothing to apply."""
    LEAVE: ClassVar[str] = "Cancel"
    EXTRA: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """Buttons between the one that applies and the one that leaves: the action of each, its label, and its id."""

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            box.border_title = self.HEADING
            with VerticalScroll(id="dialog-body", can_focus=not self.APPLY):
                yield from self.body()
            with Horizontal(id="dialog-buttons"):
                if self.APPLY:
                    yield ActionButton("dialog.apply", self.APPLY, id="apply", variant="primary")
                for action, label, id in self.EXTRA:
                    yield ActionButton(action, label, id)
                yield ActionButton("dialog.leave", self.LEAVE, id="leave")
        yield KeyLine(classes="-dialog")

    def body(self) -> Iterable[Widget]:
        """The widgets between the title and the buttons."""
        return ()

    def begin(self) -> None:
        """Begin at the top."""
        self.query_one("#dialog-body").scroll_home(animate=False)

    def leave(self) -> None:
        """Leave without a change."""
        self.dismiss(None)

    def apply(self) -> None:
        """Apply and leave; without anything to apply, leave."""
        self.leave()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        """Enter in a field applies."""
        self.apply()

    @on(Button.Pressed)
    async def _pressed(self, message: Button.Pressed) -> None:
        """A button does what the action does that it stands for."""
        if isinstance(message.button, ActionButton) and (action := self.meaning(message.button.key)):
            await self.perform(action)


class ActionButton(Button):
    """A button that stands for an action, and names its key.

    Args:
        action: Id of the action.
        label: What it is called.
        id: Of the widget.
        variant: As Textual has it.
    """

    def __init__(self, action: str, label: str, id: str, variant: ButtonVariant = "default") -> None:
        super().__init__(variant=variant, id=id, compact=True)
        self.action_id = action
        self.name_it(label)

    @property
    def key(self) -> str:
        """The key of the action, as Textual names it."""
        return names_of(self.action_id)[0]

    def name_it(self, label: str) -> None:
        """Call it something else."""
        shown = Content(f"{label}  {key_for(self.action_id)}")
        if self.label != shown:
            self.label = shown
            self.refresh(layout=True)


class Remark(Static):
    """One remark under or next to a field: help while all is well, what is wrong otherwise."""

    def __init__(self, text: str = "", id: str | None = None) -> None:
        super().__init__(Content(text), id=id, classes="remark")
        self._text = text

    def say(self, text: str, wrong: bool = False) -> None:
        """Show a text that was made printable."""
        self.set_class(wrong, "-wrong")
        if text != self._text:  # the same one again would have the whole form laid out
            self._text = text
            self.update(Content(text))
