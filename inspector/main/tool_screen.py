"""What the full screens of tools have in common: records, repainting once, the theme and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Static

from engine.records import Record
from inspector.main.narration import NarrationCard
from inspector.main.tool import Host
from inspector.widgets.key_hints import KeyHint, key_hints
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")


class ToolScreen(Overlay[Result]):
    """A screen over the main one.

    Args:
        host: The main screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("T", "theme", "Dark or light", tooltip="Switch between the dark and the light theme."),
        Binding("question_mark", "help", "Help", tooltip="Show the keys and what is shown."),
    ]

    TOOL: ClassVar[str]
    """Id of the tool that opens it: its help is this screen's."""
    KEYS: ClassVar[str]
    """The widget of the line of keys, as a selector."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self._stale = False

    def on_mount(self) -> None:
        """Take in what the engine says from now on."""
        self.host.controller.client.listeners.append(self.receive)
        self.mount(NarrationCard())
        self.call_after_refresh(self._show)

    def let_go(self) -> None:
        """Listen no more."""
        listeners = self.host.controller.client.listeners
        if self.receive in listeners:  # it may be left before it is there
            listeners.remove(self.receive)

    def on_screen_suspend(self) -> None:
        """The line of keys has those of what is on top."""
        self.changed()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Catch up with what happened under another screen."""
        self.changed()

    def on_resize(self, event: events.Resize) -> None:
        """As much as there is room for."""
        self.changed()

    def receive(self, record: Record) -> None:
        """Take in one record."""
        self.changed()

    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self._show)

    def _show(self) -> None:
        self._stale = False
        if self.left:
            return
        narrator = self.host.narrator
        for card in self.query(NarrationCard):
            card.tell(narrator.narration() if narrator is not None else None)
        self.show()

    @property
    def room(self) -> int:
        """Rows that the card of whoever narrates leaves."""
        cards = (card.outer_size.height for card in self.query(NarrationCard) if card.display)
        return self.app.size.height - sum(cards)

    def show(self) -> None:
        """Show everything, now."""

    def show_keys(self, hints: Sequence[KeyHint]) -> None:
        """Show these keys in the line of keys, as many as fit."""
        self.query_one(self.KEYS, Static).update(key_hints(self.size.width - 2, hints))

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.host.switch_theme()

    def action_help(self) -> None:
        """Show the help."""
        self.host.help(self.TOOL)
