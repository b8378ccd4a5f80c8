"""Step, run, back and pace of a recording: what came next, play, what was there before, and the speed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from engine.settings import LoadSettings
from inspector.display import visible
from inspector.keys import key_for, with_keys
from inspector.session.client import EngineClient
from inspector.session.going_live import GoingLive
from inspector.session.replay.player import Player
from inspector.session.replay.stops import Caption, Telling
from inspector.session.transport import Transport
from inspector.state.capabilities import STATES

LIVE = "{go_live} goes on live"
_SHOWN_BY: dict[type, str] = {record: shown for state in STATES for record, shown in state.SHOWN_BY.items()}
"""What the main screen doesn't show of an entry, and the key that does."""


class ReplayTransport(Transport):
    """Plays one recording, until it is gone on with live.

    Args:
        client: Shows it.
        player: Reads and plays it.
        going: The way to a live session.
        bound: Why there is none, if so.
    """

    recorded: ClassVar[bool] = True

    def __init__(self, client: EngineClient, player: Player, going: GoingLive, bound: str = "") -> None:
        self._client, self._player, self.going, self.bound = client, player, going, bound
        self._selected: Caption | None = None
        """The caption whose token was selected."""

    @property
    def running(self) -> bool:
        """Whether it plays."""
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
        if telling or timeline.following or not timeline.items or self._at_caption:
            return self._do(lambda: self._player.step(telling))
        return self._do(lambda: timeline.walk(1))

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
        """Whether the selected token is the one that a caption speaks of now."""
        told, selected = self._player.telling, self._client.timeline.selected
        return told is not None and selected is not None and selected.node == told.node

    def look(self) -> None:
        """Select the token that a caption speaks of; follow the tip again when it speaks no more."""
        told, before, timeline = self._player.telling, self._selected, self._client.timeline
        if told is before:
            return
        self._selected, selected = told, timeline.selected
        if before is not None and selected is not None and selected.node == before.node:
            timeline.select(None)
        slots = (
            slot for slot, item in enumerate(timeline.items) if told is not None and item.node == told.node
        )
        if (slot := next(slots, None)) is not None:
            timeline.select(slot)

    def change_pace(self, by: int) -> str:
        """Play faster or slower."""
        self._do(lambda: self._player.change_speed(by))
        return "" if self._player.playing else f"Plays {speed_text(self._player.speed)}"

    def _do(self, what: Callable[[], None]) -> str:
        """Do something with the recording, unless it is about to be gone on with live."""
        if not self.going.under_way:
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
        if player.file.reading:
            return f"Reading the recording: {player.file.progress:.0%}. Esc stops it; what is there can be looked at"
        if player.file.stopped and player.at_end:
            return f"The rest was left unread. What is there can be looked at, ← → walk{self._live}"
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
        if player.at_end and not player.file.following:
            return (
                f"Recorded, at its end. {key_for('run')} plays it, ← → walk, {key_for('take_back')} "
                f"goes back{self._live}"
            )
        if (elsewhere := _SHOWN_BY.get(type(player.last))) is not None:
            return f"Recorded, {shown:,} of {there:,}. {with_keys(elsewhere)}, {key_for('step')} goes on"
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
        """Whether the recording has captions at all."""
        return self._player.file.captions.any


def speed_text(speed: float) -> str:
    """A speed as a person reads it."""
    return "as fast as possible" if math.isinf(speed) else f"×{speed:g}"
