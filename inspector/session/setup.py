"""The engine's model, prompt and settings, and the questions about its sampler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from msgspec.structs import replace

from engine import protocol
from engine.settings import LoadSettings, Settings, differences, with_defaults
from inspector.session.client import EngineClient, Listener, Request, Then
from inspector.session.requests import Latest
from inspector.session.transport import LiveTransport
from inspector.state.timeline import Phase, StageExplanation, Timeline, Trial

PATIENCE = 0.25
"""Minimum seconds between two questions during a run, so that they hardly slow it down."""


# ---- the sampler --------------------------------------------------------------------------------


class SamplerQueries:
    """Asks about the distribution on show and about trial settings, and keeps the answers in the timeline.

    Args:
        client: Sends the questions and receives the records.
        settings: Settings that the engine starts with.
        clock: Returns seconds, for `PATIENCE`.
    """

    def __init__(
        self, client: EngineClient, settings: Settings, clock: Callable[[], float] = monotonic
    ) -> None:
        self.watching = False
        """True while the sampler is on show; otherwise nothing is asked."""
        self.in_force = settings
        """The settings that the engine samples with."""
        self._client, self._clock = client, clock
        self._explain, self._what_if = Latest(client), Latest(client)
        self._asked = float("-inf")
        self.recalled: frozenset[int] = frozenset()
        """Nodes whose logits were last computed again; if they are still needed, they were dropped again at once."""
        client.listen(
            self._receive, protocol.PromptOpened, protocol.Step, protocol.Resampled, protocol.Recalled
        )

    # ---- asking -----------------------------------------------------------------------------

    def try_out(self, timeline: Timeline, settings: Settings | None) -> None:
        """Begin a trial of settings; None ends it."""
        before = timeline.trial
        if settings is None:
            timeline.trial = None
        elif before is None or before.settings != settings:
            # the old answers stay on show until the new ones arrive
            timeline.trial = Trial(settings, None, dict(before.answers) if before else {})
        timeline.trials += before is not timeline.trial

    def ask(self, timeline: Timeline) -> None:
        """Ask for what is on show and not yet known."""
        if not self.watching or timeline.phase not in (Phase.READY, Phase.RUNNING):
            return
        running = timeline.running
        if running and self._clock() < self._asked + PATIENCE:
            return
        distribution, trial = timeline.distribution, timeline.trial
        if distribution is not None:
            settings, known = trial.settings if trial else self.used(timeline), timeline.explanation()
            if known is None or known.settings != settings:
                self._asked = self._clock()
                # tables need these two besides the most probable tokens, which are always listed
                most = None if settings is None else settings.candidates
                listed = {each.id for each in distribution.candidates[:most]}
                ids = dict.fromkeys((timeline.taken, distribution.picked))
                more = tuple(id for id in ids if id is not None and id not in listed)
                self._explain.ask(
                    protocol.Explain(timeline.before, settings, distribution.reroll, more),
                    partial(self._explained, distribution),
                    about=(distribution, settings),
                )
        if trial is not None and not running and trial.answered != timeline.tip and timeline.step_slots:
            self._what_if.ask(protocol.WhatIf(trial.settings, timeline.tip), self._answered)

    def used(self, timeline: Timeline) -> Settings | None:
        """The settings that the token of the selected slot was or will be picked with; None if they aren't known."""
        item = timeline.selected
        return self.in_force if item is None else timeline.tree.settings.get(item.node)

    # ---- answers ----------------------------------------------------------------------------

    def _receive(self, record: protocol.Record) -> None:
        """Receive one record, after the timeline."""
        timeline = self._client.timeline
        match record:
            case protocol.PromptOpened():  # explanations of the old tree are obsolete
                self.recalled = frozenset()
                timeline.last_explanation = None
                if timeline.trial is not None:
                    timeline.trial = Trial(timeline.trial.settings)
                    timeline.trials += 1
            case protocol.Step():
                timeline.tree.settings[record.node] = self.in_force
            case protocol.Resampled():
                # new settings are in force from this distribution on, before their command has ended
                request = self._client.requests.get(self._client.answering)
                if request is not None and isinstance(request.command, protocol.Configure):
                    self.in_force = request.command.settings
            case protocol.Recalled():  # dropped logits are back: ask again what failed without them
                self.recalled = frozenset(record.nodes)
                trial = timeline.trial
                for asked in (timeline, trial):
                    if asked and asked.last_explanation and asked.last_explanation.failure is not None:
                        asked.last_explanation = None
                if trial is not None and trial.answered is not None and trial.dropped:
                    trial.answered = -1  # ask again; known answers stay

    def _explained(self, distribution: protocol.Distribution, request: Request[protocol.Explain]) -> None:
        """Store the explanation of a distribution."""
        explained, settings = request.reply(protocol.Explained), request.command.settings
        if explained is None and request.failure is None:
            return
        timeline = self._client.timeline
        explanation = StageExplanation(distribution, settings, explained, request.failure)
        if timeline.trial is None:
            timeline.last_explanation = explanation
        elif timeline.trial.settings == settings:
            timeline.trial.last_explanation = explanation

    def _answered(self, request: Request[protocol.WhatIf]) -> None:
        """Store which steps the trial settings would change."""
        timeline, command = self._client.timeline, request.command
        trial = timeline.trial
        if trial is None or trial.settings != command.settings:
            return
        if (answer := request.reply(protocol.WhatIfAnswered)) is not None:
            if trial.answered is None:
                trial.answers = {}  # these were of earlier settings
            trial.answers.update((step.node, step) for step in answer.steps)
            trial.dropped = tuple(sorted(set(answer.dropped) - trial.answers.keys()))
            trial.answered = answer.tip
            timeline.trials += 1
        elif request.failure is not None:
            trial.answered = command.tip  # the answer stays unknown: don't ask again

    def recorded(self, explained: protocol.Explained) -> None:
        """Note a recorded explanation: a failed question about its node can be asked again."""
        known = self._client.timeline.last_explanation
        if known is not None and known.failure is not None and known.of.node == explained.node:
            self._client.timeline.last_explanation = None

    # ---- dropped logits ---------------------------------------------------------------------

    def dropped(self, timeline: Timeline) -> tuple[int, ...]:
        """Nodes with dropped logits that are needed, in ascending order."""
        explanation, parents = timeline.explanation(), timeline.tree.parent
        wanted = set() if explanation is None or explanation.failure is None else {timeline.before}
        if timeline.trial is not None:
            wanted |= {parents[node] for node in timeline.trial.dropped if node in parents}
        return tuple(sorted(wanted))


