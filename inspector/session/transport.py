"""Step, run, back, pace: the keys that move on, the same for a live engine and for a recording.

Every method that a key calls returns the answer for the person, empty for none.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from engine.protocol import MoveTo, Run, Step, TakeStep
from engine.settings import LoadSettings
from inspector.display import visible
from inspector.keys import key_for
from inspector.scales import time_left
from inspector.session.client import EngineClient
from inspector.session.setup import PrefillControl, Runs, Setup, pace_text
from inspector.session.stops import Caption, Telling
from inspector.state.timeline import Phase

MAX_QUEUED_STEPS = 8
"""A held space bar queues no more than this, so that it doesn't step on long after it is let go."""

REFUSED = "Recorded: no model is loaded. {go_live} continues live from here"


class Transport(Protocol):
    """Moves on and back; there is one for a live engine and one for a recording."""

    recorded: ClassVar[bool]
    """True if there is no engine that could compute anything."""
    bound: str = ""
    """Why nothing but what is on show can be had here, as an answer; empty where all can."""

    @property
    def running(self) -> bool:
        """True if something goes on by itself."""

    @property
    def ready(self) -> frozenset[str]:
        """Of `on` and `back` the ways that are open though no distribution is on show."""

    @property
    def whereabouts(self) -> str:
        """A few words for the right end of the status line; empty for none."""

    def step(self, telling: Telling = ()) -> str:
        """Pause, walk forward at an older token, or take the next step.

        Args:
            telling: Records which change what is looked at: in a recording a step ends at one of these, too.
        """

    def run(self, over_sure: bool = False) -> str:
        """Go on by itself, or pause.

        Args:
            over_sure: Over sure tokens alone.
        """

    def back(self, telling: Telling = ()) -> str:
        """Go back before the last step.

        Args:
            telling: As for a step.
        """

    def change_pace(self, by: int) -> str:
        """Go faster, or slower with -1."""

    def stop(self) -> bool:
        """Stop whatever goes on; returns whether there was anything."""

    def to_end(self) -> str:
        """Show what comes, where what is on show was left behind."""
        return ""

    def open_model(self, load: LoadSettings) -> str:
        """Load a model."""

    def describe(self) -> str:
        """What goes on and the keys that matter for it; printable, empty where the panels say it."""

    def caption(self, node: int) -> str:
        """What an author wrote on a token for those who watch; not made printable."""

    @property
    def telling(self) -> Caption | None:
        """The caption that speaks now, None for none."""

    @property
    def captioned(self) -> bool:
        """True if room for captions is kept."""


class LiveTransport(Transport):
    """Steps and runs of an engine.

    Args:
        client: Takes the commands.
        prefill: May wait to be continued.
        runs: Begin and go on.
        setup: Opens models.
    """

    recorded: ClassVar[bool] = False
    telling: Caption | None = None
    captioned = False

    def __init__(self, client: EngineClient, prefill: PrefillControl, runs: Runs, setup: Setup) -> None:
        self._client, self._prefill, self._runs, self._setup = client, prefill, runs, setup

    @property
    def running(self) -> bool:
        """True if a run is outstanding."""
        return bool(self._client.of(Run))

    @property
    def ready(self) -> frozenset[str]:
        """On, where a prefill waits to be continued."""
        return frozenset({"on"} if self._prefill.waits else ())

    @property
    def whereabouts(self) -> str:
        """The pace of runs, where it is not the full one."""
        slowed = self._runs.pace is not None and not self._client.timeline.running
        return f"pace {pace_text(self._runs.pace)}" if slowed else ""

    def step(self, telling: Telling = ()) -> str:
        """Pause a run, continue with a prefill, walk forward at an older token, or take one step at the tip."""
        timeline = self._client.timeline
        if timeline.running:
            self._client.pause()
        elif timeline.prompts.reading and self._prefill.waits:
            self._prefill.go_on()
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
        elif self._prefill.waits:
            self._prefill.go_on()
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
            return self._prefill.resize(by)
        self._runs.change_pace(by)
        return "" if self._client.timeline.running else f"Runs go at {pace_text(self._runs.pace)}"

    def stop(self) -> bool:
        """Cancel what escape stops."""
        return self._client.stop()

    def open_model(self, load: LoadSettings) -> str:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self._setup.open(load)
        return ""

    def describe(self) -> str:
        """The run or the prefill under way."""
        match self._client.timeline.phase:
            case Phase.PREFILL:
                return self._describe_prefill()
            case Phase.RUNNING:
                doing = "Skipping sure tokens" if self._runs.breakpoints.skipping else "Running"
                return (
                    f"{doing} at {pace_text(self._runs.pace)}. Press {key_for('step')} to pause, "
                    f"{key_for('faster')} or {key_for('slower')} for the pace"
                )
        return ""

    def _describe_prefill(self) -> str:
        timeline, size = self._client.timeline, self._prefill.size
        where = f"{timeline.held:,} of {len(timeline.items):,} tokens"
        if self._prefill.waits:
            return (
                f"Prefill stopped at {where}. Press {key_for('step')} to continue, {key_for('prompt')} for "
                "another prompt"
            )
        chunks = f" in chunks of {size:,}" if size else ""
        left = time_left(timeline.prompts.left_ms)
        return (
            f"Prefill {where}{chunks}{left}. Press esc to stop it, {key_for('faster')} or "
            f"{key_for('slower')} for larger or smaller chunks"
        )

    def caption(self, node: int) -> str:
        """None but in the picture of a recording, which has it among its marks."""
        timeline = self._client.timeline
        mark = timeline.tree.marks.of.get(node) if timeline.recorded else None
        return mark.caption if mark is not None else ""
