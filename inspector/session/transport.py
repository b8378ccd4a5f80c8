"""Step, run, back, pace: the keys that control a live session, with its runs and prefills.

Every method that a key calls returns the answer for the user, or an empty string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len

from engine import protocol
from engine.breakpoints import SURE, Breakpoints
from engine.protocol import Command, MoveTo, Prefill, Run, Step, TakeStep
from inspector.display import truncate, visible
from inspector.keys import key_for
from inspector.scales import counted, percent, time_left
from inspector.session.client import EngineClient, Listener, Request
from inspector.state.session_tree import quoted_label
from inspector.state.timeline import Phase

if TYPE_CHECKING:
    from inspector.session.player import Caption, Telling

LEAST, MOST = 1, 2048
"""Bounds of the tokens per chunk of a prefill."""
PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, None)
"""Steps per second of a run; None for as fast as possible."""
LONGEST_TEXT = 24
"""Maximum width of a text or a pattern in the line on breakpoints, in cells."""
MAX_QUEUED_STEPS = 8
"""Maximum number of queued steps, so that a held space bar doesn't continue long after it is released."""
REFUSED = "Recorded: no model is loaded. {go_live} continues live from here"


class BreakpointState:
    """The breakpoints of runs, the last stop, and the number of skipped tokens."""

    def __init__(self) -> None:
        self.points = Breakpoints()
        self.hit: protocol.BreakpointHit | None = None
        """The stop of the last run, until the session leaves its node."""
        self.skipping = False
        """True if the current or last run skips sure tokens."""
        self.skipped = 0
        """Number of sure tokens that it took."""

    def begin(self, over_sure: bool) -> None:
        """Reset the state for a new run."""
        self.skipping, self.skipped, self.hit = over_sure, 0, None

    def receive(self, record: protocol.Record) -> None:
        """Receive a stop, or a record that leaves its node, after the timeline."""
        self.hit = record if isinstance(record, protocol.BreakpointHit) else None

    def count(self, record: protocol.Record) -> None:
        """Count a record of a run that skips sure tokens."""
        if isinstance(record, protocol.Step):
            self.skipped += record.prob >= SURE

    def stop_sentence(self, coming: protocol.Distribution | None) -> str:
        """A sentence on why the last run stopped, with the keys; printable.

        Args:
            coming: Distribution after the last token.

        Returns:
            The sentence; empty if no breakpoint stopped a run there.
        """
        if self.hit is None or coming is None or self.hit.node != coming.node:
            return ""
        held = "; ".join(map(visible, self.hit.conditions))
        if not self.skipping:
            return f"Stopped: {held}. {key_for('run')} continues, {key_for('breakpoints')} changes it"
        skipped = f"Skipped {counted(self.skipped, 'sure token')}"
        if len(self.hit.conditions) > 1 or not held.startswith("probability"):
            return f"{skipped}: {held}. {key_for('skip')} skips on, {key_for('step')} steps"
        picked = next(candidate for candidate in coming.candidates if candidate.id == coming.picked)
        skipped = skipped if self.skipped else "The next is not sure either"
        token = f"{quoted_label(picked)} has {percent(picked.prob)}"
        return f"{skipped}: {token}. {key_for('skip')} skips on, {key_for('step')} takes it"


