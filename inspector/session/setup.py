"""What the engine works on: model, prompt and settings, and what becomes of changes to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from engine.protocol import (
    NO_OPTIONS,
    Configure,
    Load,
    ModelFacts,
    MoveTo,
    Prefill,
    Recall,
    Record,
    Run,
    Step,
)
from engine.settings import LoadSettings, Settings
from inspector.session.client import EngineClient, Request
from inspector.session.runs import PrefillControl, Runs
from inspector.session.sampler_queries import SamplerQueries


class Setup:
    """Gives models, prompts and settings.

    Args:
        client: Takes the commands.
        prefill: Sends the prompts.
        runs: Go on with other settings.
        queries: Know the settings in force.
        load: The model to open.
        settings: Of the sampler.
        prompt: Prefilled as soon as the model is there; an empty one waits for the person.
    """

    def __init__(
        self,
        client: EngineClient,
        prefill: PrefillControl,
        runs: Runs,
        queries: SamplerQueries,
        load: LoadSettings,
        settings: Settings,
        prompt: Prefill,
    ) -> None:
        self._client, self._prefill, self._runs, self._queries = client, prefill, runs, queries
        self.load = load
        self.settings = settings
        self.prompt = prompt

    def open(self, load: LoadSettings) -> None:
        """Load a model; the prompt at hand is prefilled when it is there."""
        self.load = load
        self._client.timeline.load_failure = None
        self._client.make_way()
        self._client.request(Load(load), each=self._loaded)

    def _loaded(self, record: Record) -> None:
        """Send what waits for the model."""
        if isinstance(record, ModelFacts):
            self._client.request(Configure(self.settings), self.configured)
            if self.prompt.text or self.prompt.messages:
                self._prefill.begin(self.prompt)

    def give(self, prompt: Prefill, each: Callable[[Record], object] | None = None) -> None:
        """Begin a new tree with a prompt, now or when the model is there; the chat template's variables stay.

        Args:
            prompt: The prompt.
            each: Called with the records of its prefill, where that begins now.
        """
        if prompt.options == NO_OPTIONS:
            prompt = replace(prompt, options=replace(self.prompt.options, tools="", response=None))
        self.prompt = prompt
        if self._client.timeline.facts is not None and not self._client.of(Load):
            self._client.make_way()
            self._prefill.begin(prompt, each)

    def configure(
        self, settings: Settings, then: Callable[[Request[Configure]], object] | None = None
    ) -> None:
        """Use other settings from here on; a run goes on with them.

        Args:
            settings: The settings.
            then: Called once the engine has them, or has refused them.
        """
        self.settings = settings
        if self._client.timeline.facts is None:
            return  # sent with the model's facts
        running = self._client.timeline.running
        self._client.cancel(*self._client.of(Run))
        self._client.request(Configure(settings), partial(self.configured, then=then))
        if running:
            self._runs.go_on()

    def configured(
        self, request: Request[Configure], then: Callable[[Request[Configure]], object] | None = None
    ) -> None:
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

    # ---- settings that were tried -----------------------------------------------------------

    def apply(self, settings: Settings) -> None:
        """Go on with other settings: from the selected step on, where that is an older one."""
        timeline = self._client.timeline
        node = timeline.before if self.applies_at is not None else None
        self._queries.try_out(timeline, None)
        if node is not None:
            timeline.select(None)
            self._client.do(MoveTo(node))
        self.configure(settings)

    @property
    def applies_at(self) -> int | None:
        """Number of the older step, counted from 1, that `apply` picks again; None at the tip and in the prompt."""
        item = self._client.timeline.selected
        return item.index + 1 if isinstance(item, Step) else None

    def recall(self) -> str:
        """Have the logits computed again that were dropped and are wanted; returns the answer for the person."""
        nodes = self._queries.dropped(self._client.timeline)
        if not nodes:
            return "Nothing to compute again: the logits of what is shown are kept."
        if self._queries.recalled == frozenset(nodes):
            return "They were dropped again at once: there is no room. Start with more --kept-logits-mib."
        if not self._client.of(Recall):
            self._client.do(Recall(nodes))
        return ""
