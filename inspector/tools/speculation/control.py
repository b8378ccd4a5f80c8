"""What the keys of speculation mean to the engine."""

from __future__ import annotations

from dataclasses import replace

from engine.protocol import LoadDraft, RunRounds, TakeRound, VerifySpeculation
from engine.speculation_settings import DRAFT_KINDS, MOST_DRAFTS, DraftKind, SpeculationSettings
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.speculation import Speculation

PLAIN_STEPS = 5
"""Plain steps that a run begins with where none was measured yet."""


class SpeculationControl:
    """Takes rounds, and knows what came of them from the timeline.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._asked = controller.speculation
        self._models = [self._asked.draft_model] if self._asked.draft_model else []
        """The draft model that was named."""
        self.job = Job(controller.client, LoadDraft, TakeRound, RunRounds, VerifySpeculation)

    @property
    def state(self) -> Speculation:
        """The rounds, live or recorded up to the place where the replay stands."""
        return self.controller.timeline.of(Speculation)

    @property
    def settings(self) -> SpeculationSettings:
        """Those of the next round; in a replay those of the latest."""
        latest = self.state.latest
        recorded = self.controller.transport.recorded
        return latest.settings if recorded and latest is not None else self._asked

    @property
    def drafting_model(self) -> str:
        """The draft model that was named; empty for none."""
        return self._models[-1] if self._models else ""

    # ---- settings ---------------------------------------------------------------------------

    def change_draft(self) -> None:
        """Take the next kind of draft; a model only where one was named."""
        kinds = [kind for kind in DRAFT_KINDS if kind != "model" or self.drafting_model]
        kind: DraftKind = kinds[(kinds.index(self._asked.draft) + 1) % len(kinds)]
        self._ask(kind, self.drafting_model if kind == "model" else "")

    def take_model(self, name: str) -> None:
        """Draft with another model."""
        self._models.append(name)
        self._ask("model", name)

    def change_number(self, by: int) -> None:
        """Draft more tokens for a round, or fewer."""
        number = max(1, min(MOST_DRAFTS, self._asked.num_draft_tokens + by))
        self._asked = replace(self._asked, num_draft_tokens=number)

    def _ask(self, kind: DraftKind, model: str) -> None:
        self.job.stop()
        self._asked = replace(self._asked, draft=kind, draft_model=model)
        if kind != "lookup":  # loading takes long: while the person looks at what there is
            self.job.start(LoadDraft(self._asked))

    # ---- rounds -----------------------------------------------------------------------------

    def step(self, inside: bool) -> None:
        """Take a round, or the next stage of one; while a run goes on, pause it."""
        if not self.job.stop():
            self.job.start(TakeRound(self._asked, inside))

    def run(self) -> None:
        """Take rounds until something stops them, or pause."""
        if self.job.stop():
            return
        points = self.controller.runs.breakpoints.points
        plain = 0 if self.state.plain else PLAIN_STEPS
        self.job.start(RunRounds(self._asked, points if points.active else None, plain=plain))

    def compare(self) -> bool:
        """Have all since the first round decoded again by plain steps; returns whether there was a round."""
        begin = self.state.begin
        if begin is None:
            return False
        self.job.start(VerifySpeculation(begin))
        return True
