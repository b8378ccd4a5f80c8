"""The commands of speculative decoding to the engine, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import DraftRound, LoadDraft, Record, RunRounds, TakeRound, VerifySpeculation
from engine.settings import DRAFT_KINDS, MOST_DRAFTS, DraftKind, SpeculationSettings
from inspector.main.tool import ToolActions
from inspector.session.requests import Job
from inspector.state.speculation import Speculation
from inspector.widgets.actions import Action, Needs, back, both, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

PLAIN_STEPS = 5
"""Plain steps that a run begins with if none was measured yet."""


# ---- what keys do -------------------------------------------------------------------------------


class SpeculationActions(ToolActions):
    """Takes rounds, and has what came of them from the timeline."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._asked = self.controller.speculation
        self.drafting_model = self._asked.draft_model
        """The draft model that was named last; empty for none."""
        self.job = Job(self.controller.client, LoadDraft, TakeRound, RunRounds, VerifySpeculation)
        self.controller.client.listen(self._receive, DraftRound)

    def _receive(self, record: Record) -> None:
        """Continue with the settings of rounds that others took: a lesson, a script."""
        if isinstance(record, DraftRound) and not (self.job.answered or self.controller.transport.recorded):
            self._asked = record.settings

    @property
    def state(self) -> Speculation:
        """The rounds, live or recorded up to the place where the replay stands."""
        return self.timeline.of(Speculation)

    @property
    def settings(self) -> SpeculationSettings:
        """The settings of the next round; in a replay those of the latest."""
        latest = self.state.latest
        return latest.settings if self.controller.transport.recorded and latest is not None else self._asked

    # ---- settings ---------------------------------------------------------------------------

    def change_draft(self) -> None:
        """Take the next kind of draft; a model only where one was named."""
        kinds = [kind for kind in DRAFT_KINDS if kind != "model" or self.drafting_model]
        kind: DraftKind = kinds[(kinds.index(self._asked.draft) + 1) % len(kinds)]
        self._ask(kind, self.drafting_model if kind == "model" else "")

    def take_model(self, name: str) -> None:
        """Draft with another model."""
        self.drafting_model = name
        self._ask("model", name)

    def change_number(self, by: int) -> None:
        """Draft more tokens for a round, or fewer."""
        number = max(1, min(MOST_DRAFTS, self._asked.num_draft_tokens + by))
        self._asked = replace(self._asked, num_draft_tokens=number)

    def _ask(self, kind: DraftKind, model: str) -> None:
        self.job.stop()
        self._asked = replace(self._asked, draft=kind, draft_model=model)
        if kind != "lookup":  # loading takes long: begin while the settings are still chosen
            self.job.start(LoadDraft(self._asked))

    # ---- rounds -----------------------------------------------------------------------------

    def step(self, inside: bool) -> None:
        """Take a round, or the next stage of one; pause a run that is under way."""
        if not self.job.stop():
            self.job.start(TakeRound(self._asked, inside))

    def run(self) -> None:
        """Take rounds until something stops them, or pause."""
        if self.job.stop():
            return
        points = self.controller.runs.breakpoints.points
        plain = 0 if self.state.plain else PLAIN_STEPS
        self.job.start(RunRounds(self._asked, points if points.active else None, plain=plain))


# ---- keys ---------------------------------------------------------------------------------------

SPECULATION_SCREEN = screen_table(
    "In speculation",
    Action("speculation.round", "Round", "Take a round, or the rest of one; during a run, pause.",
           lambda own: own.take(inside=False), Needs.ENGINE, hint="round", worth=11, place=1),
    Action("speculation.inside", "Inside", "Go to the next stage of a round: propose, verify, take.",
           lambda own: own.take(inside=True), Needs.ENGINE, hint="inside", worth=9, place=2),
    Action("speculation.run", "Run", "Take rounds until a stop or a breakpoint; again to pause.",
           lambda own: own.take_rounds(), Needs.ENGINE, worth=8, place=3,
           hint=lambda own: "pause" if own.control.job.running else "run"),
    Action("speculation.draft", "Draft", "Draft by lookup, by the model itself in 4 bits, or by the model that you "
        "named.",
           lambda own: own.change_draft(), Needs.ENGINE, hint="draft", worth=7, place=5),
    Action("speculation.model", "Draft model", "Name a model for drafting; it must have the same tokens as this one.",
           lambda own: own.ask_model(), Needs.ENGINE, hint="draft model", worth=4, place=7),
    *both(("speculation.fewer", "speculation.more"), ("Fewer", "More"), "Draft fewer tokens for a round, or more.",
          lambda own, by: own.control.change_number(by), needs=Needs.ENGINE, hint="number", worth=5, place=6),
    Action("speculation.verify", "Verify",
           "Decode the same tokens again by plain steps, in separate caches, and compare.",
           lambda own: own.verify(), Needs.ENGINE, worth=6, place=4,
           hint=lambda own: "verify" if own.control.state.rounds else ""),
    Action("speculation.anew", "Count anew", "Reset the counts, from the next round on.", lambda own: own.count_anew(),
           Needs.ENGINE, hint="anew", worth=3, place=8),
    back("speculation.leave", "Go back; a run under way pauses.", worth=10),
    text="A drafted token is accepted if the draw of its position takes the same token from the model's "
        "distribution, so the text is that of plain steps. `✓` accepted, `✗` refused, `?` after a refused one: not "
        "checked, `→` taken instead. The tokens taken are ordinary steps; refused drafts stand dim after the text "
        "until the next round.",
)  # fmt: skip
