"""Step, run, back, pace: the keys that move on, for a live engine and for a recording.

Every method that a key calls returns the answer for the user, empty for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from engine.protocol import MoveTo, Run, Step, TakeStep
from engine.settings import LoadSettings
from inspector.display import visible
from inspector.keys import key_for, with_keys
from inspector.scales import time_left
from inspector.session.client import EngineClient
from inspector.session.setup import Runs, Setup, pace_text
from inspector.session.stops import Caption, Telling
from inspector.state.timeline import STATES, Phase

if TYPE_CHECKING:
    from inspector.session.going_live import GoingLive
    from inspector.session.player import Player

MAX_QUEUED_STEPS = 8
"""A held space bar queues no more than this, so that it doesn't step on long after it is let go."""
LIVE = "{go_live} continues live"
_SHOWN_BY: dict[type, str] = {of: shown for state in STATES for of, (_, shown) in state.STOPS.items()}
"""Words for what the main screen doesn't show of an entry, with the key that does."""
REFUSED = "Recorded: no model is loaded. {go_live} continues live from here"


class LiveTransport:
    """Steps and runs of an engine.

    Args:
        client: Takes the commands.
        runs: Begin and continue runs and prefills.
        setup: Opens models.
    """

    recorded: ClassVar[bool] = False
    """True if there is no engine that could compute anything."""
    bound = ""
    """Why nothing but what is on show can be had here, as an answer; empty if all can."""
    telling: Caption | None = None
    """The caption that speaks now."""
    captioned = False
    """True if room for captions is kept."""

    def __init__(self, client: EngineClient, runs: Runs, setup: Setup) -> None:
        self._client, self._runs, self._setup = client, runs, setup

    @property
    def running(self) -> bool:
        """True if a run is outstanding."""
        return bool(self._client.of(Run))

    @property
    def ready(self) -> frozenset[str]:
        """The ways of `on` and `back` that are open though no distribution is on show: on, if a prefill waits."""
        return frozenset({"on"} if self._runs.prefill_waits else ())

    @property
    def whereabouts(self) -> str:
        """A few words for the right end of the status line: the pace of runs, unless it is the full one."""
        slowed = self._runs.pace is not None and not self._client.timeline.running
        return f"pace {pace_text(self._runs.pace)}" if slowed else ""

    def step(self, telling: Telling = ()) -> str:
        """Pause a run, continue with a prefill, walk forward at an older token, or take one step at the tip."""
        timeline = self._client.timeline
        if timeline.running:
            self._client.pause()
        elif timeline.prompts.reading and self._runs.prefill_waits:
            self._runs.continue_prefill()
        elif not timeline.following:
            timeline.walk(1)
        elif len(self._client.of(TakeStep)) < MAX_QUEUED_STEPS:
            self._client.request(TakeStep())
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Begin a run at the tip, or pause the one under way."""
        timeline = self._client.timeline
        if timeline.running:
            self._client.pause()
        elif self._runs.prefill_waits:
            self._runs.continue_prefill()
        else:
            timeline.select(None)
            self._runs.begin(over_sure)
            finished = timeline.finished.get(timeline.tip)
            if finished is not None and finished.reason == "eos":
                return f"The text has ended with {visible(finished.detail)}: the run continues after its end"
        return ""

    def back(self, telling: Telling = ()) -> str:
        """Move the cache to before the last token of the completion."""
        timeline, outstanding = self._client.timeline, self._client.outstanding
        last = outstanding[-1] if outstanding else None
        # where it will be when what is outstanding is done, so that quick presses add up
        node = last.node if isinstance(last, MoveTo) else timeline.tip
        if not isinstance(timeline.tree.nodes.get(node), Step):
            return f"Nothing to take back: the completion is empty. Press {key_for('prompt')} to change the prompt."
        timeline.select(None)
        self._client.do(MoveTo(timeline.tree.parent[node]))
        return ""

    def change_pace(self, by: int) -> str:
        """Change the pace of runs; in a prefill, the size of its chunks."""
        if self._client.timeline.phase is Phase.PREFILL:
            return self._runs.resize(by)
        self._runs.change_pace(by)
        return "" if self._client.timeline.running else f"Runs go at {pace_text(self._runs.pace)}"

    def stop(self) -> bool:
        """Cancel what escape stops."""
        return self._client.stop()

    def to_end(self) -> str:
        """Show what comes: it is shown always."""
        return ""

    def open_model(self, load: LoadSettings) -> str:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self._setup.open(load)
        return ""

    def describe(self) -> str:
        """The run or the prefill under way, and the keys that matter for it; printable, empty if panels say it."""
        timeline, size = self._client.timeline, self._runs.chunk
        keys = f"{key_for('faster')} or {key_for('slower')} for"
        if timeline.phase is Phase.RUNNING:
            doing = "Skipping sure tokens" if self._runs.breakpoints.skipping else "Running"
            pace = pace_text(self._runs.pace)
            return f"{doing} at {pace}. Press {key_for('step')} to pause, {keys} the pace"
        if timeline.phase is not Phase.PREFILL:
            return ""
        where = f"{timeline.held:,} of {len(timeline.items):,} tokens"
        if self._runs.prefill_waits:
            other = f"{key_for('prompt')} for another prompt"
            return f"Prefill stopped at {where}. Press {key_for('step')} to continue, {other}"
        chunks = f" in chunks of {size:,}" if size else ""
        left = time_left(timeline.prompts.left_ms)
        return f"Prefill {where}{chunks}{left}. Press esc to stop it, {keys} larger or smaller chunks"

    def caption(self, node: int) -> str:
        """Caption of a token, not printable yet: only the picture of a recording has any, among its marks."""
        timeline = self._client.timeline
        mark = timeline.tree.marks.of.get(node) if timeline.recorded else None
        return mark.caption if mark is not None else ""


class ReplayTransport:
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
            return ""  # on the way to a live session it stays where it is
        if telling or timeline.following or not timeline.items or self._at_caption:
            self._player.step(telling)
        else:
            timeline.walk(1)
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Play at its own pace, at its end from the start, or pause."""
        return self._do(self._player.pause if self._player.playing else self._play)

    def _play(self) -> None:
        if not self._at_caption:
            self._client.timeline.select(None)
        self._player.play()

    def back(self, telling: Telling = ()) -> str:
        """Show what was there a change of the picture before."""

        def back() -> None:
            self._client.timeline.select(None)
            self._player.back(telling)

        return self._do(back)

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
        for slot, item in enumerate(timeline.items if caption is not None else ()):
            if caption is not None and item.node == caption.node:
                timeline.select(slot)
                break

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
        if not self._player.playing:
            return self._client.stop()
        self._do(self._player.pause)
        return True

    def to_end(self) -> str:
        """Show what comes again, where the recording is one that grows."""
        if self._player.file.following:
            self._do(self._player.end)
        return ""

    def open_model(self, load: LoadSettings) -> str:
        """Go on live with a model."""
        return self.bound or self.going.begin(load)

    def describe(self) -> str:
        """Progress of the recording, and the keys that matter now; printable, empty at an older token."""
        timeline = self._client.timeline
        if not (timeline.following or timeline.running or not timeline.items or self._at_caption):
            return ""
        player = self._player
        if player.file.failure is not None:
            return f"Cut off: {visible(str(player.file.failure))}"
        shown, there = player.stop
        where = f"{shown:,} of {there:,}"
        at_end, following = player.position == len(player.file.entries), player.file.following
        live = "" if self.bound else f", {with_keys(LIVE)}"
        step, run, back = key_for("step"), key_for("run"), f"{key_for('take_back')} goes back"
        if player.file.reading:
            read = f"{player.file.reader.progress:.0%}"
            return f"Reading the recording: {read}. Esc stops it; you can look at what was read"
        if player.file.stopped and at_end:
            return f"The rest was not read. You can look at the part before: ← → walk{live}"
        if not player.settled and not player.playing:
            return f"Going through the recording: {where}"
        if player.playing:
            keys = f"{step.capitalize()} pauses, {key_for('faster')} and {key_for('slower')} change the speed"
            return f"Playing {speed_text(player.speed)}, {where}. {keys}"
        if following and not player.behind:
            if player.file.left:
                return f"The session ended: its program has left. ← → walk, {back}, {key_for('quit')} quits"
            return f"Following a session as it goes. ← → walk, {back}, end follows again"
        if at_end and not following:
            return f"Recorded, at its end. {run} plays it, ← → walk, {back}{live}"
        if elsewhere := _SHOWN_BY.get(type(player.last)):
            return f"Recorded, {where}. {with_keys(elsewhere)}, {step} continues"
        keys = f"{step.capitalize()} shows the next step, {run} plays, {back}"
        if following:
            many = f"{player.behind:,} changes" if player.behind > 1 else "One change"
            return f"{many} behind. {keys}, end follows again"
        return f"Recorded, {where}. {keys}{live}"

    def caption(self, node: int) -> str:
        """The author's caption of a token of the tree on show."""
        return self._player.caption(node)

    @property
    def captioned(self) -> bool:
        """True if the recording has captions at all."""
        return bool(self._player.file.captions.at)


Transport = LiveTransport | ReplayTransport


def speed_text(speed: float) -> str:
    """A speed in words."""
    return "as fast as possible" if math.isinf(speed) else f"×{speed:g}"
