"""The editor of a prompt: at its first and last line the arrow keys go on to other prompts."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from inspector.widgets.safety import SafeTextArea


class PromptEditor(SafeTextArea):
    """Several lines to type in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+up", "ask(-1)", "Earlier prompt", show=False),
        Binding("alt+down", "ask(1)", "Later prompt", show=False),
        Binding("ctrl+a", "select_all", "Select all", show=False),
    ]

    class Asked(Message):
        """Another prompt was asked for."""

        def __init__(self, by: int) -> None:
            self.by = by
            """-1 for the one before, 1 for the next."""
            super().__init__()

    def put(self, text: str) -> None:
        """Edit another text, from its end on."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_ask(self, by: int) -> None:
        """Ask for another prompt."""
        self.post_message(self.Asked(by))

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up a line; on the first one ask for the prompt before."""
        if not select and self.navigator.is_first_wrapped_line(self.cursor_location):
            self.action_ask(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down a line; on the last one ask for the next prompt."""
        if not select and self.navigator.is_last_wrapped_line(self.cursor_location):
            self.action_ask(1)
        else:
            super().action_cursor_down(select)
