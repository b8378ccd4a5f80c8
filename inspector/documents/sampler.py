"""The choice of the sampler: a column for each stage, and the reason for the token in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum, isnan
from operator import attrgetter

from msgspec import Struct

from engine.protocol import Candidate, Distribution, Explained, Failure, StageReading, Step
from engine.settings import STAGES, Settings
from inspector import scales
from inspector.display import quoted, token_label, visible
from inspector.documents.grammar import sentences
from inspector.state.candidates import is_untouched
from inspector.state.session_tree import Item, quoted_label
from inspector.widgets.charts import places

LOGIT, MODEL, FINAL, NOW = "logit", "model", "final", "now"
"""Columns that are not stages; the last one is shown while other settings are tried."""
CELLS = 8
"""Cells of a column, its gap at the left included."""
UNKNOWN = "·"
"""Shown for a number that the engine has not sent yet, or can't send."""
_ID = attrgetter("id")
PENALTIES = [name for name, stage in STAGES.items() if stage.setting.endswith("_penalty")]
SHAPING = ("logit-bias", *PENALTIES)
"""Stages that change logits and cut nothing."""
BY_HAND = {
    "chosen": "chosen by hand",
    "inserted": "inserted",
    "intervened": "kept, and run again under interventions",
}
"""Words for a token that the sampler did not take, by its origin."""
PERCENT = "\u00a0%"
"""A percent sign that no line break separates from its number."""


# ---- columns ------------------------------------------------------------------------------------


class TableColumn(Struct, frozen=True):
    """One column: what it is, what the stage did, and a text for each candidate."""

    name: str
    """Name of the stage; or `logit`, `model`, `final`, `now`."""
    head: str
    setting: str
    kept: int | None
    """Number of tokens left after it; None if that means nothing."""
    removed: float
    cells: tuple[str, ...]
    """A text for each candidate; empty if the candidate is cut by this stage or an earlier one."""
    shares: tuple[float, ...] = ()
    """Probabilities of the candidates, if the column shows them; 0 for one that is cut or isn't known."""
    beyond: float | None = None
    """Probability of all other tokens together; None if the column shows none, or it isn't known."""


def columns(
    distribution: Distribution,
    explained: Explained | None,
    settings: Settings | None,
    now: Distribution | None = None,
) -> tuple[TableColumn, ...]:
    """All columns, in the order in which the stages ran.

    Args:
        distribution: The distribution that is drawn from, with the stages and what they kept and cut.
        explained: The values between the stages; None while they are not known.
        settings: The settings that the stages ran with; None if they are not known.
        now: The present distribution, if `distribution` is only tried.
    """
    candidates = distribution.candidates
    values: dict[int, float] = {}
    if explained is not None:
        values.update(zip(map(_ID, explained.next.candidates), explained.logits, strict=True))
    final = tuple(
        "" if each.cut_by not in (None, "greedy") else _percent(each.sampler_prob) for each in candidates
    )
    vocabulary = distribution.others + len(candidates)
    # without percent signs, which the heads have
    table = [
        TableColumn(LOGIT, "logit", "", None, 0.0,
                    tuple(scales.decimal(values[each.id]) if each.id in values else UNKNOWN for each in candidates)),
        TableColumn(MODEL, "model %", "", vocabulary, 0.0, tuple(scales.percent(each.prob, "") for each in candidates),
                    tuple(each.prob for each in candidates), distribution.others_prob),
    ]  # fmt: skip
    ran: list[str] = []
    for stage in distribution.stages:
        ran.append(stage.name)
        if stage.name != "greedy":
            table.append(_stage(stage, ran, candidates, explained, settings))
    drawable = distribution.stages[-1].kept if distribution.stages else None
    head = "taken %" if distribution.draw is None else "final %"
    shares = tuple(0.0 if isnan(each.sampler_prob) else each.sampler_prob for each in candidates)
    beyond = distribution.others_sampler_prob
    table.append(TableColumn(FINAL, head, "", drawable, 0.0, final, shares, beyond))
    return (*table, _now(now, candidates)) if now is not None else (*table,)


