"""What the full screens of tools have in common: records, repainting once, the theme and the help."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from engine.records import Record
from inspector.main.tool import Host

Result = TypeVar("Result")


class ToolScreen(Screen[Result]):
    """A screen over the main one.

    Args:
        host: The main screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("T", "theme", "Dark or light", tooltip="Switch between the dark and the light theme."),
        Binding("question_mark", "help", "Help", tooltip="Show the keys and what is shown."),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self._stale = False

    def on_mount(self) -> None:
        """Take in what the engine says from now on."""
        self.host.controller.client.listeners.append(self.receive)
        self.call_after_refresh(self.show)

    def on_unmount(self) -> None:
        """Listen no more."""
        self.host.controller.client.listeners.remove(self.receive)

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
        if self.is_attached:
            self.show()

    def show(self) -> None:
        """Show everything, now."""

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.host.switch_theme()

    def action_help(self) -> None:
        """Show the help."""
        self.host.help()
