"""A guided tour of the panels: what each of them answers."""

from __future__ import annotations

from inspector.widgets.actions import Action, dialog_table, leaves

TOUR_KEYS = dialog_table(
    "On the tour",
    Action("tour.next", "Next", "Go to the next stop.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.right", "Next", "Go to the next stop.", lambda own: own.go(1), hint="next", worth=7, priority=True),
    Action("tour.back", "Back", "Go to the previous one.", lambda own: own.go(-1), hint="back", worth=5, priority=True),
    leaves("End the tour; everything is as it was before."),
)  # fmt: skip
