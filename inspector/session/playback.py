"""A recording in the place of the engine: opened, played frame by frame, gone on with live. Without Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from engine.errors import TraceError
from engine.frozen import frozen
from engine.protocol import Record
from engine.settings import LoadSettings, for_model
from engine.trace import Entry, TraceReader
from inspector.display import visible
from inspector.recordings.recorder import Recorder
from inspector.session.client import Backend, SessionHost
from inspector.session.controller import Controller
from inspector.session.going_live import GoingLive, LoadedModel
from inspector.session.replay.player import Player
from inspector.session.replay.replay_backend import ReplayBackend
from inspector.session.replay.replay_transport import ReplayTransport

BOUND = "Only to look at here: who leads the session does that"


@frozen
class Opening:
    """A recording that is to be shown."""

    path: Path
    play: bool = False
    """From its start, rather than shown whole."""
    speed: float = 1.0
    follow: bool = False
    """Show what a program appends to it, and nothing else but this recording."""
    live: bool = False
    """Go on live as soon as it is read, and append to its file."""
    own: LoadSettings | None = None
    """How it was loaded while it was live, until a moment ago: the engine that had it is gone."""
    load: dict[str, Any] = field(default_factory=dict)
    """Fields of the recorded `LoadSettings` that are replaced when it goes on live."""


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
        emit: Callable[[Record], None],
        host: SessionHost,
    ) -> None:
        self._controller, self._live, self._emit, self._host = controller, live, emit, host
        self.recorder = recorder
        self._waiting: Opening | None = None
        """A recording that is shown once the commands of the session before it have ended."""
        self._shown: Opening | None = None
        self.player: Player | None = None
        """The recording on show, None while a session is lived through."""
        self.going: GoingLive | None = None
        """The way from it to a live session."""

    # ---- showing ----------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        """Show a recording, in the place of what is on show."""
        self._controller.client.leave()
        self._controller.opening, self._waiting = True, opening
        self.tick()

    def fall_back(self) -> bool:
        """The engine is gone: show what was recorded of the session in its place.

        Returns:
            Whether there was one to show.

        Raises:
            TraceError: It could not be written to a file.
        """
        if self.going is not None:
            self.going.forget_model()
        if self.player is not None or self._controller.timeline.prompts.opened is None:
            return False
        self.open(Opening(self.recorder.settled(), own=self._controller.setup.load))
        return True

    def tick(self) -> None:
        """Do what a frame has time for."""
        self.recorder.tick()
        if self._waiting is not None and not self._controller.client.outstanding:
            opening, self._waiting, self._controller.opening = self._waiting, None, False
            self._begin(opening)
        player, transport = self.player, self._controller.transport
        going = self.going is not None and self.going.under_way
        if player is None or going or not isinstance(transport, ReplayTransport):
            return
        if player.tick():
            self._controller.client.note_running()
            transport.look()
            self._host.redraw()
        if self._shown is not None and self._shown.live and player.settled and not player.file.stopped:
            self._resume(self._shown, player)

    def _begin(self, opening: Opening) -> None:
        controller, client = self._controller, self._controller.client
        there = self._loaded_model() if opening.own is None else None
        backend = ReplayBackend(controller, self._emit, self._host.say)
        try:
            player = Player(opening.path, backend.show, backend.begin, opening.play, follow=opening.follow)
        except TraceError as error:
            self._host.announce(visible(str(error)), "Not opened", "error")
            return
        backend.questions = player.file.questions
        self.recorder.rest()
        self._shown, self.player, client.backend = opening, player, backend
        backend.begin()
        self.going = GoingLive(
            controller, player, self._live, self._host.say, self._arrived, there, opening.own
        )
        bound = BOUND if opening.follow else ""
        controller.transport = ReplayTransport(client, player, self.going, bound)
        player.speed = opening.speed
        if opening.play:
            player.play()
        client.note_running()
        self._host.say("")

    def _loaded_model(self) -> LoadedModel | None:
        """The model that the live engine has, where it is in use."""
        facts = self._controller.timeline.facts
        if self.player is not None or facts is None:
            return None
        return self._controller.setup.load, facts

    # ---- going live -------------------------------------------------------------------------

    def _resume(self, opening: Opening, player: Player) -> None:
        """Go on with the session as soon as all of it is on show."""
        self._shown = replace(opening, live=False)
        if player.file.torn:
            self._host.announce(
                f"Its last line was incomplete: {player.file.torn:,} bytes were left out.",
                "The session was cut off",
                "information",
            )
        if self.going is not None and player.file.failure is None:
            self._host.say(self.going.begin(_given_over(opening.load, self._controller.setup.load)))

    def _arrived(self) -> None:
        """The session is live: it is kept from here on, with what was on show before."""
        player, opening = self.player, self._shown
        assert player is not None
        assert opening is not None
        own = (
            opening.path.parent == self.recorder.directory
            and player.at_end
            and not (player.file.failure or player.file.stopped)
        )
        self.recorder.go_on(player.file.entries[: player.position], opening.path if own else None)
        player.close()
        self.player = self.going = self._shown = None
        self._controller.transport = self._controller.live

    # ---- files ------------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """All of the session, or of the recording on show."""
        return self.recorder.entries if self.player is None else self.player.file.entries

    @property
    def path(self) -> Path | None:
        """The file of what is on show, None where there is none."""
        return self._shown.path if self._shown is not None else self.recorder.path


def _given_over(given: Mapping[str, Any], recorded: LoadSettings) -> LoadSettings:
    """The recorded settings with those that were given."""
    return replace(for_model(recorded, given.get("model", recorded.model)), **given)


def checked(path: Path) -> Path:
    """See that a file is a trace, before a screen is opened for it.

    Raises:
        TraceError: It isn't, or can't be read.
    """
    with TraceReader(path, torn_ok=True):
        return path
