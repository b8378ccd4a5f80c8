"""The sampler as a tool: its panel, and the settings that are tried in a dialog beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import Explained, ExplainSecond
from engine.settings import BY_NAME, FIELDS, Settings
from inspector.config.presets import Presets
from inspector.keys import key_for, names_of, with_keys
from inspector.main.finder import Findable
from inspector.main.looked import other_word, switch_model
from inspector.main.tool import PanelSpec, Tool, ToolActions, live
from inspector.session.requests import Replies
from inspector.state.lockstep import LockstepSoFar
from inspector.state.timeline import Phase, Timeline
from inspector.tools.sampler.panel import OfSecond, SamplerPanel, SettingsStrip
from inspector.widgets.actions import Action, ActionTable, Needs, both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

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
"""Other names of settings, with commas between."""
GRID, COARSE, FROM = 0.05, 0.1, 2.0
"""A press turns the temperature by the first, and by the second from the third on."""
NOT_HERE = "This token is part of the prompt: nothing was drawn, and no temperature changes it"
NO_ROW = "The logits of this token were not recorded: no other temperature can be tried on it. {go_live} continues live"
TAKEN = "{sampler.apply} belongs to the lesson now. {sampling} opens all settings"
STAYS = "The temperature stays as it is"
NOT_RECORDED = (
    "How the sampler would choose from the second model was not recorded. {go_live} continues live from here."
)
AWAITED = "The second model runs."
BUSY = "The second model can be explained when the run stops: {stop} pauses it."
TRIED = (
    "Recorded: the settings were only tried, and a recording can't continue with them. "
    "{go_live} continues live from here"
)


def turned(temp: float, by: int) -> float:
    """A temperature a press further: the next multiple of the step.

    Args:
        temp: Now.
        by: 1 for warmer, -1 for cooler.
    """
    step = COARSE if temp > FROM or (temp == FROM and by > 0) else GRID
    place = temp / step
    near = round(place)
    if abs(place - near) > 1e-6:  # between two of them
        near = math.floor(place) if by > 0 else math.ceil(place)
    return min(BY_NAME["temp"].high, max(0.0, round((near + by) * step, 2)))


class SamplerActions(ToolActions):
    """Shows why a token was chosen, and tries other settings."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._asks = False
        """True if the form is open."""
        self._slot: int | None = None
        """The slot selected before, None for the tip."""
        self._presets = Presets()
        self._second = Replies(self.controller.client, Explained)
        """Answers on the second model in lockstep; a recording has none."""

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
        from inspector.views.sampling_dialog import SamplingDialog

        timeline, setup, trial = self.timeline, self.controller.setup, self.timeline.trial
        self._asks = self.awake = True
        self._slot = None if timeline.following else timeline.slot
        self.host.arrangement.dialog = SAMPLER.id if self.controller.stepping else ""
        settings = trial.settings if trial is not None else setup.settings
        self._try(settings)
        self._ask()  # before the form is made, so that the first paint of it has the answers beside
        self._presets.refresh()
        dialog = SamplingDialog(
            settings,
            timeline.facts.vocabulary if timeline.facts else None,
            self._presets,
            attempt=self._try,
            look=self._look,
            at=timeline.older,
            above=card.outer_size.height if (card := self.host.card) is not None and card.display else 0,
            first=field,
        )
        self.host.open(dialog, self._end)

    # ---- turning the temperature ------------------------------------------------------------

    @property
    def turning(self) -> bool:
        """True if the temperature is turned: settings are tried without the form."""
        return self.timeline.trial is not None and not self._asks

    @property
    def can_turn(self) -> bool:
        """True if the keys turn it: the panel is the current one, or it is turned already, and nothing runs."""
        here = SAMPLER.id == self.host.arrangement.current or self.turning
        return here and SAMPLER.id in self.host.shown and self._rests

    @property
    def _rests(self) -> bool:
        return self.timeline.phase is Phase.READY and not self.controller.transport.running

    @property
    def _lesson_applies(self) -> bool:
        """True if a lesson takes the key that applies."""
        told = self.host.narrator.narration() if self.host.narrator is not None else None
        return told is not None and not told.keys.isdisjoint(names_of("sampler.apply"))

    def turn(self, by: int) -> None:
        """Turn the temperature a step, and show what it would make of the token on show; nothing is applied."""
        timeline, setup, trial = self.timeline, self.controller.setup, self.timeline.trial
        if refused := self._refusal(timeline):
            self.host.answer(refused)
            return
        settings = trial.settings if trial is not None else setup.settings
        self.controller.queries.try_out(timeline, replace(settings, temp=turned(settings.temp, by)))
        self.controller.queries.ask(timeline)
        self.host.expect()

    def _refusal(self, timeline: Timeline) -> str:
        if timeline.distribution is None:
            return NOT_HERE
        if timeline.recorded and timeline.before not in timeline.rows:
            return with_keys(NO_ROW)
        return with_keys(TAKEN) if self._lesson_applies else ""

    def apply(self) -> None:
        """Go on with the temperature as it is turned."""
        trial = self.timeline.trial
        if trial is not None and trial.settings == self.controller.setup.settings:
            self._discard(STAYS)
        elif trial is not None:
            self._end(trial.settings)

    def stop(self) -> bool:
        """Escape discards what was turned."""
        if not self.turning:
            return False
        self._discard()
        return True

    def _discard(self, answer: str = "") -> None:
        self.controller.queries.try_out(self.timeline, None)
        self.host.answer(answer)

    def _strip(self) -> SettingsStrip:
        """The settings for the row under the panel's table."""
        timeline, setup = self.timeline, self.controller.setup
        trial = timeline.trial if self.turning else None
        told = timeline.explanation() if trial is not None else None
        lacking = "" if told is None or told.failure is None else "not recorded here"
        if lacking and not timeline.recorded:
            lacking = with_keys("logits dropped: {recall}")
        now = trial.settings if trial is not None else None
        return SettingsStrip(setup.settings, now, timeline.older, lacking, timeline.recorded)

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show the sampler, if it is on screen, and ask what it lacks."""
        queries, timeline = self.controller.queries, self.timeline
        if not self._asks and self.turning and not (self.can_turn and not self._lesson_applies):
            queries.try_out(timeline, None)  # a run began, say, or the panel was left
            self.host.changed()
        if self._ask():
            second = None if self._asks else self._of_second()
            strip = None if self._asks or second is not None else self._strip()
            used, highlighted = queries.used(timeline), self.host.candidate
            self.host.panel(SamplerPanel).show(timeline, used, highlighted, strip, second)

    def _ask(self) -> bool:
        """Ask what the sampler lacks, if it is on show; returns whether it is."""
        queries = self.controller.queries
        queries.watching = self.host.arrangement.dialog == SAMPLER.id or SAMPLER.id in self.host.shown
        queries.ask(self.timeline)
        return queries.watching

    def _of_second(self) -> OfSecond | None:
        """The sampler's work on the second model's distribution at the slot, if that model is on show."""
        timeline, distribution = self.timeline, self.timeline.distribution
        looked = timeline.of(LockstepSoFar).looked
        if looked is None or distribution is None:
            return None
        if timeline.recorded:
            return OfSecond(looked.title, None, with_keys(NOT_RECORDED))
        used = self.controller.queries.used(timeline)
        about = looked, distribution.node, distribution.reroll, used
        if not timeline.running:
            self._second.want(about, ExplainSecond(distribution.node, used, distribution.reroll))
        failure = self._second.failure(about)
        why = f"{failure.message} {failure.hint}" if failure is not None else AWAITED
        if timeline.running:
            why = with_keys(BUSY)
        return OfSecond(looked.title, self._second.get(about), why)

    def other_word(self) -> str:
        """The word for the key that explains the other one of two models, while the sampler is on screen."""
        return other_word(self.timeline) if "sampler" in self.host.shown else ""

    def other_model(self) -> None:
        """Explain the other one of two models."""
        if not switch_model(self.timeline):
            self.host.answer(with_keys("There is no second model to explain: {lockstep} opens one"))
        elif SAMPLER.id in self.host.shown:
            self.host.answer()
        else:
            self.host.go_to(SAMPLER.id)

    def _try(self, settings: Settings) -> None:
        self.controller.queries.try_out(self.timeline, settings)
        self.host.answer()

    def _look(self, what: str, by: int) -> int | None:
        """Look elsewhere meanwhile, or have dropped logits computed again; returns where settings apply then."""
        if self.controller.stepping:
            match what:
                case "differing":
                    self.host.answer(self.controller.navigation.differing(by))
                case "recall":
                    self.host.answer(self.controller.setup.recall())
                case _:
                    self.timeline.walk(by)
                    self.host.answer()
        return self.timeline.older

    def _end(self, settings: Settings | None) -> None:
        """Apply the settings; or, if they were discarded, restore those before and the selected slot."""
        self._asks = self.awake = False
        self.host.arrangement.dialog = ""
        if settings is not None and not self.controller.transport.recorded:
            self.controller.setup.apply(settings)
            self.host.answer()
            return
        self.controller.queries.try_out(self.timeline, None)
        if settings is None:
            self.timeline.select(self._slot)
        self.host.answer("" if settings is None else with_keys(TRIED))


TURNING = ActionTable(
    "While the sampler's stages are shown",
    (
        *both(("sampler.cooler", "sampler.warmer"), ("Cooler", "Warmer"),
              "Try another temperature and see at once which token it would pick here; nothing is applied. During a "
              "run these keys set its pace.", lambda own, by: own.turn(by), hint="temperature", worth=11,
              place=25, needs=Needs.DISTRIBUTION | Needs.SESSION),
    ),
    when=lambda own: own.can_turn, panel="sampler",
)  # fmt: skip
TURNED = ActionTable(
    "While the temperature is turned",
    (
        Action("sampler.apply", "Apply", "Continue at this temperature from the selected token; not in a replay.",
               lambda own: own.apply(), hint=live("apply"), worth=12, place=50,
               needs=Needs.DISTRIBUTION | Needs.SESSION),
        Action("stop", help="Discard it; everything is as it was.", hint="discard", worth=12, place=55),
        Action("sampling", help="Open the form of all settings with it."),
    ),
    when=lambda own: own.turning and own.can_turn, panel="sampler",
)  # fmt: skip
SAMPLER = Tool(
    "sampler",
    "Why this token",
    SamplerActions,
    actions=(
        Action("why", "Why this token",
            "Show the sampler stage by stage: why this token was chosen. Esc goes back.",
            lambda own: own.host.go_to("sampler"), Needs.DISTRIBUTION, looks=True,
            synonyms="sampler stages, explain this token, reason, how was it chosen, sampling steps, the draw",
            view="stages"),
        Action("other_model", "Other model",
            "With a second model: show why the other model takes its token, with the same draw.",
            SamplerActions.other_model, Needs.DISTRIBUTION,
            hint=SamplerActions.other_word, worth=8, place=91,
            looks=True, synonyms="second model, other model, why the second model"),
        Action("sampling", "Sampling",
            "Change temperature, top-p, seed and the other sampling settings, and see at once what they would "
            "have picked.", SamplerActions.sampling, Needs.ENGINE, recorded=lambda own: bool(own.timeline.rows),
            hint=live("sampling"), worth=4, place=130,
            synonyms="sampling settings, sampler settings, preset, presets, generation parameters, hyperparameters",
            view="settings…"),
    ),
    panel=PanelSpec(SamplerPanel, "Why this token", "Sampler"),
    contexts=(TURNED, TURNING),
    dialogs=("inspector.views.sampling_dialog:SAMPLING_KEYS",),
)  # fmt: skip
