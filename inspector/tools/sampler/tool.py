"""The sampler as a tool: its panel, and the settings that are tried in a dialog beside it."""

from __future__ import annotations

from inspector.main.arrangement import Place
from inspector.main.tool import LOOK, SET_UP, Host, PanelSpec, Tool, ToolActions, live
from inspector.tools.sampler.panel import SamplerPanel
from inspector.tools.sampler.what_if import WhatIfFlow
from inspector.widgets.actions import Action, Needs, applies, both, dialog_table, fields, leaves, note


class SamplerActions(ToolActions):
    """Shows why a token was chosen, and tries other settings."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._flow = WhatIfFlow(host)

    def sampling(self) -> None:
        """Ask for sampling settings, and show what they would have picked as they are typed."""
        self.host.open(self._flow.dialog(), self._flow.end)
        self.host.answer()

    @property
    def in_dialog(self) -> bool:
        """Whether settings are tried."""
        return self._flow.open

    def show(self) -> None:
        """Show the sampler, where it is on screen, and ask what it lacks."""
        queries, timeline = self.controller.queries, self.timeline
        queries.watching = self._flow.open or SAMPLER.id in self.host.shown
        if queries.watching:
            queries.ask(timeline)
            self.host.panel(SamplerPanel).show(timeline, queries.used(timeline), self.host.candidate)


SAMPLING_KEYS = dialog_table(
    "While sampling settings are tried",
    *fields("Go from field to field."),
    note("left right", "On the presets: go through them; the fields take their values."),
    Action("sampling.delete_preset", "Delete preset", "On a preset of your own: delete it, when pressed twice.",
           lambda own: own.delete_preset()),
    *both(("sampling.token_before", "sampling.next_token"), ("Earlier token", "Later token"),
          "Look at the token before or after.", lambda own, by: own.look("walk", by), hint="token", worth=3,
          priority=True),
    *both(("sampling.difference_before", "sampling.next_difference"), ("Earlier difference", "Next difference"),
          "Look at the step before or after that would differ.", lambda own, by: own.look("differing", by),
          hint="difference", worth=2, priority=True),
    Action("sampling.recall", "Recompute", "Compute logits again that were dropped.",
           lambda own: own.look("recall", 0), hint="recompute", worth=1, priority=True),
    applies("Go on with the settings, from the token that is looked at; not in a replay.",
            written="`{dialog.apply}` or `⏎`"),
    leaves("Discard them; everything is as it was."),
)  # fmt: skip
SAMPLER = Tool(
    "sampler",
    "Why this token",
    SamplerActions,
    actions=(
        Action("why", "Why this token",
            "Show the sampler stage by stage: why this token was chosen. Again, or esc, to go back.",
            lambda own: own.host.toggle("sampler"), Needs.DISTRIBUTION, hint="why", worth=6, place=90, group=LOOK,
            synonyms="sampler stages explain reason chosen draw"),
        Action("sampling", "Sampling",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", SamplerActions.sampling, Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("sampling"), worth=4, place=130, group=SET_UP,
            synonyms="temperature settings top p top k min p seed penalty penalties preset random greedy creative"),
    ),
    panel=PanelSpec(SamplerPanel, Place.SIDE, "Why this token", "Sampler", "the sampler"),
    owners=(SAMPLING_KEYS,),
)  # fmt: skip