def _percent(share: float | None) -> str:
    """A share without a percent sign, which the heads of the columns have."""
    return UNKNOWN if share is None or isnan(share) else scales.percent(share, "")


def _now(now: Distribution, candidates: Sequence[Candidate]) -> TableColumn:
    """The column of the present distribution, for the candidates of the tried one."""
    finals = {each.id: each.sampler_prob for each in now.candidates}
    beyond = now.others_sampler_prob
    if is_untouched(now):  # then a token's share is its probability by the model, also beyond the candidates
        more = {each.id: each.prob for each in candidates if each.id not in finals}
        finals, beyond = finals | more, max(0.0, beyond - sum(more.values()))
    cells = tuple(
        scales.percent(finals[each.id], "") if each.id in finals else UNKNOWN for each in candidates
    )
    shares = tuple(finals.pop(each.id, 0.0) for each in candidates)
    return TableColumn(NOW, "now %", "", None, 0.0, cells, shares, beyond + sum(finals.values()))


def _stage(
    stage: StageReading,
    ran: Sequence[str],
    candidates: Sequence[Candidate],
    explained: Explained | None,
    settings: Settings | None,
) -> TableColumn:
    """The column of a stage; `ran` has the names of the stages up to it. The cell of a token that they cut is empty."""
    columns = {each.name: each for each in explained.columns} if explained is not None else {}
    read, known = columns.get(stage.name), STAGES.get(stage.name)
    percent = known is not None and known.kind != "logits"
    shares: tuple[float, ...] = ()
    texts: dict[int, str] = {}
    beyond = None
    if explained is not None and read is not None:
        percent = read.unit == "prob"
        ids = map(_ID, explained.next.candidates)
        values = {id: value for id, value in zip(ids, read.values, strict=True) if value is not None}
        texts = {id: _percent(value) if percent else scales.decimal(value) for id, value in values.items()}
        if percent:
            shares = tuple(0.0 if each.cut_by in ran else values.get(each.id, 0.0) for each in candidates)
            beyond = max(0.0, 1 - fsum(shares)) if stage.kept > sum(map(bool, shares)) else 0.0
    cells = tuple("" if each.cut_by in ran else texts.get(each.id, UNKNOWN) for each in candidates)
    set_to = ""
    if known is not None and settings is not None:
        set_to = known.shown(settings) if known.shown is not None else f"{getattr(settings, known.setting):g}"
    head = (known.head if known and known.head else stage.name) + (" %" if percent else "")
    return TableColumn(stage.name, head, set_to, stage.kept, stage.removed_mass, cells, shares, beyond)


def fitting(columns: Sequence[TableColumn], room: int) -> tuple[tuple[TableColumn, ...], int]:
    """The columns that fit into `room` cells, and how many stages are left out.

    The raw logits are left out first, then stages that changed no number, then stages that show logits, then others.
    """
    middle = [column for column in columns if column.name not in (LOGIT, MODEL, FINAL, NOW)]
    idle = [b for a, b in pairwise(columns[1:]) if b in middle and a.cells == b.cells]
    shaping = [column for column in middle if "%" not in column.head and column not in idle]
    rest = [column for column in reversed(middle) if column not in idle and column not in shaping]
    kept = list(columns)
    for column in (*(each for each in columns if each.name == LOGIT), *idle, *shaping, *rest):
        if len(kept) * CELLS <= room:
            break
        kept.remove(column)
    return tuple(kept), sum(column not in kept and column.name != LOGIT for column in columns)


# ---- the reason, in sentences for a reader who has never seen a sampler --------------------------