# ---- model, prompt and settings -----------------------------------------------------------------


class Setup:
    """Loads models, and sets prompts and settings.

    Args:
        client: Takes the commands.
        runs: Prefill the prompt, and continue with new settings.
        queries: Know the settings in force.
        load: The model to open.
        settings: Settings of the sampler.
        prompt: Prefilled as soon as the model is loaded; an empty one waits for the user.
    """

    def __init__(
        self,
        client: EngineClient,
        runs: LiveTransport,
        queries: SamplerQueries,
        load: LoadSettings,
        settings: Settings,
        prompt: protocol.Prefill,
    ) -> None:
        self._client, self._runs, self._queries = client, runs, queries
        self.load, self.settings, self.prompt = load, settings, prompt
        self.given: set[str] | None = None
        """Names of the settings that the user gave; the others become the loaded model's defaults. None for all."""

    def open(self, load: LoadSettings) -> None:
        """Load a model, and prefill the current prompt once it is loaded."""
        self.load = load
        self._client.timeline.load_failure = None
        self._client.make_way()
        self._client.cancel(*self._client.of(protocol.Load))
        self._client.request(protocol.Load(load), each=self._loaded)

    def _loaded(self, record: protocol.Record) -> None:
        """Send settings and prompt once the model is loaded."""
        if isinstance(record, protocol.ModelFacts):
            if self.given is not None:
                self.settings = with_defaults(self.settings, record.sampling, self.given)
            self._client.request(protocol.Configure(self.settings), self.configured)
            if self.prompt.text or self.prompt.messages:
                self._runs.prefill(self.prompt)

    def give(self, prompt: protocol.Prefill, each: Listener | None = None) -> None:
        """Begin a new tree with a prompt, now or when the model is loaded; the chat template's variables stay.

        Args:
            prompt: The prompt.
            each: Called with the records of its prefill, if that begins now.
        """
        if prompt.options == protocol.NO_OPTIONS:
            prompt = replace(prompt, options=replace(self.prompt.options, tools="", response=None))
        self.prompt = prompt
        if self._client.timeline.facts is not None and not self._client.of(protocol.Load):
            self._client.make_way()
            self._runs.prefill(prompt, each)

    def configure(
        self, settings: Settings, then: Then[protocol.Configure] | None = None, node: int | None = None
    ) -> None:
        """Use new settings from here on; a run continues with them.

        Args:
            settings: The settings.
            then: Called when the engine has accepted or refused them.
            node: Node to move to first; None for the current one.
        """
        if self.given is not None:
            self.given |= differences(self.settings, settings).keys()
        self.settings = settings
        if self._client.timeline.facts is None:
            return  # sent once the model is loaded
        running = self._client.timeline.running
        self._client.cancel(*self._client.of(protocol.Run))
        self._client.request(protocol.Configure(settings, node), partial(self.configured, then=then))
        if running:
            self._runs.go_on()

    def configured(
        self, request: Request[protocol.Configure], then: Then[protocol.Configure] | None = None
    ) -> None:
        """Update the settings in force, or go back to them if the engine refused the new ones or never reached them."""
        if request.failure is None and not request.cancelled:
            self._queries.in_force = request.command.settings
        elif not self._client.of(protocol.Configure):
            self.settings = self._queries.in_force
        if then is not None:
            then(request)

    def use(self, settings: Settings) -> None:
        """Use the settings that a recording has from here on."""
        self.settings = self._queries.in_force = settings
        self.given = None

    # ---- trial settings ---------------------------------------------------------------------

    def apply(self, settings: Settings) -> None:
        """Continue with trial settings, from the selected step on if it is an older one."""
        timeline = self._client.timeline
        node = timeline.before if timeline.older is not None else None
        self._queries.try_out(timeline, None)
        if node is not None:
            timeline.select(None)
            self._client.pause()
        self.configure(settings, node=node)

    def recall(self) -> str:
        """Compute needed logits again that were dropped; returns the answer for the user."""
        nodes = self._queries.dropped(self._client.timeline)
        if not nodes:
            return "Nothing to compute again: the logits of what is shown are kept."
        if self._queries.recalled == frozenset(nodes):
            return "They were dropped again at once: there is no room. Start with more --kept-logits-mib."
        if not self._client.of(protocol.Recall):
            self._client.do(protocol.Recall(nodes))
        return ""
