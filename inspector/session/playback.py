"""A recording instead of the engine: opened, and continued live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from engine.errors import RecordingError
from engine.protocol import Received
from engine.recording import Entry, RecordingReader
from engine.settings import LoadSettings, for_model
from inspector.display import visible
from inspector.recordings.recorder import Recorder
from inspector.session.client import Backend, SessionHost
from inspector.session.controller import Controller
from inspector.session.transport import ReplayTransport

if TYPE_CHECKING:
    from inspector.session.going_live import GoingLive
    from inspector.session.player import Player

BOUND = "You only watch here: whoever leads the session can do that"


class Opening(Struct, frozen=True):
    """A recording that is to be shown."""

    path: Path
    play: bool = False
    """True to play it from its start, rather than show it whole."""
    speed: float = 1.0
    follow: bool = False
    """Show what a program appends to it, and nothing else but this recording."""
    live: bool = False
    """Go on live as soon as it is read, and append to its file."""
    own: LoadSettings | None = None
    """Settings that it was loaded with while it was live, until a moment ago: the engine that had it is gone."""
    load: dict[str, Any] = field(default_factory=dict)
    """Fields of the recorded `LoadSettings` that are replaced when it continues live."""


class Playback:
    """Recordings of one application.

    Args:
        controller: Shows them.
        recorder: Keeps the session that is lived through.
        live: Gives the live engine, started.
        emit: Takes in a record with the next frame.
        host: Where they are shown.
    """

    def __init__(
        self,
        controller: Controller,
        recorder: Recorder,
        live: Callable[[], Backend],
        emit: Callable[[Received], None],
        host: SessionHost,
    ) -> None:
        self._controller, self._live, self._emit, self._host = controller, live, emit, host
        self.recorder = recorder
        self.waiting: Opening | None = None
        """A recording that is shown once the commands of the session before it have ended."""
        self._shown: Opening | None = None
        self.player: Player | None = None
        """The recording on show, None while a session is lived through."""
        self.going: GoingLive | None = None
        """The way from it to a live session."""

    # ---- showing ----------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        """Show a recording instead of what is on show."""
        self._controller.client.leave()
        self._controller.opening, self.waiting = True, opening
        self.tick()

    def fall_back(self) -> bool:
        """The engine is gone: show what was recorded of the session in its place.

        Returns:
            Whether there was one to show.

        Raises:
            RecordingError: It could not be written to a file.
        """
        if self.going is not None:
            self.going.forget_model()
        if self.player is not None or self._controller.timeline.prompts.opened is None:
            return False
        self.open(Opening(self.recorder.settled(), own=self._controller.setup.load))
        return True

    def tick(self) -> None:
        """Do what a frame has time for."""
        if self.recorder.resumed is not None:
            self.recorder.adopt()
        if self.waiting is not None and not self._controller.client.outstanding:
            opening, self.waiting, self._controller.opening = self.waiting, None, False
            self._begin(opening)
        player, transport = self.player, self._controller.transport
        going = self._controller.client.timeline.returning
        if player is None or going or not isinstance(transport, ReplayTransport):
            return
        if player.tick():
            self._controller.client.note_running()
            transport.look()
            self._host.redraw()
        if self._shown is not None and self._shown.live and player.settled and not player.file.stopped:
            self._resume(self._shown, player)

    def _begin(self, opening: Opening) -> None:
        from inspector.session.going_live import GoingLive  # for a session that is a recording
        from inspector.session.player import Player
        from inspector.session.replay_backend import ReplayBackend

        controller, client = self._controller, self._controller.client
        facts, there = client.timeline.facts, None
        if opening.own is None and self.player is None and facts is not None:
            there = controller.setup.load, facts  # the live engine has this model, and it is in use
        backend = ReplayBackend(controller, self._emit, self._host.say)

        def from_the_start() -> None:
            """Show the recording again, as a lesson's card goes back in it: it is not continued from elsewhere."""
            if self.going is not None:
                self.going.leave()
            backend.begin()

        try:
            player = Player(opening.path, backend.show, from_the_start, opening.play, follow=opening.follow)
        except RecordingError as error:
            self._host.announce(visible(str(error)), "Not opened", "error")
            return
        backend.questions = player.file.questions
        self.recorder.rest()
        self._shown, self.player, client.backend = opening, player, backend
        backend.begin()
        self.going = GoingLive(
            client, controller.setup, player, self._live, self._host.say, self._arrived, there, opening.own
        )
        bound = BOUND if opening.follow else ""
        controller.transport = ReplayTransport(client, player, self.going, bound)
        player.speed = opening.speed
        if opening.play:
            player.play()
        client.note_running()
        self._host.say("")

    # ---- going live -------------------------------------------------------------------------

    def _resume(self, opening: Opening, player: Player) -> None:
        """Go on with the session as soon as all of it is on show."""
        self._shown = replace(opening, live=False)
        if player.file.reader.torn:
            lost = f"Its last line was incomplete: {player.file.reader.torn:,} bytes were left out."
            self._host.announce(lost, "The session was cut off", "information")
        if self.going is not None and player.file.failure is None:
            recorded, given = self._controller.setup.load, opening.load
            load = replace(for_model(recorded, given.get("model", recorded.model)), **given)
            self._host.say(self.going.begin(load))

    def _arrived(self) -> None:
        """The session is live: it is kept from here on, with what was on show before."""
        player, opening = self.player, self._shown
        assert player is not None
        assert opening is not None
        whole = player.at_end and not (player.file.failure or player.file.stopped)
        own = whole and opening.path.parent == self.recorder.directory
        self.recorder.go_on(player.file.entries[: player.position], opening.path if own else None)
        player.file.close()
        self.player = self.going = self._shown = None
        self._controller.transport = self._controller.live
        self._controller.client.note_running()

    # ---- files ------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """All of the session, or of the recording on show."""
        return self.recorder.entries if self.player is None else self.player.file.entries

    @property
    def path(self) -> Path | None:
        """The file of what is on show; None if there is none."""
        return self._shown.path if self._shown is not None else self.recorder.path


def checked(path: Path) -> Path:
    """See that a file is a trace, before a screen is opened for it.

    Raises:
        RecordingError: It isn't, or can't be read.
    """
    with RecordingReader(path, torn_ok=True):
        return path
