"""Model, prompt and settings of the engine; its runs and prefills as the user steers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.protocol import Command, Configure, Load, ModelFacts, MoveTo, Prefill, Record, Run
from engine.settings import LoadSettings, Settings, differences, with_defaults
from inspector.session.client import EngineClient, Listener, Request, Then
from inspector.session.sampler_queries import SamplerQueries
from inspector.state.breakpoints import BreakpointState
from inspector.state.timeline import Phase

LEAST, MOST = 1, 2048
"""Tokens a chunk of a prefill."""
PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, None)
"""Steps a second of a run, None for as fast as it goes."""


# ---- runs and prefills --------------------------------------------------------------------------


class Runs:
    """Begins and continues runs and prefills.

    Args:
        client: Takes the commands.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.pace: float | None = None
        self.chunk: int | None = None
        """Tokens a chunk of a prefill; None for as many as take about 100 ms."""
        self.breakpoints = BreakpointState()
        self.keep: Callable[[Breakpoints], str] = lambda points: ""
        """Keeps breakpoints for the next start; returns what went wrong, empty if nothing did."""
        self.changed: Callable[[], None] = lambda: None
        """Called when other breakpoints were set."""
        client.listen(self.breakpoints.receive, *BreakpointState.TAKES)

    def begin(self, over_sure: bool) -> None:
        """Begin a run, over sure tokens alone if that is asked for."""
        self.breakpoints.begin(over_sure)
        self._send(continues=False)

    def go_on(self, counted: bool = True) -> None:
        """Continue a run under way with what has changed; without one nothing happens.

        Args:
            counted: Whether what its breakpoints counted stays.
        """
        if self._client.timeline.running:
            self._client.cancel(*self._client.of(Run))
            self._send(counted)

    def change_pace(self, by: int) -> None:
        """Set the pace `by` places further in `PACES`; a run under way continues at it."""
        self.pace = PACES[max(0, min(len(PACES) - 1, PACES.index(self.pace) + by))]
        self.go_on()

    def break_at(self, points: Breakpoints) -> str:
        """Set breakpoints; a run under way continues with them.

        Returns:
            What went wrong with keeping them for the next start, to follow a sentence without its full stop.
        """
        self.breakpoints.points = points
        self.go_on(counted=False)
        self.changed()
        return self.keep(points)

    def _send(self, continues: bool) -> None:
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
        """True if a prefill was stopped on its way, and can be continued."""
        return self._client.timeline.phase is Phase.PREFILL and not self._prefills()

    def continue_prefill(self) -> None:
        """Continue the prefill that waits."""
        self._client.request(protocol.GoOnPrefill(self.chunk))

    def resize(self, by: int) -> str:
        """Double the chunks, or halve them with -1; a prefill under way continues with them.

        Returns:
            The answer for the user.
        """
        ends = [0, *(chunk.done for chunk in self._client.timeline.prompts.chunks)]
        last = max(1, ends[-1] - ends[-2]) if len(ends) > 1 else 32
        size = self.chunk or last
        self.chunk = max(LEAST, min(MOST, size * 2 if by > 0 else size // 2))
        if under_way := self._prefills():
            under_way[0].cancel()
            self.continue_prefill()
        return f"Chunks of {self.chunk:,} tokens"

    def _prefills(self) -> list[Request[Command]]:
        return self._client.under_way(Prefill, protocol.AddTurn, protocol.GoOnPrefill)


def pace_text(pace: float | None) -> str:
    """A pace as the status line writes it."""
    return "full pace" if pace is None else f"{pace:g} a second"


# ---- model, prompt and settings -----------------------------------------------------------------


class Setup:
    """Gives models, prompts and settings.

    Args:
        client: Takes the commands.
        runs: Prefill the prompt, and continue with other settings.
        queries: Know the settings in force.
        load: The model to open.
        settings: Of the sampler.
        prompt: Prefilled as soon as the model is there; an empty one waits for the user.
    """

    def __init__(
        self,
        client: EngineClient,
        runs: Runs,
        queries: SamplerQueries,
        load: LoadSettings,
        settings: Settings,
        prompt: Prefill,
    ) -> None:
        self._client, self._runs, self._queries = client, runs, queries
        self.load, self.settings, self.prompt = load, settings, prompt
        self.given: set[str] | None = None
        """Names of the settings that the user gave; the others are those of the model that is loaded. None for all."""

    def open(self, load: LoadSettings) -> None:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self.load = load
        self._client.timeline.load_failure = None
        self._client.make_way()
        self._client.request(Load(load), each=self._loaded)

    def _loaded(self, record: Record) -> None:
        """Send what waits for the model."""
        if isinstance(record, ModelFacts):
            if self.given is not None:
                self.settings = with_defaults(self.settings, record.sampling, self.given)
            self._client.request(Configure(self.settings), self.configured)
            if self.prompt.text or self.prompt.messages:
                self._runs.prefill(self.prompt)

    def give(self, prompt: Prefill, each: Listener | None = None) -> None:
        """Begin a new tree with a prompt, now or when the model is there; the chat template's variables stay.

        Args:
            prompt: The prompt.
            each: Called with the records of its prefill, where that begins now.
        """
        if prompt.options == protocol.NO_OPTIONS:
            prompt = replace(prompt, options=replace(self.prompt.options, tools="", response=None))
        self.prompt = prompt
        if self._client.timeline.facts is not None and not self._client.of(Load):
            self._client.make_way()
            self._runs.prefill(prompt, each)

    def configure(self, settings: Settings, then: Then[Configure] | None = None) -> None:
        """Use other settings from here on; a run continues with them.

        Args:
            settings: The settings.
            then: Called once the engine has them, or has refused them.
        """
        if self.given is not None:
            self.given |= differences(self.settings, settings).keys()
        self.settings = settings
        if self._client.timeline.facts is None:
            return  # sent with the model's facts
        running = self._client.timeline.running
        self._client.cancel(*self._client.of(Run))
        self._client.request(Configure(settings), partial(self.configured, then=then))
        if running:
            self._runs.go_on()

    def configured(self, request: Request[Configure], then: Then[Configure] | None = None) -> None:
        """Settings that the engine refused, or never got to, are not those that it samples with."""
        if request.failure is None and not request.cancelled:
            self._queries.in_force = request.command.settings
        elif not self._client.of(Configure):
            self.settings = self._queries.in_force
        if then is not None:
            then(request)

    def use(self, settings: Settings) -> None:
        """Settings were in force from here on in a recording."""
        self.settings = self._queries.in_force = settings
        self.given = None

    # ---- settings that were tried -----------------------------------------------------------

    def apply(self, settings: Settings) -> None:
        """Continue with other settings: from the selected step on, if that is an older one."""
        timeline = self._client.timeline
        node = timeline.before if timeline.older is not None else None
        self._queries.try_out(timeline, None)
        if node is not None:
            timeline.select(None)
            self._client.do(MoveTo(node))
        self.configure(settings)

    def recall(self) -> str:
        """Have the logits computed again that were dropped and are wanted; returns the answer for the user."""
        nodes = self._queries.dropped(self._client.timeline)
        if not nodes:
            return "Nothing to compute again: the logits of what is shown are kept."
        if self._queries.recalled == frozenset(nodes):
            return "They were dropped again at once: there is no room. Start with more --kept-logits-mib."
        if not self._client.of(protocol.Recall):
            self._client.do(protocol.Recall(nodes))
        return ""
