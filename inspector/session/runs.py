"""Runs and prefills, as a person steers them: their pace, their breakpoints, stopped and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from engine.breakpoints import Breakpoints
from engine.protocol import AddTurn, Command, GoOnPrefill, Prefill, Record, Run
from inspector.session.client import EngineClient, Request
from inspector.state.breakpoints import BreakpointState
from inspector.state.timeline import Phase, Timeline

LEAST, MOST = 1, 2048
"""Tokens a chunk of a prefill."""
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
        self._client.request(Run(self.pace, until, self.breakpoints.skipping, goes_on))


def pace_text(pace: float | None) -> str:
    """A pace as the status line writes it."""
    return "full pace" if pace is None else f"{pace:g} a second"


class PrefillControl:
    """Sends prefills.

    Args:
        client: Takes the commands.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.size: int | None = None
        """Tokens a chunk, None for as many as take about 100 ms."""

    def begin(self, prompt: Prefill, each: Callable[[Record], object] | None = None) -> None:
        """Begin a new tree with a prompt; `each` is called with the records of its prefill."""
        self._client.request(replace(prompt, step_size=self.size).renewed(), each=each)

    @property
    def waits(self) -> bool:
        """Whether a prefill was stopped on its way, and can be gone on with."""
        return self._client.timeline.phase is Phase.PREFILL and not self._under_way()

    def go_on(self) -> None:
        """Go on with the prefill that waits."""
        self._client.request(GoOnPrefill(self.size))

    def resize(self, by: int) -> str:
        """Double the chunks, or halve them with -1; a prefill under way goes on with them.

        Returns:
            The answer for the person.
        """
        size = self.size or _last(self._client.timeline)
        self.size = max(LEAST, min(MOST, size * 2 if by > 0 else size // 2))
        if under_way := self._under_way():
            under_way[0].cancel()
            self.go_on()
        return f"Chunks of {self.size:,} tokens"

    def _under_way(self) -> list[Request[Command]]:
        return self._client.under_way(Prefill, AddTurn, GoOnPrefill)


def _last(timeline: Timeline) -> int:
    """Tokens of the last chunk."""
    ends = [0, *(chunk.done for chunk in timeline.prompts.chunks[-2:])]
    return max(1, *(b - a for a, b in pairwise(ends[-2:]))) if len(ends) > 1 else 32
