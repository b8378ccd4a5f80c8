"""Breakpoints: those that are set, the one that stopped a run last, and the number of skipped tokens."""

from __future__ import annotations

from rich.cells import cell_len

from engine import protocol
from engine.breakpoints import SURE, Breakpoints
from inspector.display import quoted, token_label, truncate, visible
from inspector.keys import key_for
from inspector.scales import percent

LONGEST_TEXT = 24
"""Cells of a text or a pattern in the line that shows what is set."""


class BreakpointState:
    """The breakpoints of runs."""

    def __init__(self) -> None:
        self.points = Breakpoints()
        self.hit: protocol.BreakpointHit | None = None
        """The stop of the last run, until the session leaves that place."""
        self.skipping = False
        """True if the run is, or was, one over sure tokens."""
        self.skipped = 0
        """Sure tokens that it took."""

    def begin(self, over_sure: bool) -> None:
        """A run begins."""
        self.skipping, self.skipped, self.hit = over_sure, 0, None

    def receive(self, record: protocol.Record) -> None:
        """Take in a stop, or a record that leaves the place of one, after the timeline did."""
        self.hit = record if isinstance(record, protocol.BreakpointHit) else None

    def count(self, record: protocol.Record) -> None:
        """Take in one record of a run over sure tokens."""
        if isinstance(record, protocol.Step):
            self.skipped += record.prob >= SURE

    def stop_sentence(self, coming: protocol.Distribution | None) -> str:
        """The reason why the last run stopped, and the keys; printable.

        Args:
            coming: Distribution after the last token.

        Returns:
            Empty if no breakpoint stopped a run there.
        """
        if self.hit is None or coming is None or self.hit.node != coming.node:
            return ""
        held = "; ".join(map(visible, self.hit.conditions))
        if not self.skipping:
            return f"Stopped: {held}. {key_for('run')} continues, {key_for('breakpoints')} changes it"
        skipped = f"Skipped {self.skipped} sure token{'s' * (self.skipped != 1)}"
        if len(self.hit.conditions) > 1 or not held.startswith("probability"):
            return f"{skipped}: {held}. {key_for('skip')} skips on, {key_for('step')} steps"
        picked = next(candidate for candidate in coming.candidates if candidate.id == coming.picked)
        skipped = skipped if self.skipped else "The next is not sure either"
        token = f"{quoted(token_label(picked.text, picked.raw))} has {percent(picked.prob)}"
        return f"{skipped}: {token}. {key_for('skip')} skips on, {key_for('step')} takes it"


def conditions(points: Breakpoints) -> str:
    """The conditions that are set, on one line; printable, empty for none."""
    shown = (truncate(visible(condition), LONGEST_TEXT) for condition in points.conditions)
    return (" and " if points.all_of else ", ").join(shown)


def marker(points: Breakpoints, room: int) -> str:
    """A marker that breakpoints are set, in `room` cells at most; printable, empty for none."""
    count = len(points.active)
    if not count:
        return ""
    versions = (f"● stops at {conditions(points)}", f"● {count} breakpoint{'s' * (count != 1)}", f"● {count}")
    return next((text for text in versions if cell_len(text) <= room), "●")
