"""What is told beside the panels: a lesson's card. Whoever narrates is asked first about each key of the screens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from textual.content import Content
from textual.widgets import Static

from inspector.widgets.canvas import looks_same
from inspector.widgets.key_hints import KeyHint, key_hints


@dataclass(frozen=True, slots=True)
class Narration:
    """What the card says now."""

    title: str
    """For its frame; printable."""
    body: Content
    hints: tuple[KeyHint, ...]
    spotlight: str = ""
    """Panel that matters: its frame is bright and the others are dimmed; empty where none is."""
    hidden: frozenset[str] = frozenset()
    """Panels whose content is hidden."""
    room: int = 0
    """Columns that the panels have at most, 0 for all: a projector's font may then be large."""
    blank: bool = False
    """Whether nothing is shown for a while."""
    clock: Callable[[], Content] | None = None
    """The time, for the frame; asked once a second."""


class Narrator(Protocol):
    """Tells something beside the panels."""

    def narration(self) -> Narration | None:
        """What the card says now; None for no card."""

    def takes(self, key: str) -> bool:
        """Do what a key means to the narrator; returns whether it means anything: then nobody else gets it."""


class NarrationCard(Static):
    """The card, at the foot of whichever screen is on top."""

    def __init__(self) -> None:
        super().__init__(classes="narration", markup=False)
        self._told: Content | None = None
        self._title = ""
        self._clock: Callable[[], Content] | None = None
        self.display = False

    def on_mount(self) -> None:
        """Let the time go on."""
        self.set_interval(1.0, self._show_time)

    def _show_time(self) -> None:
        if self.display:
            time = Content(" · ") + self._clock() if self._clock is not None else Content()
            self.border_title = Content(self._title) + time

    def tell(self, narration: Narration | None) -> None:
        """Show what is told; None hides the card."""
        if self.display != (narration is not None):
            self.display = narration is not None
        if narration is None:
            return
        self._title, self._clock = narration.title, narration.clock
        self._show_time()
        width = min(self.app.size.width, narration.room or self.app.size.width)
        self.border_subtitle = key_hints(max(10, width - 6), narration.hints)
        if not looks_same(self._told, narration.body):  # each update has all panels laid out again
            self._told = narration.body
            self.update(narration.body)
