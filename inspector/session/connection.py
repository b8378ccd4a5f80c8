"""An engine elsewhere as the screen knows it: whether it is there, and what becomes of a session that lost it."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.errors import TraceError
from engine.protocol import Command, Configure, Failure, Load, Prefill
from engine.remote.client import Connection, RemoteEngine
from inspector.display import visible
from inspector.keys import key_for
from inspector.session.client import EngineClient, RecordInbox, SessionHost
from inspector.session.setup import Setup


class EngineConnection:
    """The connection to an engine elsewhere.

    Args:
        engine: Its client; from now on its records go to `inbox`.
        inbox: Takes in the records.
        client: Has the session on show.
        setup: Knows what it was given.
        fall_back: Shows what was recorded of the session, once the engine is gone; returns whether anything was.
        host: Where it is shown.
        soon: Has the screen's thread call something as soon as it can.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        inbox: RecordInbox,
        client: EngineClient,
        setup: Setup,
        fall_back: Callable[[], bool],
        host: SessionHost,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._engine, self._inbox, self._client, self._setup = engine, inbox, client, setup
        self._fall_back, self._host, self._soon = fall_back, host, soon
        self._lost_at: float | None = None
        """When the connection was lost that is being tried again."""
        self._shown = 0
        """Seconds to the next attempt, as they are on show."""
        engine.emit, engine.adopt, inbox.adopt = inbox.emit, inbox.emit, self._adopt
        engine.on_change = lambda connection: self._soon(lambda: self._changed(connection))

    @property
    def now(self) -> Connection:
        """How it stands."""
        return self._engine.connection

    @property
    def far(self) -> bool:
        """True if the engine has other files than this process."""
        return self._engine.far

    @property
    def joins(self) -> bool:
        """True if the session that the engine has is to be shown, rather than a new one."""
        return self._engine.joins and self._engine.has_session

    @property
    def away(self) -> str:
        """A message while the engine is away; printable, empty where it isn't."""
        now = self.now
        if now.stage != "away":
            return ""
        left = max(0, round(now.next_at - time.monotonic()))
        return f"trying again in {left} s" if left else "trying again"

    @property
    def words(self) -> str:
        """A message on the attempts to reconnect, and the keys for it; printable, empty where it isn't."""
        if not (away := self.away):
            return ""
        return f"The engine is away: {away}. {key_for('connection')} tries now, or gives up"

    # ---- a person ---------------------------------------------------------------------------

    def retry(self) -> None:
        """Try to connect now."""
        self._engine.retry()

    def give_up(self) -> None:
        """Try no more; the session goes on as a replay."""
        self._engine.give_up()

    # ---- what happens -----------------------------------------------------------------------

    def tick(self) -> None:
        """Once a frame: show the seconds to the next attempt."""
        now = self.now
        seconds = round(now.next_at - time.monotonic()) if now.stage == "away" else 0
        if seconds != self._shown:
            self._shown = seconds
            self._host.connection_changed()

    def _changed(self, connection: Connection) -> None:
        where, why = visible(connection.where), visible(connection.why)
        match connection.stage:
            case "away" if self._lost_at is None:
                self._lost_at = connection.since
                lost = f"{where}: {why.rstrip('.')}."
                text = f"{lost} The screen reconnects by itself; runs there pause. {key_for('connection')} gives up."
                self._host.announce(text, "The engine is away", "warning")
            case "connected" if self._lost_at is not None:
                seconds, self._lost_at = connection.since - self._lost_at, None
                text = f"After {seconds:,.0f} s; the session is as it was, and what ran is paused."
                self._host.announce(text, "The engine is back", "information")
            case "gone":
                self._lost_at = None
                self._lose(connection.why)
        self._host.connection_changed()

    def _lose(self, why: str) -> None:
        """Go on without the engine: with a replay of the session, or with nothing where there was none."""
        self._inbox.drain()  # what it sent last belongs to the session
        said = visible(why)
        try:
            if self._fall_back():
                said += f" The session is shown as a replay: {key_for('go_live')} continues live with a new engine."
            elif self._client.timeline.facts is not None and not self._client.timeline.recorded:
                self._inbox.emit(Failure(Load.kind, why, f"Press {key_for('open')} to load a model again."))
                return
        except TraceError as error:
            said += f" {visible(str(error))}"
        self._host.announce(said, "The engine is lost", "error")

    def _adopt(self, command: Command) -> None:
        """Know what another client asked for: no record holds it."""
        setup = self._setup
        match command:
            case Load():
                setup.load = command.settings
            case Configure():
                setup.use(command.settings)
            case Prefill():
                setup.prompt = command
