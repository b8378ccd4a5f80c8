"""A model over several processes: what each holds, and where the time of a step goes."""

from __future__ import annotations

from inspector.widgets.actions import Action, Needs, back, note, screen_table

RANKS_SCREEN = screen_table(
    "While ranks are shown",
    Action("ranks.measure", "Measure", "Measure a step on all ranks, with fences; while it is measured, stop.",
           lambda own: own.measure(), Needs.ENGINE, worth=6,
           hint=lambda own: "stop" if own.measuring.running else "measure"),
    note("up down", "Scroll.", "scroll", 3, place=-1),
    back("ranks.leave", "Go back; a measurement stops."),
    text="All ranks run the same session; the screen shows the records of rank 0. `--ranks 2` begins so.",
)  # fmt: skip
