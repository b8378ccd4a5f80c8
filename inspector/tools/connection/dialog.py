"""The dialog of the connection to an engine elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Button

from engine.remote.client import Connection
from inspector.keys import with_keys
from inspector.session.connection import EngineConnection
from inspector.tools.connection import CONNECTION_KEYS
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row, fact_rows
from inspector.widgets.dialog import Dialog

_STAGES = {
    "starting": "is being made",
    "connected": "holds{}",
    "away": "is lost{}; the screen reconnects by itself. What ran is paused; the session stays with the engine",
    "gone": "is lost for good. The session is shown as a replay; {go_live} continues live with a new engine",
}


def facts(now: Connection, far: bool, at: float) -> Iterator[tuple[str, str]]:
    """The facts of a connection, as names and values.

    Args:
        now: The connection.
        far: Whether the engine has other files.
        at: The time, on the clock of `time.monotonic`.
    """
    yield "engine", now.where
    yield "connection", with_keys(_STAGES[now.stage]).format(f" for {_duration(at - now.since)}")
    if now.why:
        yield "why", now.why
    if now.stage == "away":
        yield "attempts", f"{now.attempts:,}; the next one in {max(0.0, now.next_at - at):.0f} s"
    if now.round_trip is not None:
        yield "round trip", f"{now.round_trip * 1000:,.1f} ms"
    if far:
        yield "files", "paths of models, adapters and KV caches are those of the engine's machine"
        yield "recording", "the session is saved on this machine"


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes:,} min {left} s" if minutes else f"{left} s"


class ConnectionFacts(Canvas):
    """Names and values."""

    def __init__(self, connection: EngineConnection) -> None:
        super().__init__(id="connection-facts")
        self._connection = connection

    def on_mount(self) -> None:
        """Count the seconds."""
        self.set_interval(1.0, self.redraw)

    def draw(self, width: int, height: int) -> list[Row]:
        rows = facts(self._connection.now, self._connection.far, time.monotonic())
        return fact_rows(rows, width, self.ink("muted"), self.rich_style)[:height]


class ConnectionDialog(Dialog[None]):
    """Shows how it stands; a lost connection can be tried now, or given up.

    Args:
        connection: The connection.
    """

    ACTIONS: ClassVar[ActionTable] = CONNECTION_KEYS
    HEADING: ClassVar[str] = "Engine"
    LEAVE: ClassVar[str] = "Close"
    EXTRA = (("connection.try_now", "Try now", "try-now"), ("connection.give_up", "Give up", "give-up"))

    def __init__(self, connection: EngineConnection) -> None:
        super().__init__()
        self._connection = connection

    def body(self) -> Iterable[Widget]:
        yield ConnectionFacts(self._connection)

    def begin(self) -> None:
        """Two buttons are of use only while the connection is lost."""
        super().begin()
        for _, _, id in self.EXTRA:
            self.query_one(f"#{id}", Button).disabled = self._connection.now.stage != "away"

    def try_now(self) -> None:
        """Try to connect now."""
        self._connection.retry()
        self.dismiss(None)

    def give_up(self) -> None:
        """Try no more, where the connection is lost."""
        if self._connection.now.stage == "away":
            self._connection.give_up()
        self.dismiss(None)