class LiveTransport:
    """Steps, runs and prefills of an engine.

    Args:
        client: Takes the commands.
    """

    recorded: ClassVar[bool] = False
    """True for a recording, which has no engine."""
    bound = ""
    """The answer to commands if nothing can be computed here; empty if it can."""
    telling: Caption | None = None
    """The caption on show."""
    captioned = False
    """True to reserve space for captions."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.pace: float | None = None
        self.chunk: int | None = None
        """Tokens per chunk of a prefill; None for as many as take about 100 ms."""
        self.breakpoints = BreakpointState()
        self.keep: Callable[[Breakpoints], str] = lambda points: ""
        """Saves breakpoints for the next start; returns what went wrong, or an empty string."""
        self.changed: Callable[[], None] = lambda: None
        """Called when breakpoints have changed."""
        leaving = protocol.Moved, protocol.Resampled, protocol.PromptOpened
        client.listen(self.breakpoints.receive, protocol.BreakpointHit, *leaving)

    @property
    def running(self) -> bool:
        """True if a run is open."""
        return bool(self._client.of(Run))

    @property
    def ready(self) -> frozenset[str]:
        """The directions, `on` or `back`, open to keys without a distribution on show: `on` if a prefill waits."""
        return frozenset({"on"} if self.prefill_waits else ())

    @property
    def whereabouts(self) -> str:
        """Text for the right end of the status line: the pace of runs, unless it is full."""
        slowed = self.pace is not None and not self._client.timeline.running
        return f"{self.pace:g} steps/s" if slowed else ""

    @property
    def _pace_text(self) -> str:
        return "full pace" if self.pace is None else f"{self.pace:g} steps a second"

    # ---- keys -------------------------------------------------------------------------------

    def step(self, telling: Telling = ()) -> str:
        """Pause a run, continue a prefill, walk forward at an older token, or take a step at the last token."""
        timeline = self._client.timeline
        if timeline.running:
            self._client.pause()
        elif timeline.prompts.reading and self.prefill_waits:
            self._continue_prefill()
        elif not timeline.following:
            timeline.walk(1)
        elif len(self._client.of(TakeStep)) < MAX_QUEUED_STEPS:
            self._client.request(TakeStep())
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Begin a run at the last token, which with `over_sure` skips sure tokens, or pause the one under way."""
        timeline = self._client.timeline
        if timeline.running:
            self._client.pause()
        elif self.prefill_waits:
            self._continue_prefill()
        else:
            timeline.select(None)
            self.breakpoints.begin(over_sure)
            self._run(continues=False)
            finished = timeline.finished.get(timeline.tip)
            if finished is not None and finished.reason == "eos":
                return f"This run began behind {visible(finished.detail)}, which ended the text"
        return ""

    def back(self, telling: Telling = ()) -> str:
        """Take back the last token of the completion."""
        timeline, outstanding = self._client.timeline, self._client.outstanding
        last = outstanding[-1] if outstanding else None
        # start from where outstanding moves lead, so that quick presses add up
        node = last.node if isinstance(last, MoveTo) else timeline.tip
        if not isinstance(timeline.tree.nodes.get(node), Step):
            return f"Nothing to take back: the completion is empty. Press {key_for('prompt')} to change the prompt."
        timeline.select(None)
        self._client.do(MoveTo(timeline.tree.parent[node]))
        return ""

    def change_pace(self, by: int) -> str:
        """Change the pace of runs by some places in `PACES`; during a prefill, double or (with -1) halve its chunks.

        The run or prefill continues with the new value.
        """
        if self._client.timeline.phase is Phase.PREFILL:
            ends = [0, *(chunk.done for chunk in self._client.timeline.prompts.chunks)]
            size = self.chunk or (max(1, ends[-1] - ends[-2]) if len(ends) > 1 else 32)
            self.chunk = max(LEAST, min(MOST, size * 2 if by > 0 else size // 2))
            if under_way := self._prefills():
                under_way[0].cancel()
                self._continue_prefill()
            return f"Chunks of {self.chunk:,} tokens"
        self.pace = PACES[max(0, min(len(PACES) - 1, PACES.index(self.pace) + by))]
        self.go_on()
        return "" if self._client.timeline.running else f"Pace: {self._pace_text}"

    def stop(self) -> bool:
        """Cancel what escape stops."""
        return self._client.stop()

    def to_end(self) -> str:
        """Do nothing: a live session always shows new tokens."""
        return ""

    # ---- words ------------------------------------------------------------------------------

    def describe(self) -> str:
        """A sentence on the run or prefill under way, with its keys; printable, empty if there is none."""
        timeline, size = self._client.timeline, self.chunk
        keys = f"{key_for('faster')} or {key_for('slower')} for"
        if timeline.phase is Phase.RUNNING:
            doing = "Skipping sure tokens" if self.breakpoints.skipping else "Running"
            return f"{doing} at {self._pace_text}. Press {key_for('step')} to pause, {keys} the pace"
        if timeline.phase is not Phase.PREFILL:
            return ""
        where = f"{timeline.held:,} of {len(timeline.items):,} tokens"
        if self.prefill_waits:
            other = f"{key_for('prompt')} for another prompt"
            return f"Prefill stopped at {where}. Press {key_for('step')} to continue, {other}"
        chunks = f" in chunks of {size:,}" if size else ""
        left = time_left(timeline.prompts.left_ms)
        return f"Prefill {where}{chunks}{left}. Press esc to stop it, {keys} larger or smaller chunks"

    def caption(self, node: int) -> str:
        """Caption of a token, not yet printable: only a picture of a recording has any, among its marks."""
        timeline = self._client.timeline
        mark = timeline.tree.marks.of.get(node) if timeline.recorded else None
        return mark.caption if mark is not None else ""

    # ---- runs -------------------------------------------------------------------------------

    def go_on(self, counted: bool = True) -> None:
        """Restart a run under way, if there is one, so that changes apply to it.

        Args:
            counted: Whether its breakpoints keep their counts.
        """
        if self._client.timeline.running:
            self._client.cancel(*self._client.of(Run))
            self._run(counted)

    def break_at(self, points: Breakpoints) -> str:
        """Set breakpoints; a run under way continues with them.

        Returns:
            What went wrong with saving them for the next start, to append to a sentence without a full stop.
        """
        self.breakpoints.points = points
        self.go_on(counted=False)
        self.changed()
        return self.keep(points)

    def _run(self, continues: bool) -> None:
        state = self.breakpoints
        until = state.points if state.points.active else None
        run = Run(self.pace, until, state.skipping, continues)
        self._client.request(run, each=state.count if state.skipping else None)

    # ---- prefills ---------------------------------------------------------------------------

    def prefill(self, prompt: Prefill, each: Listener | None = None) -> None:
        """Begin a new tree with a prompt; `each` is called with the records of its prefill."""
        self._client.request(replace(prompt, step_size=self.chunk), each=each)

    @property
    def prefill_waits(self) -> bool:
        """True if a prefill was stopped before its end, and can be continued."""
        return self._client.timeline.phase is Phase.PREFILL and not self._prefills()

    def _continue_prefill(self) -> None:
        self._client.request(protocol.GoOnPrefill(self.chunk))

    def _prefills(self) -> list[Request[Command]]:
        return self._client.under_way(Prefill, protocol.AddTurn, protocol.GoOnPrefill)


# ---- breakpoints in words -----------------------------------------------------------------------


def conditions(points: Breakpoints) -> str:
    """The conditions of the breakpoints on one line; printable, empty for none."""
    shown = (truncate(visible(condition), LONGEST_TEXT) for condition in points.conditions)
    return (" and " if points.all_of else ", ").join(shown)


def marker(points: Breakpoints, room: int) -> str:
    """A marker for active breakpoints, at most `room` cells wide; printable, empty for none."""
    count = len(points.active)
    if not count:
        return ""
    versions = (f"● stops at {conditions(points)}", f"● {counted(count, 'breakpoint')}", f"● {count}")
    return next((text for text in versions if cell_len(text) <= room), "●")