class Reason(Struct, frozen=True):
    """One choice of the sampler, and the reason for it."""

    distribution: Distribution
    """The distribution that was, or would be, drawn from."""
    settings: Settings | None = None
    """Settings of the sampler; None if they are not known."""
    explained: Explained | None = None
    """The values between the stages, None while they are not known."""
    taken: int | None = None
    """Token id at the slot."""
    failure: Failure | None = None
    """Why these values are not known."""
    now: Distribution | None = None
    """The present distribution, if other settings are tried."""
    against: int | None = None
    """The candidate for which to say why it was not picked; None for the one that would be expected."""

    def sentences(self, item: Item | None = None) -> list[str]:
        """The reason for this token, the most important sentence first; printable.

        Args:
            item: The slot's token, None for the token to come.
        """
        reasons: list[str] = []
        if isinstance(item, Step) and item.id != self.distribution.picked:
            label = quoted(token_label(item.text, item.raw, item.pending))
            word = BY_HAND.get(item.origin, "taken")
            reasons.append(f"{label} was {word}; the sampler would have taken another.")
        draw, low, high = places(self.distribution)
        times, share = self.distribution.reroll, f"{low} to {high}."
        again = f" (drawn again {times}×)" if times else ""
        story = self._story(f"The draw {draw}{again} falls on its share, {share}")
        if self.against is not None and self.distribution.draw is not None and len(story) > 2:
            belief, _, missed, *_ = story  # the answer first
            story = [missed, f"The draw {draw}{again} falls on {self._picked}, {share}", belief]
        reasons += story
        if (grammar := self.distribution.grammar) is not None:
            reasons += [f"Grammar: {sentence}" for sentence in sentences(grammar)[:1]]
        return reasons

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
        """The probability by the model and what the stages made of it, the draw, and why it isn't another token."""
        if self.distribution.draw is None:
            return self._greedy()
        other = self._candidate(self.against)
        if other is None or other.id == self.distribution.picked:
            other = self._expected()
        return [self._belief(), draw, *([self._missed(other)] if other is not None else [])]

    def _belief(self) -> str:
        doings, picked = ", ".join(self._doings()), self._candidate(self.distribution.picked)
        if picked is None:
            return f"The token is beyond the candidates; {doings or 'no sampler stage changed anything'}."
        belief = f"{quoted_label(picked)} has {scales.percent(picked.prob, PERCENT)} by the model "
        belief += f"(rank {scales.count(picked.rank)})"
        if not doings:
            return f"{belief}, and no sampler stage changed that."
        share = scales.percent(picked.sampler_prob, PERCENT)
        return f"{belief}; {doings}; it now covers {share} of the line."

    def _candidate(self, id: int | None) -> Candidate | None:
        return next((each for each in self.distribution.candidates if each.id == id), None)

    def _expected(self) -> Candidate | None:
        """The token that one would expect instead of the picked one; None if that is the most probable one."""
        top, picked = self.distribution.candidates[0], self.distribution.picked
        if top.id == picked or top.cut_by is not None:
            return None if top.id == picked else top
        best = max(self.distribution.candidates, key=attrgetter("sampler_prob"))
        return top if best.id == picked else best

    def _missed(self, other: Candidate) -> str:
        """Why it isn't another token."""
        label, moved = f"{quoted_label(other)} ({scales.percent(other.prob, PERCENT)})", self._moved(other.id)
        if other.cut_by not in (None, "greedy"):
            return f"{label} can't be drawn: {visible(other.cut_by or '')} cut it."
        if self.distribution.draw is None:
            return f"{label} is not taken: {moved or 'its logit is lower'}."
        if isnan(other.sampler_prob):  # a token beyond the candidates, with settings that are only tried
            return f"{label} is beyond the candidates; the draw missed it."
        share = other.sampler_prob
        low = fsum(each.sampler_prob for each in self.distribution.candidates if each.sampler_prob > share)
        if other.rank == 1 and low:
            return f"{label} fell behind: {moved or 'the stages changed the order'}."
        ends = [scales.cut(low) if low else "0", scales.cut(low + share)]
        same = f"{scales.percent(share, PERCENT)} of the line"
        covers = same if ends[0] == ends[1] else " to ".join(ends)
        top = "The top candidate " if other.rank == 1 else ""
        return f"{top}{label} covers {covers}; the draw missed it."

    # ---- greedy -----------------------------------------------------------------------------

    def _greedy(self) -> list[str]:
        top, other = self.distribution.candidates[0], self._candidate(self.against)
        missed = [self._missed(other)] if other is not None and other.id != self.distribution.picked else []
        if self.distribution.picked == top.id:
            return [f"Greedy takes the most probable token, {self._picked}: there is no draw.", *missed]
        lowered = self._moved(top.id) or "a penalty or bias put another before it"
        why = f"{visible(top.cut_by)} cut it" if top.cut_by not in (None, "greedy") else lowered
        return [
            f"Greedy takes {self._picked}, the highest logit in the end: there is no draw.",
            f"The model's own favourite is {quoted_label(top)} ({scales.percent(top.prob, PERCENT)}), but {why}.",
            *(missed if other is not top else []),
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
                doings.append(f"{visible(stage.name)} kept {scales.counted(stage.kept, 'token')}")
            elif stage.name == "temperature" and self.settings is not None and left > 1:
                word = "flattened" if self.settings.temp > 1 else "sharpened"
                doings.append(f"temperature {self.settings.temp:g} {word} the distribution")
            left = stage.kept
        if not shaping:
            return doings
        others = f"{_list(shaping)} changed {'other logits' if self.explained else 'logits'}"
        return [self._moved(self.distribution.picked) or others, *doings]

    def _moved(self, id: int) -> str:
        """The stages that changed a token's own logit, and its values; empty if none did or they aren't known."""
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
        return (
            f"{_list(names)} {word} its logit {scales.decimal(before)} to {scales.decimal(value)}"
            if names
            else ""
        )


def _list(names: Sequence[str]) -> str:
    shown = [visible(name) for name in names]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def label_of(distribution: Distribution, id: int) -> str:
    """A candidate by its id, as a sentence shows it."""
    return next((quoted_label(each) for each in distribution.candidates if each.id == id), f"id {id}")


# ---- notes --------------------------------------------------------------------------------------


def xtc(distribution: Distribution, settings: Settings | None) -> str:
    """The sentence on whether XTC fired; empty if it is off or not known."""
    if settings is None or settings.temp == 0 or settings.xtc_probability == 0:
        return ""
    left = distribution.others + len(distribution.candidates)
    for stage in distribution.stages:
        if stage.name == "xtc":
            if not (cut := left - stage.kept):
                return "XTC fired, but fewer than two tokens are above its threshold: it cut none."
            which = "the most probable token" if cut == 1 else f"the {cut} most probable tokens"
            return (
                f"XTC fired: it cut {which}, {scales.percent(stage.removed_mass, PERCENT)} of what was left."
            )
        left = stage.kept
    share = f"{settings.xtc_probability:.0%}"
    return f"XTC did not fire here: by a draw of its own it does on {share} of the steps."


def penalised(
    candidate: Candidate,
    earlier: Sequence[int],
    items: Sequence[Item],
    settings: Settings | None,
) -> str:
    """A sentence on the earlier occurrences for which a token is penalised; empty if there are none."""
    if not earlier:
        return ""
    on = [name for name in PENALTIES if settings is not None and getattr(settings, f"{name}_penalty")]
    by = f" by {_list(on)}" if on else ""
    places = []
    for position in earlier:
        before = items[position - 1] if 0 < position <= len(items) else None
        item = items[position] if position < len(items) else None
        place = f"at step {item.index + 1}" if isinstance(item, Step) else "in the prompt"
        if before is not None and before.text:
            place += f" after {quoted_label(before)}"
        places.append(place)
    return f"{quoted_label(candidate)} is penalised{by}: it occurs {', '.join(places)}."


def earlier_of(reason: Reason) -> dict[int, tuple[int, ...]]:
    """The earlier positions for which each candidate is penalised, by its id; empty if no penalty is on."""
    explained = reason.explained
    if explained is None or all(stage.name not in PENALTIES for stage in reason.distribution.stages):
        return {}
    return dict(zip(map(_ID, explained.next.candidates), explained.earlier, strict=True))
