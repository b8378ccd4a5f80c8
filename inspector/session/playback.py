"""The recording that an application shows, and continuing it live."""

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

if TYPE_CHECKING:
    from inspector.session.player import Player
    from inspector.session.replay import ReplayTransport


class Opening(Struct, frozen=True):
    """A recording to open, and the way to show it."""

    path: Path
    play: bool = False
    """True to play it from its start instead of showing all of it."""
    speed: float = 1.0
    follow: bool = False
    """True to keep showing what another program appends to it; it can't be continued live."""
    live: bool = False
    """True to continue live as soon as it is read, and append to its file."""
    own: LoadSettings | None = None
    """The settings that the model was loaded with, if the session was live here until now and its engine is gone."""
    place: int | None = None
    """Number of entries that are shown at first; None for what `play` says."""
    load: dict[str, Any] = field(default_factory=dict)
    """Fields to replace in the recorded `LoadSettings` when it continues live."""


class Playback:
    """Shows a recording instead of the session, until it is continued live.

    Args:
        controller: The session's controller.
        recorder: Records the live session.
        live: Returns the live engine, started.
        emit: Queues a record for the next frame.
        host: The screen.
    """

    def __init__(
        self,
        controller: Controller,
        recorder: Recorder,
        live: Callable[[], Backend],
        emit: Callable[[Received], None],
        host: SessionHost,
    ) -> None:
        self.controller, self.recorder, self.live, self.host = controller, recorder, live, host
        self._emit = emit
        self.waiting: Opening | None = None
        """A recording to show once the commands of the previous session have ended."""
        self.replay: ReplayTransport | None = None
        """The transport of the recording on show; None in a live session."""

    @property
    def player(self) -> Player | None:
        """The player of the recording on show; None in a live session."""
        return self.replay.player if self.replay is not None else None

    # ---- showing ----------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        """Show a recording instead of the current session or recording."""
        self.controller.client.leave()
        self.controller.opening, self.waiting = True, opening
        self.tick()

    def fall_back(self) -> bool:
        """Show the recording of the session, because its engine has died.

        Returns:
            Whether there was a session to show.

        Raises:
            RecordingError: The session could not be written to a file.
        """
        if self.replay is not None:
            self.replay.loaded = None
        if self.replay is not None or self.controller.timeline.prompts.opened is None:
            return False
        self.open(Opening(self.recorder.settled(), own=self.controller.setup.load))
        return True

    def tick(self) -> None:
        """Do the work of one frame: open, read, play or continue a recording."""
        client = self.controller.client
        if self.waiting is not None and not client.outstanding:
            opening, self.waiting, self.controller.opening = self.waiting, None, False
            self._begin(opening)
        if (replay := self.replay) is None or client.timeline.returning:
            return
        if replay.player.tick():
            client.note_running()
            replay.look()
            self.host.redraw()
        if replay.opening.live and replay.player.settled and not replay.player.file.stopped:
            self._continue(replay)

    def _begin(self, opening: Opening) -> None:
        from inspector.session.player import Player  # imported only if a recording is shown
        from inspector.session.replay import ReplayTransport
        from inspector.session.replay_backend import ReplayBackend

        client, loaded = self.controller.client, None
        facts = client.timeline.facts
        if opening.own is None and self.replay is None and facts is not None:
            loaded = self.controller.setup.load, facts  # the model in the live engine
        backend = ReplayBackend(self.controller, self._emit, self.host.say)

        def from_the_start() -> None:
            """Show the recording again from its start; a way to a live session that has begun is given up."""
            if self.replay is not None:
                self.replay.leave()
            backend.begin()

        try:
            player = Player(opening.path, backend.show, from_the_start, opening.play, follow=opening.follow)
        except RecordingError as error:
            self.host.announce(visible(str(error)), "Not opened", "error")
            return
        backend.questions = player.file.questions
        self.recorder.rest()
        client.backend = backend
        backend.begin()
        self.controller.transport = self.replay = ReplayTransport(self, player, opening, loaded)
        player.speed = opening.speed
        if opening.play:
            player.play()
        if opening.place is not None:
            player.go(opening.place)
        client.note_running()
        self.host.say("")

    # ---- going live -------------------------------------------------------------------------

    def _continue(self, replay: ReplayTransport) -> None:
        """Continue the session live."""
        file, given = replay.player.file, replay.opening.load
        replay.opening = replace(replay.opening, live=False)
        if file.reader.torn:
            lost = f"Its last line was incomplete: {file.reader.torn:,} bytes were left out."
            self.host.announce(lost, "The session was cut off", "information")
        if file.failure is None:
            recorded = self.controller.setup.load
            load = replace(for_model(recorded, given.get("model", recorded.model)), **given)
            self.host.say(replay.begin(load))

    def arrived(self, player: Player) -> None:
        """Switch to the live session; the recorder continues after the entries that the player shows."""
        file = player.file
        whole = player.at_end and not (file.failure or file.stopped)
        own = whole and file.path.parent == self.recorder.directory
        self.recorder.go_on(file.entries[: player.position], file.reader if own else None)
        file.close()
        self.replay = None
        self.controller.transport = self.controller.runs
        self.controller.client.note_running()

    # ---- files ------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries of the live session or of the recording on show."""
        return self.recorder.entries if self.player is None else self.player.file.entries

    @property
    def path(self) -> Path | None:
        """The file of the session or recording on show; None if there is none."""
        return self.player.file.path if self.player is not None else self.recorder.path


def checked(path: Path) -> Path:
    """Return a path after checking that it is a trace, before a screen opens for it.

    Raises:
        RecordingError: It isn't, or can't be read.
    """
    with RecordingReader(path, torn_ok=True):
        return path
