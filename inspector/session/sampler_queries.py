"""What the screen asks the engine about the sampler: how the token was chosen, and what other settings would pick.

At most one question of a kind is out. What is asked next depends on what is on show then, so that the latest wins.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from engine import protocol
from engine.frozen import frozen
from engine.protocol import (
    Answer,
    Command,
    Distribution,
    Ended,
    Explain,
    Explained,
    Failure,
    WhatIf,
    WhatIfAnswered,
)
from engine.settings import Settings
from inspector.session.client import EngineClient
from inspector.state.timeline import Phase, StageExplanation, Timeline, Trial

PATIENCE = 0.25
"""Seconds between two questions while steps are under way, so that they cost little of their speed."""
Asked = TypeVar("Asked")


@frozen
class _Out(Generic[Asked]):
    """A question that is out."""

    command: Command
    about: Asked


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
        """Whether the sampler is on show: nothing is asked otherwise."""
        self.in_force = settings
        """The settings that the engine samples with."""
        self._client, self._clock = client, clock
        self._explain: _Out[tuple[Distribution, Settings | None]] | None = None
        self._what_if: _Out[tuple[Settings, int]] | None = None
        self._asked = float("-inf")
        self.recalled: frozenset[int] = frozenset()
        """Nodes whose logits were computed again last: where they are wanted still, they were dropped at once."""
        client.parts.append(self._receive)

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
        self._ask_explain(timeline)
        if timeline.trial is not None and not running:
            self._ask_what_if(timeline, timeline.trial)

    def _ask_explain(self, timeline: Timeline) -> None:
        distribution = timeline.distribution
        if distribution is None:
            return
        settings = timeline.trial.settings if timeline.trial else self.used(timeline)
        told = timeline.explanation()
        if told is not None and told.settings == settings:
            return
        if self._explain is not None:
            wanted = self._explain.about[0] is distribution and self._explain.about[1] == settings
            self._outdate(self._explain, wanted)
            return
        self._explain = _Out(Explain(timeline.before, settings), (distribution, settings))
        self._asked = self._clock()
        self._client.ask(self._explain.command)

    def _ask_what_if(self, timeline: Timeline, trial: Trial) -> None:
        about = (trial.settings, timeline.tip)
        if trial.answered == timeline.tip or not timeline.step_slots:
            return
        if self._what_if is not None:
            self._outdate(self._what_if, self._what_if.about == about)
            return
        self._what_if = _Out(WhatIf(*about), about)
        self._client.ask(self._what_if.command)

    def _outdate(self, out: _Out[Asked], still_wanted: bool) -> None:
        """Cancel a question whose answer nobody waits for any more; the next is asked when it has ended."""
        if not still_wanted:
            self._client.cancel(out.command)

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
            case protocol.Recalled():
                self.recalled = frozenset(record.nodes)
                self._ask_again(timeline)
            case Answer() if self._explain is not None and record.id == self._explain.command.id:
                self._take_explanation(timeline, record, self._explain)
            case Answer() if self._what_if is not None and record.id == self._what_if.command.id:
                self._take_what_if(timeline, record, self._what_if)
            case _:
                pass

    def _forget(self, timeline: Timeline) -> None:
        """Another tree: what was told of the old one is of no more use."""
        self.recalled = frozenset()
        timeline.last_explanation = None
        if timeline.trial is not None:
            timeline.trial = Trial(timeline.trial.settings)
            timeline.trials += 1

    def _take_explanation(
        self, timeline: Timeline, answer: Answer, out: _Out[tuple[Distribution, Settings | None]]
    ) -> None:
        """Take in what answers the question how a token was chosen."""
        distribution, settings = out.about
        match answer:
            case Explained():
                telling = StageExplanation(distribution, settings, answer)
            case Failure():
                telling = StageExplanation(distribution, settings, None, answer)
            case _:
                if isinstance(answer, Ended):
                    self._explain = None
                return
        if timeline.trial is None:
            timeline.last_explanation = telling
        elif timeline.trial.settings == settings:
            timeline.trial.last_explanation = telling

    def _take_what_if(self, timeline: Timeline, answer: Answer, out: _Out[tuple[Settings, int]]) -> None:
        """Take in what answers the question which steps other settings would change."""
        settings, tip = out.about
        trial = timeline.trial if timeline.trial and timeline.trial.settings == settings else None
        match answer:
            case Ended():
                self._what_if = None
            case WhatIfAnswered() if trial is not None:
                kept = trial.answers if trial.answered is not None else {}
                trial.answers = kept | {step.node: step for step in answer.steps}
                trial.dropped = tuple(node for node in answer.dropped if node not in trial.answers)
                trial.answered = answer.tip
                timeline.trials += 1
            case Failure() if trial is not None:
                trial.answered = tip  # not asked again and again: what it would have said stays unknown
            case _:
                pass

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
        told = self._client.timeline.last_explanation
        if told is not None and told.failure is not None and told.of.node == explained.node:
            self._client.timeline.last_explanation = None

    # ---- what was dropped -------------------------------------------------------------------

    def dropped(self, timeline: Timeline) -> tuple[int, ...]:
        """Nodes whose logits are wanted and were dropped, in the order of the path."""
        told = timeline.explanation()
        wanted = [] if told is None or told.failure is None else [timeline.before]
        if timeline.trial is not None:
            wanted += [
                timeline.tree.parent[node] for node in timeline.trial.dropped if node in timeline.tree.parent
            ]
        return tuple(sorted(set(wanted)))
