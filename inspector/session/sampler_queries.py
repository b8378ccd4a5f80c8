"""What the screen asks the engine about the sampler: how the token was chosen, and what other settings would pick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from engine import protocol
from engine.protocol import Configure, Distribution, Explain, Explained, WhatIf, WhatIfAnswered
from engine.settings import Settings
from inspector.session.client import EngineClient, Request
from inspector.session.requests import Latest
from inspector.state.timeline import Phase, StageExplanation, Timeline, Trial

PATIENCE = 0.25
"""Seconds between two questions while steps are under way, so that they cost little of their speed."""


def _also(timeline: Timeline, settings: Settings | None) -> tuple[int, ...]:
    """The token of the selected slot and the one that the sampler picked there, if they are not among the most probable
    ones that are listed anyway: tables compare them."""
    distribution, most = timeline.distribution, None if settings is None else settings.candidates
    if distribution is None:
        return ()
    listed = {each.id for each in distribution.candidates[:most]}
    ids = dict.fromkeys((timeline.taken, distribution.picked))
    return tuple(id for id in ids if id is not None and id not in listed)


class SamplerQueries:
    """Asks about what is on show, and keeps the answers in the timeline.

    Args:
        client: Sends the questions and gives the records.
        settings: That the engine begins with.
        clock: Seconds, for the patience.
    """

    def __init__(
        self, client: EngineClient, settings: Settings, clock: Callable[[], float] = monotonic
    ) -> None:
        self.watching = False
        """True if the sampler is on show: nothing is asked otherwise."""
        self.in_force = settings
        """The settings that the engine samples with."""
        self._client, self._clock = client, clock
        self._explain, self._what_if = Latest(client), Latest(client)
        self._asked = float("-inf")
        self.recalled: frozenset[int] = frozenset()
        """Nodes whose logits were computed again last: where they are wanted still, they were dropped at once."""
        client.listen(
            self._receive, protocol.PromptOpened, protocol.Step, protocol.Resampled, protocol.Recalled
        )

    # ---- asking -----------------------------------------------------------------------------

    def try_out(self, timeline: Timeline, settings: Settings | None) -> None:
        """Try settings; None ends the trial."""
        before = timeline.trial
        if settings is None:
            timeline.trial = None
        elif before is None or before.settings != settings:
            # the old answers stay on show until the new ones are there
            timeline.trial = Trial(settings, None, dict(before.answers) if before else {})
        timeline.trials += before is not timeline.trial

    def ask(self, timeline: Timeline) -> None:
        """Ask what is on show and not known yet, unless it was asked."""
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
                self._explain.ask(
                    Explain(timeline.before, settings, distribution.reroll, _also(timeline, settings)),
                    partial(self._explained, distribution),
                    about=(distribution, settings),
                )
        if trial is not None and not running and trial.answered != timeline.tip and timeline.step_slots:
            self._what_if.ask(WhatIf(trial.settings, timeline.tip), self._answered)

    def used(self, timeline: Timeline) -> Settings | None:
        """The settings with which the token of the selected slot was, or will be, picked."""
        item = timeline.selected
        return self.in_force if item is None else timeline.tree.settings.get(item.node)

    # ---- answers ----------------------------------------------------------------------------

    def _receive(self, record: protocol.Record) -> None:
        """Take in one record, after the timeline did."""
        timeline = self._client.timeline
        match record:
            case protocol.PromptOpened():
                self._forget(timeline)
            case protocol.Step():
                timeline.tree.settings[record.node] = self.in_force
            case protocol.Resampled():
                self._take_over(self._client.answering)
            case protocol.Recalled():
                self.recalled = frozenset(record.nodes)
                self._ask_again(timeline)

    def _take_over(self, number: int) -> None:
        """New settings are in force from the distribution on that they give, before their command has ended."""
        request = self._client.requests.get(number)
        if request is not None and isinstance(request.command, Configure):
            self.in_force = request.command.settings

    def _forget(self, timeline: Timeline) -> None:
        """Another tree: what was explained of the old one is of no more use."""
        self.recalled = frozenset()
        timeline.last_explanation = None
        if timeline.trial is not None:
            timeline.trial = Trial(timeline.trial.settings)
            timeline.trials += 1

    def _explained(self, distribution: Distribution, request: Request[Explain]) -> None:
        """Take in how a token was chosen."""
        explained, settings = request.reply(Explained), request.command.settings
        if explained is None and request.failure is None:
            return
        timeline = self._client.timeline
        explanation = StageExplanation(distribution, settings, explained, request.failure)
        if timeline.trial is None:
            timeline.last_explanation = explanation
        elif timeline.trial.settings == settings:
            timeline.trial.last_explanation = explanation

    def _answered(self, request: Request[WhatIf]) -> None:
        """Take in which steps other settings would change."""
        timeline, command = self._client.timeline, request.command
        trial = timeline.trial
        if trial is None or trial.settings != command.settings:
            return
        if (answer := request.reply(WhatIfAnswered)) is not None:
            if trial.answered is None:
                trial.answers = {}  # those of the settings before
            for step in answer.steps:
                trial.answers[step.node] = step
            trial.dropped = tuple(sorted(set(answer.dropped) - trial.answers.keys()))
            trial.answered = answer.tip
            timeline.trials += 1
        elif request.failure is not None:
            trial.answered = command.tip  # not asked again and again: what it would have said stays unknown

    def _ask_again(self, timeline: Timeline) -> None:
        """Dropped logits are back: ask what failed for want of them."""
        if timeline.last_explanation is not None and timeline.last_explanation.failure is not None:
            timeline.last_explanation = None
        if timeline.trial is not None:
            if (
                timeline.trial.last_explanation is not None
                and timeline.trial.last_explanation.failure is not None
            ):
                timeline.trial.last_explanation = None
            if timeline.trial.answered is not None and timeline.trial.dropped:
                timeline.trial.answered = -1  # asked again; what is known stays

    def recorded(self, explained: protocol.Explained) -> None:
        """An explanation was recorded here: what it was asked for in vain can be asked again."""
        explanation = self._client.timeline.last_explanation
        if (
            explanation is not None
            and explanation.failure is not None
            and explanation.of.node == explained.node
        ):
            self._client.timeline.last_explanation = None

    # ---- what was dropped -------------------------------------------------------------------

    def dropped(self, timeline: Timeline) -> tuple[int, ...]:
        """Nodes whose logits are wanted and were dropped, in the order of the path."""
        explanation = timeline.explanation()
        wanted = [] if explanation is None or explanation.failure is None else [timeline.before]
        if timeline.trial is not None:
            wanted += [
                timeline.tree.parent[node] for node in timeline.trial.dropped if node in timeline.tree.parent
            ]
        return tuple(sorted(set(wanted)))
