"""The reason for a token in plain sentences, for a reader who has never seen a sampler."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from engine.frozen import frozen
from engine.protocol import Candidate, Distribution, Explained, StageReading, Step
from engine.settings import STAGES, Settings
from inspector import scales
from inspector.display import quoted, token_label, visible
from inspector.state.grammar import sentences
from inspector.state.session_tree import Item
from inspector.widgets.charts import places

PENALTIES = [name for name, stage in STAGES.items() if stage.setting.endswith("_penalty")]
SHAPING = ("logit-bias", *PENALTIES)
"""Stages that change logits and cut nothing."""
BY_HAND = {
    "chosen": "chosen by hand",
    "inserted": "inserted",
    "intervened": "kept, and run again under interventions",
}
"""What was done to a token that the sampler did not take, by its origin."""
PERCENT = "\u00a0%"
"""Behind a number that no line break is to tear from it."""


@frozen
class Reason:
    """The reason for one choice."""

    distribution: Distribution
    """The distribution that was, or would be, drawn from."""
    settings: Settings | None = None
    """Of the sampler, None where they are not known."""
    explained: Explained | None = None
    """The values between the stages, None while they are not known."""

    def sentences(self, item: Item | None = None) -> list[str]:
        """The reason for this token, the most important sentence first; printable.

        Args:
            item: The slot's token, None for the token to come.
        """
        told: list[str] = []
        if isinstance(item, Step) and item.id != self.distribution.picked:
            label = quoted(token_label(item.text, item.raw, item.pending))
            word = BY_HAND.get(item.origin, "taken")
            told.append(f"{label} was {word}; the sampler would have taken another.")
        draw, low, high = places(self.distribution)
        times = self.distribution.reroll
        again = f" (drawn again {times}×)" if times else ""
        told += self._story(f"The draw {draw}{again} falls on its share, {low} to {high}.")
        if (grammar := self.distribution.grammar) is not None:
            told += [f"Grammar: {sentence}" for sentence in sentences(grammar)[:1]]
        return told

    def tried(self, now: Distribution) -> list[str]:
        """The pick of the tried settings, and the reason for it; printable.

        Args:
            now: The present distribution.
        """
        end = f"{self._picked} again"
        if self.distribution.picked != now.picked:
            end = f"{self._picked}, not {label_of(now, now.picked)}"
        if self.distribution.draw is None:
            return [f"Greedy would take {end}, without a draw."]
        draw, low, high = places(self.distribution)
        first = f"The same draw {draw} would take {end}."
        return [first, *self._story(f"Its share is {low} to {high}.")]

    @property
    def _picked(self) -> str:
        return label_of(self.distribution, self.distribution.picked)

    def _story(self, draw: str) -> list[str]:
        """The probability by the model and what the stages made of it, the draw, and why it is no other token."""
        if self.distribution.draw is None:
            return self._greedy()
        doings = ", ".join(self._doings()) or "no stage changed anything"
        belief, share = "The token is beyond the candidates;", "a part"
        for each in self.distribution.candidates:
            if each.id == self.distribution.picked:
                share = scales.percent(each.sampler_prob, PERCENT)
                rank = scales.count(each.rank)
                belief = (
                    f"{_label(each)} has {scales.percent(each.prob, PERCENT)} by the model (rank {rank});"
                )
                break
        story = [f"{belief} {doings}, so it holds {share} of the draws.", draw]
        # why it is not the token that one would expect
        top = self.distribution.candidates[0]
        if top.id == self.distribution.picked:
            return story
        label = f"{_label(top)} ({scales.percent(top.prob, PERCENT)})"
        if top.cut_by is not None:
            return [*story, f"{label} can't be drawn: {visible(top.cut_by)} cut it."]
        best = max(self.distribution.candidates, key=attrgetter("sampler_prob"))
        if best.id == self.distribution.picked:
            return [*story, f"{label} fell behind: {self._moved(top.id) or 'the stages changed the order'}."]
        often = "most draws take it, this one is beyond" if best.sampler_prob > 0.5 else "this draw is beyond"
        label = f"{_label(best)} ({scales.percent(best.prob, PERCENT)})"
        return [*story, f"{label} holds 0 to {best.sampler_prob:.3f}: {often}."]

    # ---- greedy -----------------------------------------------------------------------------

    def _greedy(self) -> list[str]:
        top = self.distribution.candidates[0]
        if self.distribution.picked == top.id:
            return [f"Greedy takes the most probable token, {self._picked}: there is no draw."]
        lowered = self._moved(top.id) or "a penalty or bias put another before it"
        why = f"{visible(top.cut_by)} cut it" if top.cut_by not in (None, "greedy") else lowered
        return [
            f"Greedy takes {self._picked}, the highest logit in the end: there is no draw.",
            f"The model's own favourite is {_label(top)} ({scales.percent(top.prob, PERCENT)}), but {why}.",
        ]

    # ---- drawn ------------------------------------------------------------------------------

    def _doings(self) -> list[str]:
        """The effect of bias and penalties on the picked token, or else on the others; then that of each stage that
        cuts or scales."""
        left = self.distribution.others + len(self.distribution.candidates)
        doings: list[str] = []
        shaping: list[str] = []
        for stage in self.distribution.stages:
            if stage.name in SHAPING:
                shaping.append(stage.name)
            if stage.kept < left:
                doings.append(f"{visible(stage.name)} kept {_tokens(stage.kept)}")
            elif stage.name == "temperature" and self.settings is not None:
                word = "flattened" if self.settings.temp > 1 else "sharpened"
                doings.append(f"temperature {self.settings.temp:g} {word} them")
            left = stage.kept
        if not shaping:
            return doings
        others = f"{_list(shaping)} changed {'other logits' if self.explained else 'logits'}"
        return [self._moved(self.distribution.picked) or others, *doings]

    def _moved(self, id: int) -> str:
        """The stages that changed a token's own logit, and its values; empty where none did or they aren't known."""
        if self.explained is None:
            return ""
        ids = [candidate.id for candidate in self.explained.next.candidates]
        if id not in ids:
            return ""
        place = ids.index(id)
        before = value = self.explained.logits[place]
        names = []
        for column in self.explained.columns:
            following = column.values[place]
            if column.unit == "logit" and following is not None and following != value:
                names.append(column.name)
                value = following
        word = "lowered" if value < before else "raised"
        return f"{_list(names)} {word} its logit {before:.2f} to {value:.2f}" if names else ""


def _tokens(count: int) -> str:
    return f"{scales.count(count)} token{'s' * (count != 1)}"


def _list(names: Sequence[str]) -> str:
    shown = [visible(name) for name in names]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _label(candidate: Candidate) -> str:
    return quoted(token_label(candidate.text, candidate.raw))


def label_of(distribution: Distribution, id: int) -> str:
    """A candidate by its id, as a sentence shows it."""
    for candidate in distribution.candidates:
        if candidate.id == id:
            return _label(candidate)
    return f"id {id}"


# ---- notes ------------------------------------------------------------------------------------


def xtc(distribution: Distribution, settings: Settings | None) -> str:
    """The sentence on whether XTC fired; empty where it is off or not known."""
    if settings is None or settings.temp == 0 or settings.xtc_probability == 0:
        return ""
    left = distribution.others + len(distribution.candidates)
    for stage in distribution.stages:
        if stage.name == "xtc":
            return _fired(stage, left - stage.kept)
        left = stage.kept
    return (
        f"XTC did not fire here: by a draw of its own it does on {settings.xtc_probability:.0%} of the steps."
    )


def _fired(stage: StageReading, cut: int) -> str:
    if not cut:
        return "XTC fired, but fewer than two tokens are above its threshold: it cut none."
    which = "the most probable token" if cut == 1 else f"the {cut} most probable tokens"
    return f"XTC fired: it cut {which}, {scales.percent(stage.removed_mass, PERCENT)} of what was left."


def penalised(
    candidate: Candidate,
    earlier: Sequence[int],
    items: Sequence[Item],
    settings: Settings | None,
) -> str:
    """A sentence on the earlier occurrences that a penalty holds against a token; empty where there are none."""
    if not earlier:
        return ""
    on = [name for name in PENALTIES if settings is not None and getattr(settings, f"{name}_penalty")]
    by = f" by {_list(on)}" if on else ""
    where = ", ".join(_place(position, items) for position in earlier)
    return f"{_label(candidate)} is penalised{by}: it occurs {where}."


def _place(position: int, items: Sequence[Item]) -> str:
    before = items[position - 1] if 0 < position <= len(items) else None
    after = (
        f" after {quoted(token_label(before.text, before.raw))}" if before is not None and before.text else ""
    )
    item = items[position] if position < len(items) else None
    return f"at step {item.index + 1}{after}" if isinstance(item, Step) else f"in the prompt{after}"
