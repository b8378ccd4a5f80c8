"""The tour as a tool: the key that begins it, and the panels that it goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.main.tool import SCREEN, Host, Tool, ToolActions
from inspector.widgets.actions import Action, dialog_table, leaves

if TYPE_CHECKING:
    from inspector.tools.tour.stops import Stop

_LOWER = ("steps", "kv", "timing")


class TourActions(ToolActions):
    """Shows a stranger around."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._before: tuple[str, bool, frozenset[str], bool] = ("text", False, frozenset(), False)

    def begin(self) -> None:
        """Go from panel to panel; everything is as it was afterwards."""
        from inspector.tools.tour.dialog import TourDialog
        from inspector.tools.tour.stops import STOPS

        arrangement = self.host.arrangement
        self._before = arrangement.current, arrangement.alone, arrangement.hidden, arrangement.enlarged
        arrangement.enlarged = False
        panels = {panel.id for panel in arrangement.panels}
        stops = [stop for stop in STOPS if stop.panel in panels]
        self.host.open(TourDialog(stops, self._go), self._end)

    def _go(self, stop: Stop) -> bool:
        self._close()
        self.host.go_to(stop.panel)
        return stop.panel in _LOWER

    def _close(self) -> None:
        """Close the panel of the tool that the tour was at."""
        arrangement = self.host.arrangement
        if arrangement.is_tool(arrangement.current):
            arrangement.close(arrangement.current)

    def _end(self, _: None) -> None:
        self._close()
        arrangement = self.host.arrangement
        current, alone, arrangement.hidden, arrangement.enlarged = self._before
        self.host.go_to(current)
        arrangement.set_alone(alone)
        self.host.answer()


TOUR_KEYS = dialog_table(
    "On the tour",
    Action("tour.next", "Next", "Go to the next panel.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.right", "Next", "Go to the next panel.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.back", "Back", "Go to the one before.", lambda own: own.go(-1), hint="back", worth=5, priority=True),
    leaves("End it; everything is as it was before."),
)  # fmt: skip
TOUR = Tool(
    "tour",
    "Tour",
    TourActions,
    actions=(
        Action(
            "tour",
            "Tour",
            "Show a stranger around: what each panel answers.",
            TourActions.begin,
            group=SCREEN,
            synonyms="guide introduction welcome",
        ),
    ),
    owners=(TOUR_KEYS,),
)
