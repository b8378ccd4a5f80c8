"""What all dialogs share: a framed box over the screen, a body that scrolls, buttons, Escape and ctrl+s."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, Static

from inspector.widgets.key_hints import KeyHint, key_hints
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")


class Dialog(ModalScreen[Result], Overlay[Result]):
    """A dialog: subclasses give a title and a body, and define what applying does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", tooltip="Leave without a change."),
        Binding("ctrl+s", "apply", "Apply", tooltip="Apply and leave.", priority=True),
    ]
    HEADING: ClassVar[str] = ""
    APPLY: ClassVar[str] = ""
    """Label of the button that applies; empty where there is nothing to apply."""
    LEAVE: ClassVar[str] = "Cancel"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("⇥", "next field", 5),)
    """Its own keys for the line of keys, before those that apply and leave."""

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            box.border_title = self.HEADING
            with VerticalScroll(id="dialog-body", can_focus=not self.APPLY):
                yield from self.body()
            with Horizontal(id="dialog-buttons"):
                if self.APPLY:
                    yield Button(
                        Content(f"{self.APPLY}  ctrl+s"), variant="primary", id="apply", compact=True
                    )
                yield from self.extra()
                yield Button(Content(f"{self.LEAVE}  esc"), id="leave", compact=True)
        yield HintLine()

    def body(self) -> Iterable[Widget]:
        """The widgets between the title and the buttons."""
        return ()

    def extra(self) -> Iterable[Button]:
        """Buttons between the one that applies and the one that leaves."""
        return ()

    def begin(self) -> None:
        """Begin at the top."""
        self.query_one("#dialog-body").scroll_home(animate=False)

    def action_leave(self) -> None:
        """Leave without a change."""
        self.dismiss(None)

    def action_apply(self) -> None:
        """Apply and leave; without anything to apply, leave."""
        self.action_leave()

    @on(Button.Pressed, "#apply")
    def _apply_pressed(self) -> None:
        self.action_apply()

    @on(Button.Pressed, "#leave")
    def _leave_pressed(self) -> None:
        self.action_leave()


def hints_of(screen: Screen[Any]) -> tuple[KeyHint, ...]:
    """What the line of keys says while a dialog is on top."""
    if isinstance(screen, CommandPalette):
        return (("↑↓", "choose", 5), ("⏎", "do it", 6), ("esc", "leave", 8))
    if not isinstance(screen, Dialog):
        return ()
    apply = (("ctrl+s", screen.APPLY.lower(), 7),) if screen.APPLY else ()
    return (*screen.HINTS, *apply, ("esc", screen.LEAVE.lower(), 8))


class HintLine(Widget):
    """The line of keys of what is on top: over the last line of the screen below, which is dimmed."""

    DEFAULT_CSS = """
    HintLine { dock: bottom; layer: below; height: 1; padding: 0 1; background: $panel; color: $text-muted; }
    """

    def render(self) -> Content:
        return key_hints(self.content_size.width, hints_of(self.screen))


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
