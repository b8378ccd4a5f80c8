"""The sampler as a tool: its panel, and the settings that are tried in a dialog beside it."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.arrangement import Place
from inspector.main.tool import (
    LOOK,
    SET_UP,
    HelpSection,
    Hint,
    Host,
    Key,
    Needs,
    PanelSpec,
    Tool,
    ToolActions,
    When,
)
from inspector.tools.sampler.panel import SamplerPanel
from inspector.tools.sampler.what_if import WhatIfFlow


class SamplerActions(ToolActions):
    """Shows why a token was chosen, and tries other settings."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._flow = WhatIfFlow(host)

    def why(self) -> None:
        """Show why this token was chosen, or go back."""
        self.host.toggle(SAMPLER.id)

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


SAMPLER = Tool(
    "sampler",
    "Why this token",
    SamplerActions,
    keys=(
        Key("why", *KEYS["why"], "Why this token", LOOK,
            "Show the sampler stage by stage: why this token was chosen. Again, or esc, to go back.",
            SamplerActions.why, Needs.DISTRIBUTION),
        Key("sampling", *KEYS["sampling"], "Sampling", SET_UP,
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", SamplerActions.sampling, Needs.ENGINE,
            recorded=lambda own: bool(own.timeline.rows)),
    ),
    panel=PanelSpec(SamplerPanel, Place.SIDE, "Why this token", "Sampler", "the sampler"),
    hints=(Hint(9, ("why",), "why", 6), Hint(13, ("sampling",), "sampling", 4, When.LIVE)),
    help=(
        HelpSection(
            "While sampling settings are tried",
            (
                ("`↑` `↓`", "Go from field to field."),
                ("`←` `→`", "On the presets: go through them; the fields take their values."),
                ("`del`", "On a preset of your own: delete it, when pressed twice."),
                ("`shift+↑` `shift+↓`", "Look at the token before or after."),
                ("`pgup` `pgdn`", "Look at the step before or after that would differ."),
                ("`ctrl+r`", "Compute logits again that were dropped."),
                ("`ctrl+s` or `⏎`", "Go on with the settings, from the token that is looked at; not in a replay."),
                ("`esc`", "Discard them; everything is as it was."),
            ),
        ),
    ),
)  # fmt: skip
