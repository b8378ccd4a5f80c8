"""What the keys mean to the engine: model, prompt and settings, steps and runs."""

from __future__ import annotations

from engine import records
from engine.breakpoints import Breakpoints
from engine.commands import Configure, Load, MoveTo, Recall, Run, TakeStep
from engine.settings import LoadSettings, Settings
from inspector.session.navigation import Navigation
from inspector.session.prefill import Prompt

PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, None)
"""Steps a second of a run, None for as fast as it goes."""
MAX_QUEUED_STEPS = 8
"""A held space bar queues no more than this, so that it doesn't step on long after it is let go."""


class Controller(Navigation):
    """Gives models, prompts and settings, steps and runs.

    Every method that a key calls returns what to tell the person.
    """

    # ---- model, prompt, settings ------------------------------------------------------------

    def open(self, load: LoadSettings) -> None:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self.load = load
        self.timeline.load_failure = None
        self._cancel_all()
        self._send(Load(load))

    def give(self, prompt: Prompt) -> None:
        """Begin a new tree with a prompt, now or when the model is there."""
        self.prompt = prompt
        if self.timeline.facts is not None and not self._out(Load):
            self._cancel_all()
            self.prefilling.begin(prompt)

    def configure(self, settings: Settings) -> None:
        """Use other settings from here on; a run goes on with them."""
        self.settings = settings
        if self.timeline.facts is None:
            return  # sent with the model's facts
        running = self.timeline.running
        self._cancel(Run)
        self._send(Configure(settings))
        if running:
            self._run(goes_on=True)

    def apply(self, settings: Settings) -> None:
        """Go on with other settings: from the selected step on, where that is an older one."""
        node = self.timeline.before if self.applies_at is not None else None
        self.questions.try_out(self.timeline, None)
        if node is not None:
            self.pause()
            self.timeline.select(None)
            self._send(MoveTo(node))
        self.configure(settings)

    @property
    def applies_at(self) -> int | None:
        """Number of the older step, counted from 1, that `apply` picks anew; None at the tip and in the prompt."""
        item = self.timeline.selected
        return item.index + 1 if isinstance(item, records.Step) else None

    def recall(self) -> str:
        """Have the logits computed again that were dropped and are wanted."""
        nodes = self.questions.dropped(self.timeline)
        if not nodes:
            return "Nothing to compute again: the logits of what is shown are kept."
        if self.questions.recalled == frozenset(nodes):
            return "They were dropped again at once: there is no room. Start with more --kept-logits-mib."
        if not self._out(Recall):
            self.pause()
            self._send(Recall(nodes))
        return ""

    # ---- step and run -----------------------------------------------------------------------

    def step(self) -> str:
        """Pause a run, walk forward at an older token, or take one step at the tip."""
        if self.timeline.running:
            self.pause()
        elif self.prefilling.waits(self.timeline):
            self.prefilling.go_on()
        elif not self.timeline.following:
            self.walk(1)
        elif len(self._out(TakeStep)) < MAX_QUEUED_STEPS:
            self._send(TakeStep())
        return ""

    def run(self, over_sure: bool = False) -> str:
        """Start a run at the tip, over sure tokens alone if that is asked for, or pause the one under way."""
        if self.timeline.running:
            self.pause()
        elif self.prefilling.waits(self.timeline):
            self.prefilling.go_on()
        else:
            self.timeline.select(None)
            self.breaks.begin(over_sure)
            self._run()
        return ""

    def break_at(self, points: Breakpoints) -> None:
        """Set breakpoints; a run under way goes on with them."""
        self.breaks.points = points
        if self.timeline.running:
            self._cancel(Run)
            self._run()

    def change_pace(self, by: int) -> None:
        """Set the pace of runs `by` places further in `PACES`; one under way goes on at it."""
        place = PACES.index(self.pace) + by
        self.pace = PACES[max(0, min(len(PACES) - 1, place))]
        if self.timeline.running:
            self._cancel(Run)
            self._run(goes_on=True)

    def _run(self, goes_on: bool = False) -> None:
        until = self.breaks.points if self.breaks.points.active else None
        self._send(Run(self.pace, until, self.breaks.skipping, goes_on))
        self.timeline.running = True
