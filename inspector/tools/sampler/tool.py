"""The sampler as a tool: its panel, and the settings that are tried in a dialog beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from engine.settings import FIELDS, Settings
from inspector.keys import key_for, with_keys
from inspector.main.arrangement import Place
from inspector.main.finder import Findable
from inspector.main.tool import LOOK, SET_UP, Host, PanelSpec, Tool, ToolActions, live
from inspector.tools.sampler.panel import SamplerPanel
from inspector.widgets.actions import Action, Needs, applies, both, dialog_table, fields, leaves, note

SYNONYMS = {
    "temp": "temp, randomness, less random, more random, creativity, creative, greedy, deterministic",
    "top_p": "topp, nucleus sampling, nucleus",
    "top_k": "topk",
    "min_p": "minp",
    "seed": "random seed, reproducible, same result again",
    "max_tokens": "length, max new tokens, num predict, longer text",
    "min_tokens": "minimum length, forbid the end",
    "stop": "stop sequence, stop word, stop text",
    "candidates": "number of candidates, more candidates, top logprobs",
    "repetition_penalty": "repeat penalty, repeats itself, avoid repetition",
    "logit_bias": "ban a token, bias a token, forbid a token",
    "sampler_order": "order of the stages, order of llama.cpp, order of transformers",
}
"""What else settings are called, with commas between."""
TRIED = "Recorded: the settings were tried, and can't be gone on with. {go_live} goes on live from here"


class SamplerActions(ToolActions):
    """Shows why a token was chosen, and tries other settings."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._open = False
        """Whether settings are tried, with the sampler in sight."""
        self._slot: int | None = None
        """The slot selected before, None for the tip."""

    def findable(self) -> Iterator[Findable]:
        """The settings: each opens the dialog at its field."""
        keys = key_for("sampling")
        for each in FIELDS:
            label = f"{each.label[0].upper()}{each.label[1:]}"
            yield Findable(f"setting {each.name}", label, f"{each.help[0].upper()}{each.help[1:]}.", "Sampling", keys,
                           SYNONYMS.get(each.name, ""), "sampling", partial(self.sampling, each.name))  # fmt: skip

    def sampling(self, field: str = "") -> None:
        """Ask for sampling settings, and show what they would have picked as they are typed.

        Args:
            field: Name of the one to begin with; empty for the first.
        """
        from inspector.tools.sampler.dialog import SamplingDialog

        timeline, setup = self.timeline, self.controller.setup
        self._open, self._slot = self.controller.stepping, None if timeline.following else timeline.slot
        dialog = SamplingDialog(
            setup.settings,
            timeline.facts.vocabulary if timeline.facts else None,
            attempt=self._try,
            look=self._look,
            at=lambda: setup.applies_at,
            above=card.outer_size.height if (card := self.host.card) is not None and card.display else 0,
            first=field,
        )
        self.host.open(dialog, self._end)
        self.host.answer()

    @property
    def in_dialog(self) -> bool:
        """Whether settings are tried."""
        return self._open

    def show(self) -> None:
        """Show the sampler, where it is on screen, and ask what it lacks."""
        queries, timeline = self.controller.queries, self.timeline
        queries.watching = self._open or SAMPLER.id in self.host.shown
        if queries.watching:
            queries.ask(timeline)
            self.host.panel(SamplerPanel).show(timeline, queries.used(timeline), self.host.candidate)

    def _try(self, settings: Settings) -> None:
        self.controller.queries.try_out(self.timeline, settings)
        self.host.answer()

    def _look(self, what: str, by: int) -> None:
        """Look elsewhere meanwhile, or have dropped logits computed again."""
        if not self.controller.stepping:
            return
        match what:
            case "differing":
                self.host.answer(self.controller.navigation.differing(by))
            case "recall":
                self.host.answer(self.controller.setup.recall())
            case _:
                self.timeline.walk(by)
                self.host.answer()

    def _end(self, settings: Settings | None) -> None:
        """Apply the settings; or, where they were discarded, restore those before and the selected slot."""
        self._open = False
        if settings is not None and not self.controller.transport.recorded:
            self.controller.setup.apply(settings)
            self.host.answer()
            return
        self.controller.queries.try_out(self.timeline, None)
        if settings is None:
            self.timeline.select(self._slot)
        self.host.answer("" if settings is None else with_keys(TRIED))


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
            synonyms="sampler stages, explain this token, reason, how was it chosen, sampling steps, the draw"),
        Action("sampling", "Sampling",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", lambda own: own.sampling(), Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("sampling"), worth=4, place=130, group=SET_UP,
            synonyms="sampling settings, sampler settings, preset, presets, generation parameters, hyperparameters"),
    ),
    panel=PanelSpec(SamplerPanel, Place.SIDE, "Why this token", "Sampler", "the sampler"),
    owners=(SAMPLING_KEYS,),
)  # fmt: skip
