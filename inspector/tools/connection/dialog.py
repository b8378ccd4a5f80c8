"""The dialog with what is known of the connection to an engine elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button

from engine.remote.client import Connection
from inspector.keys import key_for
from inspector.session.connection import EngineConnection
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.dialog import Dialog
from inspector.widgets.fact_table import fact_rows
from inspector.widgets.key_hints import KeyHint

_STAGES = {
    "starting": "is being made",
    "connected": "holds{}",
    "away": "is lost{}, and tried again by itself. What ran is paused; the session stays with the engine",
    "gone": (
        f"is lost for good. The session is shown as a replay; {key_for('go_live')} goes on live "
        "with a fresh engine"
    ),
}


def facts(now: Connection, far: bool, at: float) -> Iterator[tuple[str, str]]:
    """What is known of a connection.

    Args:
        now: The connection.
        far: Whether the engine has other files.
        at: The time, on the clock of `time.monotonic`.
    """
    yield "engine", now.where
    yield "connection", _STAGES[now.stage].format(f" for {_duration(at - now.since)}")
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

    HEADING: ClassVar[str] = "Engine"
    LEAVE: ClassVar[str] = "Close"
    HINTS: ClassVar[tuple[KeyHint, ...]] = (("t", "try now", 6), ("x", "give up", 6))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "try_now", "Try now", tooltip="Try to connect now."),
        Binding("x", "give_up", "Give up", tooltip="Try no more; the session goes on as a replay."),
    ]

    def __init__(self, connection: EngineConnection) -> None:
        super().__init__()
        self._connection = connection

    def body(self) -> Iterable[Widget]:
        yield ConnectionFacts(self._connection)

    def extra(self) -> Iterable[Button]:
        away = self._connection.now.stage == "away"
        yield Button(Content("Try now  t"), id="try-now", compact=True, disabled=not away)
        yield Button(Content("Give up  x"), id="give-up", compact=True, disabled=not away)

    @on(Button.Pressed, "#try-now")
    def action_try_now(self) -> None:
        """Try to connect now."""
        self._connection.retry()
        self.dismiss(None)

    @on(Button.Pressed, "#give-up")
    def action_give_up(self) -> None:
        """Try no more, where the connection is lost."""
        if self._connection.now.stage == "away":
            self._connection.give_up()
        self.dismiss(None)
