"""The card of the tour: it stands over the half of the screen that the panel in question is not in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from inspector.keys import with_keys
from inspector.tools.tour.stops import Stop
from inspector.tools.tour.tool import TOUR_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.dialog import Dialog


class TourDialog(Dialog[None]):
    """Goes from stop to stop.

    Args:
        stops: Of the tour.
        go: Shows the panel of a stop; returns whether it is in the lower half of the screen.
    """

    ACTIONS: ClassVar[ActionTable] = TOUR_KEYS
    LEAVE: ClassVar[str] = "End"

    def __init__(self, stops: Sequence[Stop], go: Callable[[Stop], bool]) -> None:
        super().__init__()
        self.stops, self._show_stop = tuple(stops), go
        self.place = 0
        """Of the present stop."""

    def body(self) -> Iterable[Widget]:
        yield Static(id="tour-text")

    def on_mount(self) -> None:
        """Begin at the first stop."""
        self._show()

    def go(self, by: int) -> None:
        """Go to another stop; beyond the last one, leave."""
        if self.place + by >= len(self.stops):
            self.leave()
        else:
            self.place = max(0, self.place + by)
            self._show()

    def _show(self) -> None:
        stop = self.stops[self.place]
        self.set_class(self._show_stop(stop), "-above")
        self.query_one("#dialog", Vertical).border_title = Content(
            f"Tour {self.place + 1}/{len(self.stops)} · {stop.question}"
        )
        self.query_one("#tour-text", Static).update(Content(with_keys(stop.text)))
