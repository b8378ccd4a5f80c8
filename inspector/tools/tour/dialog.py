"""The card of a stop of the tour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from inspector.tools.tour import TOUR_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog


class TourDialog(Dialog[None]):
    """The card of one stop.

    Args:
        title: For its frame.
        text: Printable.
        place: `-beside` the answer, `-above` it or `-under` it.
        columns: That it has beside the answer.
        turn: Goes so many stops on, or back, from the card.
        end: Ends the tour; the card has been left then.
    """

    ACTIONS: ClassVar[ActionTable] = TOUR_KEYS
    LEAVE: ClassVar[str] = "End"

    def __init__(
        self,
        title: str,
        text: str,
        place: str,
        columns: int,
        turn: Callable[[TourDialog, int], Awaitable[None]],
        end: Callable[[], None],
    ) -> None:
        super().__init__(classes=place)
        self._title, self._text, self._columns = title, text, columns
        self._turn, self._end = turn, end

    def body(self) -> Iterable[Widget]:
        yield Static(Content(self._text), id="tour-text")

    def on_mount(self) -> None:
        """Take its place."""
        box = self.query_one("#dialog", Vertical)
        box.border_title = Content(self._title)
        if self.has_class("-beside"):
            box.styles.width = self._columns

    async def go(self, by: int) -> None:
        """Go to another stop; beyond the last one, end."""
        await self._turn(self, by)

    def leave(self) -> None:
        """End the tour."""
        self.dismiss()
        self._end()
