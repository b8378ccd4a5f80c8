"""An editor of several lines in which enter is done with the text."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from inspector.widgets.safety import SafeTextArea


class TypedTextArea(SafeTextArea):
    """Several lines to type in; enter is done with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n,shift+enter,alt+enter", "newline", "New line", show=False),
    ]

    class TextSubmitted(Message):
        """Enter was pressed."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()  # the toolkit's editor would begin a new line
            self.post_message(self.TextSubmitted())

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")
