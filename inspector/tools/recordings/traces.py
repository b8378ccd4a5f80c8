"""What the application does with recordings: shows them, goes on with them, saves and lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import TraceError
from engine.trace import Entry, TraceReader
from inspector.display import visible
from inspector.recordings.recorder import Recorder
from inspector.session.controller import Controller
from inspector.session.going_live import GoingLive
from inspector.session.player import Player
from inspector.session.replay_backend import Engine, ReplayBackend
from inspector.tools.recordings.save_as import SaveAsDialog, Saved, told
from inspector.tools.recordings.sessions import SessionsDialog

if TYPE_CHECKING:
    from inspector.app import InspectorApp


@dataclass(frozen=True, slots=True)
class Opening:
    """A recording that is to be shown."""

    path: Path
    play: bool = False
    """From its start, rather than standing at its end."""
    speed: float = 1.0
    live: bool = False
    """Go on live as soon as it is read, and append to its file."""
    load: dict[str, Any] = field(default_factory=dict)
    """Fields of the recorded `LoadSettings` that are replaced when it goes on live."""


class Traces:
    """Recordings of one application.

    Args:
        app: Shows dialogs and notices.
        controller: Of its screen.
        recorded: Stands in the engine's place.
        recording: Keeps the session.
        make: Gives a live engine that was started.
        program: Name and version, as files tell what wrote them.
    """

    def __init__(
        self,
        app: InspectorApp,
        controller: Controller,
        recorded: ReplayBackend,
        recording: Recorder,
        make: Callable[[], Engine],
        program: str,
    ) -> None:
        self._app, self._controller, self._recorded = app, controller, recorded
        self._recording, self._make, self._program = recording, make, program
        self._waiting: Opening | None = None
        """A recording that is shown once the session before it stands still."""
        self._shown: Opening | None = None
        self.going: GoingLive | None = None

    # ---- showing ----------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        """Show a recording, in the place of what is on show."""
        self._controller.leave()
        self._waiting = opening
        self.tick()

    def tick(self) -> None:
        """Do what a frame has time for."""
        self._recording.tick()
        if self._waiting is not None and not self._controller.outstanding:
            opening, self._waiting = self._waiting, None
            self._begin(opening)
        replay = self._controller.replay
        if replay is None or (self.going is not None and self.going.under_way):
            return
        if replay.tick():
            self._controller.timeline.running = replay.playing
            self._app.main.show()
        if self._shown is not None and self._shown.live and replay.settled:
            self._resume(self._shown, replay)

    def _begin(self, opening: Opening) -> None:
        try:
            replay = Player(opening.path, self._recorded.show, self._recorded.begin, opening.play)
        except TraceError as error:
            self._app.notify(visible(str(error)), title="Not opened", severity="error", markup=False)
            return
        controller = self._controller
        there = (controller.load, controller.timeline.facts) if self._recorded.live is not None else None
        self._recording.rest()
        self._shown, controller.replay, self._recorded.live = opening, replay, None
        self._recorded.begin()
        self.going = GoingLive(controller, self._recorded, self._make, self._app.say, self._arrived, there)
        self._app.main.live = self.going
        replay.speed, replay.playing = opening.speed, opening.play
        self._app.main.answer()

    # ---- going live -------------------------------------------------------------------------

    def _resume(self, opening: Opening, replay: Player) -> None:
        """Go on with the session as soon as all of it is on show."""
        self._shown = replace(opening, live=False)
        if replay.torn:
            self._app.notify(
                f"Its last line was incomplete: {replay.torn:,} bytes were left out.",
                title="The session was cut off",
                markup=False,
            )
        if self.going is not None and replay.failure is None:
            load = replace(self._controller.load, **opening.load)
            self._app.main.answer(self.going.begin(load))

    def _arrived(self) -> None:
        """The session is live: it is kept from here on, with what was on show before."""
        replay, opening = self._controller.replay, self._shown
        assert replay is not None
        assert opening is not None
        own = opening.path.parent == self._recording.directory and replay.at_end and not replay.failure
        self._recording.go_on(replay.entries[: replay.position], opening.path if own else None)
        replay.close()
        self._controller.replay = self._app.main.live = self._shown = None

    # ---- files ------------------------------------------------------------------------------

    def entries(self) -> Sequence[Entry]:
        """All of the session, or of the recording on show."""
        replay = self._controller.replay
        return self._recording.entries if replay is None else replay.entries

    def save_as(self) -> None:
        """Ask for a name, and save under it."""
        if not self.entries():
            self._app.main.answer("There is nothing to save yet")
            return
        path = self._shown.path if self._shown is not None else self._recording.path
        name = path.name.partition(".json")[0] if path is not None else "session"
        dialog = SaveAsDialog(tuple(self.entries()), f"{name}.jsonl.gz", self._program)
        self._app.push_screen(dialog, self._saved)

    def _saved(self, saved: Saved | None) -> None:
        if saved is not None:
            self._app.main.answer(told(saved))

    def sessions(self) -> None:
        """List recent sessions, and show the one that is chosen."""
        self._app.push_screen(SessionsDialog(), self._chosen)

    def _chosen(self, path: Path | None) -> None:
        if path is None:
            return
        if path == self._recording.path:
            self._app.main.answer("That is the session which runs now")
        else:
            self.open(Opening(path))


def checked(path: Path) -> Path:
    """See that a file is a trace, before a screen is opened for it.

    Raises:
        TraceError: It isn't, or can't be read.
    """
    with TraceReader(path, torn_ok=True):
        return path
