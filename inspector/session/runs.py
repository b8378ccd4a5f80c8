"""Runs: at a pace, up to breakpoints, and gone on with where something about them changed."""

from __future__ import annotations

from collections.abc import Callable

from engine.breakpoints import Breakpoints
from engine.protocol import Run
from inspector.session.client import EngineClient
from inspector.state.breakpoints import BreakpointState

PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, None)
"""Steps a second of a run, None for as fast as it goes."""


class Runs:
    """Begins runs and goes on with them.

    Args:
        client: Takes the commands.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.pace: float | None = None
        self.breakpoints = BreakpointState()
        self.keep: Callable[[Breakpoints], str] = lambda points: ""
        """Keeps breakpoints for the next start; returns what went wrong, empty where nothing did."""
        self.changed: Callable[[], None] = lambda: None
        """Called when other breakpoints were set."""
        client.listeners.append(self.breakpoints.receive)

    def begin(self, over_sure: bool) -> None:
        """Begin a run, over sure tokens alone if that is asked for."""
        self.breakpoints.begin(over_sure)
        self._send(goes_on=False)

    def go_on(self, counted: bool = True) -> None:
        """Have a run under way go on with what has changed; without one nothing happens.

        Args:
            counted: Whether what its breakpoints counted stays.
        """
        if self._client.timeline.running:
            self._client.cancel(*self._client.of(Run))
            self._send(counted)

    def change_pace(self, by: int) -> None:
        """Set the pace `by` places further in `PACES`; a run under way goes on at it."""
        place = PACES.index(self.pace) + by
        self.pace = PACES[max(0, min(len(PACES) - 1, place))]
        self.go_on()

    def break_at(self, points: Breakpoints) -> str:
        """Set breakpoints; a run under way goes on with them.

        Returns:
            What went wrong with keeping them for the next start, to follow a sentence without its full stop.
        """
        self.breakpoints.points = points
        self.go_on(counted=False)
        self.changed()
        return self.keep(points)

    def _send(self, goes_on: bool) -> None:
        until = self.breakpoints.points if self.breakpoints.points.active else None
        self._client.send(Run(self.pace, until, self.breakpoints.skipping, goes_on))


def pace_text(pace: float | None) -> str:
    """A pace as the status line writes it."""
    return "full pace" if pace is None else f"{pace:g} a second"
