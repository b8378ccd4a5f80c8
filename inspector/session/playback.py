"""A recording in the place of the engine: opened, played and stepped through, continued live. Without Textual."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from engine.errors import RecordingError
from engine.protocol import Received
from engine.recording import Entry, RecordingReader
from engine.settings import LoadSettings, for_model
from inspector.display import visible
from inspector.keys import key_for, with_keys
from inspector.recordings.recorder import Recorder
from inspector.session.client import Backend, EngineClient, SessionHost
from inspector.session.controller import Controller
from inspector.session.stops import Caption, Telling
from inspector.session.transport import Transport
from inspector.state.timeline import STATES

if TYPE_CHECKING:
    from inspector.session.going_live import GoingLive, LoadedModel
    from inspector.session.player import Player

LIVE = "{go_live} continues live"
BOUND = "You only watch here: whoever leads the session can do that"
_SHOWN_BY: dict[type, str] = {record: shown for state in STATES for record, shown in state.SHOWN_BY.items()}
"""What the main screen doesn't show of an entry, and the key that does."""


# ---- step, run and back -------------------------------------------------------------------------


class ReplayTransport(Transport):
    """Plays one recording, until it is continued live.

    Args:
        client: Shows it.
        player: Reads and plays it.
        going: The way to a live session.
        bound: Why there is none, if so.
    """

    recorded: ClassVar[bool] = True
    whereabouts = ""

    def __init__(self, client: EngineClient, player: Player, going: GoingLive, bound: str = "") -> None:
        self._client, self._player, self.going, self.bound = client, player, going, bound
        self._selected: Caption | None = None
        """The caption whose token was selected."""

    @property
    def running(self) -> bool:
        """True if it plays."""
        return self._player.playing

    @property
    def ready(self) -> frozenset[str]:
        """Both ways, though nothing is on show yet; none on the way to a live session."""
        return frozenset(() if self.going.under_way else ("on", "back"))

    def step(self, telling: Telling = ()) -> str:
        """Pause, show the next change of the picture, or walk forward at an older token."""
        timeline = self._client.timeline
        if self._player.playing:
            return self._do(self._player.pause)
        if timeline.returning:
            pass  # on the way to a live session it stays where it is
        elif telling or timeline.following or not timeline.items or self._at_caption:
            self._player.step(telling)
        else:
            timeline.walk(1)
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Play at its own pace, at its end from the start, or pause."""
        if self._player.playing:
            return self._do(self._player.pause)
        return self._do(self._play)

    def _play(self) -> None:
        if not self._at_caption:
            self._client.timeline.select(None)
        self._player.play()

    def back(self, telling: Telling = ()) -> str:
        """Show what was there a change of the picture before."""
        return self._do(lambda: self._back(telling))

    def _back(self, telling: Telling) -> None:
        self._client.timeline.select(None)
        self._player.back(telling)

    # ---- captions ---------------------------------------------------------------------------

    @property
    def telling(self) -> Caption | None:
        """The caption that speaks at the place on show."""
        return self._player.telling

    @property
    def _at_caption(self) -> bool:
        """True if the selected token is the one that a caption speaks of now."""
        caption, selected = self._player.telling, self._client.timeline.selected
        return caption is not None and selected is not None and selected.node == caption.node

    def look(self) -> None:
        """Select the token that a caption speaks of; follow the tip again when it speaks no more."""
        caption, before, timeline = self._player.telling, self._selected, self._client.timeline
        if caption is before:
            return
        self._selected, selected = caption, timeline.selected
        if before is not None and selected is not None and selected.node == before.node:
            timeline.select(None)
        slots = (
            slot
            for slot, item in enumerate(timeline.items)
            if caption is not None and item.node == caption.node
        )
        if (slot := next(slots, None)) is not None:
            timeline.select(slot)

    def change_pace(self, by: int) -> str:
        """Play faster or slower."""
        self._do(lambda: self._player.change_speed(by))
        return "" if self._player.playing else f"Plays {speed_text(self._player.speed)}"

    def _do(self, what: Callable[[], None]) -> str:
        """Do something with the recording, unless it is about to be continued live."""
        if not self._client.timeline.returning:
            what()
            self._client.note_running()
        return ""

    def stop(self) -> bool:
        """Pause, leave the rest of the file unread, or give up going live."""
        if self.going.under_way:
            return self.going.stop()
        if self._player.file.stop():
            return True
        playing = self._player.playing
        if playing:
            self._do(self._player.pause)
        return playing or self._client.stop()

    def to_end(self) -> str:
        """Show what comes again, where the recording is one that grows."""
        if self._player.file.following:
            self._do(self._player.end)
        return ""

    def open_model(self, load: LoadSettings) -> str:
        """Go on live with a model."""
        return self.bound or self.going.begin(load)

    def describe(self) -> str:
        """How far the recording is, and the keys that matter now; printable, empty at an older token."""
        timeline = self._client.timeline
        if not (timeline.following or timeline.running or not timeline.items or self._at_caption):
            return ""
        player = self._player
        if player.file.failure is not None:
            return f"Cut off: {visible(str(player.file.failure))}"
        shown, there = player.stop
        at_end = player.position == len(player.file.entries)
        if player.file.reading:
            return f"Reading the recording: {player.file.progress:.0%}. Esc stops it; you can look at what was read"
        if player.file.stopped and at_end:
            return f"The rest was not read. You can look at the part before: ← → walk{self._live}"
        if not player.settled and not player.playing:
            return f"Going through the recording: {shown:,} of {there:,}"
        if player.playing:
            speed = speed_text(player.speed)
            return (
                f"Playing {speed}, {shown:,} of {there:,}. {key_for('step').capitalize()} pauses, "
                f"{key_for('faster')} and {key_for('slower')} change the speed"
            )
        if player.file.following and not player.behind:
            return self._following
        if at_end and not player.file.following:
            return (
                f"Recorded, at its end. {key_for('run')} plays it, ← → walk, {key_for('take_back')} "
                f"goes back{self._live}"
            )
        if (elsewhere := _SHOWN_BY.get(type(player.last))) is not None:
            return f"Recorded, {shown:,} of {there:,}. {with_keys(elsewhere)}, {key_for('step')} continues"
        if player.file.following:
            many = f"{player.behind:,} changes" if player.behind > 1 else "One change"
            return (
                f"{many} behind. {key_for('step').capitalize()} shows the next step, {key_for('run')} "
                f"plays, {key_for('take_back')} goes back, end follows again"
            )
        return (
            f"Recorded, {shown:,} of {there:,}. {key_for('step').capitalize()} shows the next step, "
            f"{key_for('run')} plays, {key_for('take_back')} goes back{self._live}"
        )

    @property
    def _live(self) -> str:
        return "" if self.bound else f", {with_keys(LIVE)}"

    @property
    def _following(self) -> str:
        """What is seen of a session that goes on elsewhere."""
        if self._player.file.left:
            return (
                f"The session ended: its program has left. ← → walk, {key_for('take_back')} goes back, "
                f"{key_for('quit')} quits"
            )
        return (
            f"Following a session as it goes. ← → walk, {key_for('take_back')} goes back, end follows again"
        )

    def caption(self, node: int) -> str:
        """What the author wrote on a token of the tree on show."""
        return self._player.caption(node)

    @property
    def captioned(self) -> bool:
        """True if the recording has captions at all."""
        return bool(self._player.file.captions.at)


def speed_text(speed: float) -> str:
    """A speed as a person reads it."""
    return "as fast as possible" if math.isinf(speed) else f"×{speed:g}"


# ---- recordings opened and left -----------------------------------------------------------------


class Opening(Struct, frozen=True):
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
        """Show a recording, in the place of what is on show."""
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
        there = self._loaded_model() if opening.own is None else None
        backend = ReplayBackend(controller, self._emit, self._host.say)

        def from_the_start() -> None:
            """Show the recording anew, as a lesson's card goes back in it: it is not continued from elsewhere."""
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
        self._controller.client.note_running()

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
        RecordingError: It isn't, or can't be read.
    """
    with RecordingReader(path, torn_ok=True):
        return path
