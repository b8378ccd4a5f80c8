"""The sampler, stage by stage and in sentences: why this token, and what other settings would have picked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import fsum, isnan
from operator import attrgetter

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content

from engine.protocol import Candidate, Distribution, Explained, Failure, StageReading, Step
from engine.settings import BY_NAME, STAGES, Settings, differences
from inspector import scales
from inspector.display import pad, quoted, token_label, truncate_words, visible
from inspector.documents.grammar import sentences
from inspector.keys import key_for, names_of, with_keys
from inspector.main.looked import model_prefix
from inspector.main.panels.candidates import is_untouched
from inspector.main.tool import CandidateChosen, CandidateClicked
from inspector.state.candidates import with_own
from inspector.state.conditions import settings_words
from inspector.state.lockstep import LockstepSoFar
from inspector.state.session_tree import Item
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.actions import pressing
from inspector.widgets.canvas import PanelCanvas, Row, centred, grounded, why_empty, wrapped
from inspector.widgets.charts import places, ruler

LOGIT, MODEL, FINAL, NOW = _NO_STAGE = "logit", "model", "final", "now"
"""Columns that are no stage; the last one is shown while other settings are tried."""
CELLS = 8
"""Cells of a column, its gap at the left included."""
UNKNOWN = "·"
"""Shown for a number that the engine has not sent yet, or can't."""
_MARK, _LEAST_TOKEN, _MOST_TOKEN = 3, 12, 40
_STRIP_FROM = 9
"""Rows from which the settings have one while nothing is turned."""
_LEAST_ROWS = 4
"""Rows that the table has at least."""
_ID = attrgetter("id")
ADVICE = "{recall} computes them again."
LISTED = (
    "A server sent this token: how its sampler took it isn't known.",
    "With the model it is computed again.",
)
"""Shown instead of the stages if a server's reply is all there is."""
REPLAY_ADVICE = "{go_live} continues live."
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
"""The sign that no line break tears from its number."""


# ---- what is shown ------------------------------------------------------------------------------


class OfSecond(Struct, frozen=True):
    """The sampler's work on the second model's distribution at the slot."""

    title: str
    """Name of the second model; not yet printable."""
    explained: Explained | None
    why: str
    """Why there is no explanation, as a sentence; not yet printable."""


# ---- columns ------------------------------------------------------------------------------------


class TableColumn(Struct, frozen=True):
    """One column: what it is, what the stage did, and a text for each candidate."""

    name: str
    """Name of the stage; or `logit`, `model`, `final`, `now`."""
    head: str
    setting: str
    kept: int | None
    """Tokens left after it; None if that means nothing."""
    removed: float
    cells: tuple[str, ...]
    """Empty for a candidate that is cut here or was before."""
    shares: tuple[float, ...] = ()
    """Probabilities of the candidates, if it shows probabilities; 0 for one that is cut or isn't known."""
    beyond: float | None = None
    """Probability of all other tokens together; None if it shows none, or it isn't known."""


def columns(
    distribution: Distribution,
    explained: Explained | None,
    settings: Settings | None,
    now: Distribution | None = None,
) -> tuple[TableColumn, ...]:
    """All columns, in the order in which the stages ran.

    Args:
        distribution: What is drawn from; it holds the stages, what they kept and what they cut.
        explained: The values in between, None while they are not known.
        settings: Those that the stages ran with; None if they are not known.
        now: The present distribution, where `distribution` is only tried.
    """
    candidates = distribution.candidates
    values: dict[int, float] = {}
    if explained is not None:
        values.update(zip(map(_ID, explained.next.candidates), explained.logits, strict=True))
    final = tuple(
        "" if each.cut_by not in (None, "greedy") else _percent(each.sampler_prob) for each in candidates
    )
    vocabulary = distribution.others + len(candidates)
    # without the sign of percent, which the heads have
    table = [
        TableColumn(LOGIT, "logit", "", None, 0.0,
                    tuple(f"{values[each.id]:.2f}" if each.id in values else UNKNOWN for each in candidates)),
        TableColumn(MODEL, "model %", "", vocabulary, 0.0, tuple(scales.percent(each.prob, "") for each in candidates),
                    tuple(each.prob for each in candidates), distribution.others_prob),
    ]  # fmt: skip
    ran: list[str] = []
    for stage in distribution.stages:
        ran.append(stage.name)
        if stage.name != "greedy":
            table.append(_stage(stage, ran, candidates, explained, settings))
    if now is not None:
        table.append(_now(now, candidates))
    drawable = distribution.stages[-1].kept if distribution.stages else None
    head = "taken %" if distribution.draw is None else "final %"
    shares = tuple(0.0 if isnan(each.sampler_prob) else each.sampler_prob for each in candidates)
    beyond = distribution.others_sampler_prob
    return (*table, TableColumn(FINAL, head, "", drawable, 0.0, final, shares, beyond))


def _percent(share: float | None) -> str:
    """A share without the sign of percent, which the heads of the columns have."""
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
    """The column of a stage; `ran` are the names of those up to it. A cell is empty for a token that is cut by then."""
    read = next((each for each in explained.columns if each.name == stage.name), None) if explained else None
    shares: tuple[float, ...] = ()
    beyond = None
    if explained is None or read is None:
        percent, texts = stage.name not in PENALTIES, {}
    else:
        percent, values = (
            read.unit == "prob",
            dict(zip(map(_ID, explained.next.candidates), read.values, strict=True)),
        )
        texts = {
            id: _percent(value) if percent else f"{value:.2f}"
            for id, value in values.items()
            if value is not None
        }
        if percent:
            shares = tuple(0.0 if each.cut_by in ran else values.get(each.id) or 0.0 for each in candidates)
            beyond = max(0.0, 1 - fsum(shares)) if stage.kept > sum(map(bool, shares)) else 0.0
    cells = tuple("" if each.cut_by in ran else texts.get(each.id, UNKNOWN) for each in candidates)
    known, set_to = STAGES.get(stage.name), ""
    if known is not None and settings is not None:
        set_to = known.shown(settings) if known.shown is not None else f"{getattr(settings, known.setting):g}"
    head = (known.head if known and known.head else stage.name) + (" %" if percent else "")
    return TableColumn(stage.name, head, set_to, stage.kept, stage.removed_mass, cells, shares, beyond)


def fitting(columns: Sequence[TableColumn], room: int) -> tuple[tuple[TableColumn, ...], int]:
    """The columns that fit into `room` cells, and how many stages are left out.

    The raw logits go first, then stages that left every number as it was, then those in the middle.
    """
    middle = [column for column in columns[:-1] if column.name not in (LOGIT, MODEL, NOW)]
    idle = [b for a, b in pairwise(columns[1:-1]) if b in middle and a.cells == b.cells]
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
    """Why they are not known."""
    now: Distribution | None = None
    """The present distribution, if other settings are tried."""

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
                doings.append(
                    f"{visible(stage.name)} kept {scales.count(stage.kept)} token{'s' * (stage.kept != 1)}"
                )
            elif stage.name == "temperature" and self.settings is not None:
                word = "flattened" if self.settings.temp > 1 else "sharpened"
                doings.append(f"temperature {self.settings.temp:g} {word} them")
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
        return f"{_list(names)} {word} its logit {before:.2f} to {value:.2f}" if names else ""


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
    """A sentence on the earlier occurrences that a penalty holds against a token; empty if there are none."""
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
            place += f" after {quoted(token_label(before.text, before.raw))}"
        places.append(place)
    return f"{_label(candidate)} is penalised{by}: it occurs {', '.join(places)}."


def earlier_of(reason: Reason) -> dict[int, tuple[int, ...]]:
    """The earlier positions that penalties hold against each candidate, by its id; empty if none is on."""
    explained = reason.explained
    if explained is None or all(stage.name not in PENALTIES for stage in reason.distribution.stages):
        return {}
    return dict(zip(map(_ID, explained.next.candidates), explained.earlier, strict=True))


# ---- the row of the settings under the table ----------------------------------------------------


class SettingsStrip(Struct, frozen=True):
    """The row under the table: the settings, and the changes if the temperature is turned."""

    in_force: Settings
    """The settings that the sampler continues with."""
    turned: Settings | None = None
    """The settings with the turned temperature; None if it isn't turned."""
    at: int | None = None
    """Number of the older step from which they would be applied; None at the tip."""
    lacking: str = ""
    """Why the token on show has no answer; printable."""
    recorded: bool = False
    """True if nothing can be applied, since no model is loaded."""

    def parts(self, used: Settings | None) -> list[tuple[str, str, str, str]]:
        """Its parts, the most important first: ink, text, the id of what a click does, and the text with less room.

        Args:
            used: The settings that the token on show was, or will be, picked with.
        """
        now = _degrees(self.in_force)
        if self.turned is not None:
            after = _degrees(self.turned)
            parts = [("accent", f"T {now} → {after}" if now != after else f"T {now}, as it is", "", "")]
            if self.lacking:
                parts.append(("warn", self.lacking, "", ""))
            where = "" if self.at is None else f" from step {self.at:,}"
            if not self.recorded:
                parts.append(
                    (
                        "base",
                        f"{key_for('sampler.apply')} applies{where}",
                        "sampler.apply",
                        key_for("sampler.apply"),
                    )
                )
            parts.append(("base", f"{key_for('stop')} discards", "stop", key_for("stop")))
            if self.recorded:
                parts.append(("base", f"{key_for('go_live')} continues live", "go_live", ""))
            return parts
        used = used or self.in_force
        here = f"T {_degrees(used)}" + (f", now {now}" if used.temp != self.in_force.temp else "")
        words = [*map(visible, settings_words(used)), *([f"seed {used.seed}"] if used.temp else [])]
        return [
            ("strong", here, "", ""),
            ("muted", with_keys("{sampler.cooler} {sampler.warmer} turn it"), "", ""),
            ("muted", with_keys("{sampling} all settings"), "sampling", ""),
            *(("muted", word, "", "") for word in words),
        ]

    def row(self, used: Settings | None, width: int, ink: Callable[[str], Style]) -> Row:
        """As many parts as fit in `width` cells, in their order, in named inks; the first always."""
        row: Row = []
        for name, text, action, short in self.parts(used):
            lead = "  " if row else ""
            left = width - Segment.get_line_length(row) - len(lead)
            fits = (each for each in (text, short) if each and cell_len(each) <= left)
            if not (shown := next(fits, "" if row else text)):
                break
            pressed = pressing(names_of(action)[0]).rich_style if action else Style()
            row += [Segment(lead), Segment(shown, ink(name) + pressed)]
        return row


def _degrees(settings: Settings) -> str:
    """A temperature with two decimals, more where it has them; 0 is greedy."""
    temp = settings.temp
    return "0 (greedy)" if temp == 0 else f"{temp:.2f}" if round(temp, 2) == temp else f"{temp:g}"


# ---- the panel ----------------------------------------------------------------------------------


class SamplerPanel(PanelCanvas, can_focus=True):
    """One row a candidate, one column a stage, and the draw on top."""

    CONCEALED_BY = ("picked", "probabilities")
    NAME = "Why this token"

    _used: Settings | None = None
    _strip: SettingsStrip | None = None
    _second: OfSecond | None = None
    _highlighted: int | None = None
    _first = _top = 0
    _places: Sequence[int] = ()
    """Candidates that have a row, in the order of the rows."""

    def show(
        self,
        timeline: Timeline,
        used: Settings | None = None,
        highlighted: Candidate | None = None,
        strip: SettingsStrip | None = None,
        second: OfSecond | None = None,
    ) -> None:
        """Show the sampler's work at the selected slot.

        Args:
            timeline: What is known.
            used: The settings that the slot was, or will be, picked with.
            highlighted: The candidate that Enter takes.
            strip: What is said of the settings; None for nothing.
            second: The second model's part, shown instead of the session's model; None for that one.
        """
        self._strip, self._second, self._used = strip, second, used
        self._highlighted = highlighted.id if highlighted else None
        self.timeline = timeline
        self.redraw()

    # ---- events -----------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        view = self._view()
        if at is None or view is None or not 0 <= (row := at.y - self._first) < len(self._places):
            return
        clicked = view.distribution.candidates[self._places[row]].id
        self.post_message((CandidateChosen if clicked == self._highlighted else CandidateClicked)(clicked))

    # ---- drawing ----------------------------------------------------------------------------

    def _view(self) -> Reason | None:
        """The contents: of the session's model, or of the second one; None while there are none."""
        timeline, second, used = self.timeline, self._second, self._used
        if timeline is None:
            return None
        if second is not None:
            explained = second.explained
            return Reason(explained.next, used, explained, timeline.taken) if explained is not None else None
        if (shown := timeline.distribution) is None:
            return None
        trial, told, taken = timeline.trial, timeline.explanation(), timeline.taken
        shown = with_own(shown, timeline.selected)
        if trial is not None and trial.settings != used:
            if told is None or (explained := told.explained) is None:
                return Reason(shown, used, taken=taken)
            tried = with_own(explained.next, timeline.selected, tried=True)
            return Reason(tried, trial.settings, explained, taken, now=shown)
        if told is None:
            return Reason(shown, used, taken=taken)
        return Reason(shown, told.settings, told.explained, taken, told.failure)

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, self._places = self.timeline, []
        view = self._view()
        if view is None and self._second is not None:
            self.title(Content(visible(f"Q {self._second.title}")))
            said = [(line, self.rich_style) for line in wrapped(visible(self._second.why), width)]
            return centred(said, width, height)
        if timeline is None or view is None or view.distribution.listed:
            self.title(Content("Why this token"))
            reason, advice = LISTED if view is not None and view.distribution.listed else _why_empty(timeline)
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        table_columns = columns(view.distribution, view.explained, view.settings, view.now)
        table = 3 + (_LEAST_ROWS - 1 if height < 14 else _LEAST_ROWS if height < 18 else 2 * _LEAST_ROWS)
        strip: list[Row] = []  # always while the temperature is turned, else where there is room
        if self._strip is not None and (height >= _STRIP_FROM or self._strip.turned is not None):
            strip = [self._strip.row(self._used, width, self.ink)]
        left = height - len(strip)
        above = self._above(timeline, view, width, left - table, left - _LEAST_ROWS)
        below = [*strip, *(self._notes(timeline, view, width) if height > 20 else [])]
        room = max(_LEAST_ROWS, height - len(above) - len(below))
        table_rows = self._table(view, table_columns, width, room, len(above))
        self._entitle(timeline, view)
        return [*above, *table_rows, *below]

    def _above(self, timeline: Timeline, view: Reason, width: int, height: int, most: int) -> list[Row]:
        """Sentences, as many as there is room for, and the ruler in what they leave of `height`; the first one whole,
        before all but the least of the table."""
        if self._second is not None:
            texts = [_beside(timeline.distribution, view.distribution), *view.sentences()]
        else:
            texts = view.sentences(timeline.selected) if view.now is None else view.tried(view.now)
        room = max(1, height - 3, min(len(wrapped(texts[0], width)), most))
        lines = wrapped(" ".join(texts), width)
        while len(lines) > room and len(texts) > 1:
            texts = texts[:-1]
            lines = wrapped(" ".join(texts), width)
        if len(lines) > room:
            lines[room - 1 :] = [truncate_words(f"{lines[room - 1]} …", width)]
        above: list[Row] = [[Segment(line)] for line in lines]
        above += [[]] if room > len(lines) + 2 else []
        left = height - len(above)
        inks = {"muted": self.ink("muted"), "accent": self.ink("accent"), "faint": self.ink("faint")}
        inks |= {"data": self.data(0.4), "other": self.data(0.1)}
        drawn: list[Row] = ruler(view.distribution, width, inks)
        if left < len(drawn):  # the bar alone
            return [*above, *drawn[1:2]] if left >= 1 else above
        gap: list[Row] = [[]] if left > len(drawn) + 3 and drawn else []
        return [*above, *drawn, *gap]

    # ---- the table --------------------------------------------------------------------------

    def _table(
        self, view: Reason, table_columns: Sequence[TableColumn], width: int, height: int, first: int
    ) -> list[Row]:
        kept, missing = fitting(table_columns, width - _MARK - _LEAST_TOKEN)
        token = min(_MOST_TOKEN, width - _MARK - CELLS * len(kept))
        head = self._head(kept, token, missing)[
            : 1 if height <= _LEAST_ROWS else 2 if height < 9 else 3 if height < 13 else 4
        ]
        distribution, muted = view.distribution, self.ink("muted")
        self._first = first + len(head)
        self._places = self._in_sight(view, min(len(distribution.candidates), height - len(head) - 1))
        # the rest of the vocabulary in one row, and what has no room
        hidden = set(range(len(distribution.candidates))) - set(self._places)
        others = scales.count(distribution.others + len(hidden))
        label = f"{others} others"
        if len(label) > token:
            label = f"{others} more" if len(others) + len(" more") <= token else others
        rest = [Segment(" " * _MARK + pad(label, token), muted)]
        for column in kept:
            text = ""
            if column.beyond is not None:
                share = column.beyond + fsum(column.shares[place] for place in hidden)
                text = scales.percent(share, "") if share else "0"
            rest.append(Segment(pad(text, CELLS, right=True), muted))
        return [*head, *self._rows(view, kept, token, width), rest]

    def _in_sight(self, view: Reason, rows: int) -> list[int]:
        """Places of the candidates that get a row: some around the highlighted one, always those picked or taken."""
        ids = list(map(_ID, view.distribution.candidates))
        if rows <= 0:
            return []
        at = ids.index(self._highlighted) if self._highlighted in ids else 0
        self._top = max(min(self._top, at, len(ids) - rows), at - rows + 1, 0)
        shown = list(range(self._top, self._top + rows))
        always = filter(ids.__contains__, (view.distribution.picked, view.taken))
        wanted = [at, *map(ids.index, always)]
        for place in wanted[:rows]:
            if place not in shown:
                spare = [row for row in shown if row not in wanted[:rows]]
                shown.remove(spare[-1] if place > shown[0] else spare[0])
                shown.append(place)
        return sorted(shown)

    def _head(self, kept: Sequence[TableColumn], token: int, missing: int) -> list[Row]:
        """Names of the columns; what each stage kept, cut and is set to."""
        muted, strong = self.ink("muted"), self.ink("strong")
        label = f"+{missing} stage{'s' * (missing != 1)}: {key_for('enlarge')}" if missing else ""
        names = ((label, self.ink("warn")), ("tokens left", muted), ("chance cut", muted), ("set to", muted))
        rows: list[Row] = [[Segment(" " * _MARK + pad(name, token), ink)] for name, ink in names]
        for column in kept:
            cut = column.removed > 0
            removed = "" if column.name in _NO_STAGE else "0"
            if cut:  # in as few cells as a column has
                share = f"{column.removed:.1%}"[:-1].removesuffix(".0")
                removed = "−<0.1 %" if column.removed < 0.0005 else f"−{share} %"
            cells = (
                (column.head, strong),
                ("" if column.kept is None else scales.count(column.kept), self.rich_style if cut else muted),
                (removed, self.ink("warn") if cut else muted),
                (column.setting, muted),
            )
            for row, (text, ink) in zip(rows, cells, strict=True):
                row.append(Segment(pad(text, CELLS, right=True), ink))
        return rows if any(column.setting for column in kept) else rows[:3]

    def _rows(self, view: Reason, kept: Sequence[TableColumn], token: int, width: int) -> list[Row]:
        """A row for each candidate in sight: its marks, its text, and its numbers; from where it fell out on, the name
        of the stage."""
        earlier, primary, accent = earlier_of(view), self.ink("primary"), self.ink("accent")
        rows: list[Row] = []
        for place in self._places:
            candidate = view.distribution.candidates[place]
            cut, here = candidate.cut_by is not None, candidate.id == view.taken
            looked_at = here or candidate.id in (self._highlighted, view.distribution.picked)
            ink = self.ink("muted" if looked_at else "faint") if cut else self.rich_style
            words = self.ink("special") if candidate.special and not cut else ink
            again = "↺ " if earlier.get(candidate.id) else ""
            mark = Segment("▶ " if here else "  ", accent)
            if view.now is not None and candidate.id == view.distribution.picked != view.now.picked:
                mark = Segment("≠ ", self.ink("warn") + Style(bold=True))
            row: Row = [
                Segment("▌" if candidate.id == self._highlighted else " ", primary),
                mark,
                Segment(pad(again + token_label(candidate.text, candidate.raw), token), words),
            ]
            for at, column in enumerate(kept):
                if candidate.cut_by is not None and not column.cells[place] and column.name != NOW:
                    room = CELLS * (len(kept) - at) - 1
                    row.append(Segment(" " + pad(f"✕ {visible(candidate.cut_by)}", room), ink))
                    break
                own = ink
                if not cut and column.name != MODEL:
                    own = ink + self.ink("strong") if column.name == FINAL else self.ink("muted")
                row.append(Segment(pad(column.cells[place], CELLS, right=True), own))
            if candidate.id == self._highlighted:
                row = grounded(row, width, self.ink("row"))
            rows.append(row)
        return rows

    # ---- below and around -------------------------------------------------------------------

    def _notes(self, timeline: Timeline, view: Reason, width: int) -> list[Row]:
        """Notes on dropped logits, on XTC and on penalties of the highlighted token."""
        texts = []
        if view.failure is not None:
            advice = with_keys(REPLAY_ADVICE if timeline.recorded else ADVICE)
            texts.append(f"{visible(view.failure.message)} {advice}")
        texts.append(xtc(view.distribution, view.settings))
        shown = next((c for c in view.distribution.candidates if c.id == self._highlighted), None)
        if shown is not None and (earlier := earlier_of(view).get(shown.id)):
            texts.append(penalised(shown, earlier, timeline.items, view.settings))
        lines = [line for text in texts if text for line in wrapped(text, width)]
        return [[], *([Segment(line, self.ink("muted"))] for line in lines[:4])] if lines else []

    def _entitle(self, timeline: Timeline, view: Reason) -> None:
        step = timeline.steps_before(timeline.slot) + 1
        where = f"step {step}" if not timeline.following else f"step {step}, to come"
        if timeline.trial is not None:
            self.title(Content(f"What if · {where} · {_changes(self._used, timeline.trial.settings)}"),
                       Content(trial_summary(timeline, self.size.width - 2)))  # fmt: skip
            return
        model, second = "", timeline.of(LockstepSoFar).opened
        if second is not None:  # else there is one model, which needs no name
            model = visible(model_prefix(timeline, second if self._second is not None else None))
        hidden = len(view.distribution.candidates) - len(self._places)
        note = f"{hidden} more rows ↑↓" if hidden else ""
        if view.failure is not None:
            lacks = f"not recorded · {REPLAY_ADVICE}" if timeline.recorded else f"logits dropped · {ADVICE}"
            note = with_keys(lacks)
        label = label_of(view.distribution, view.distribution.picked)
        self.title(Content(f"{model}Why {label} · {where}"), Content(note))


def _beside(mine: Distribution | None, theirs: Distribution) -> str:
    """The tokens that the two models take with the same draw, as a sentence."""
    if mine is None or mine.picked == theirs.picked:
        return f"Both take {label_of(theirs, theirs.picked)} with the same settings and the same draw."
    one, other = label_of(mine, mine.picked), label_of(theirs, theirs.picked)
    return f"With the same settings and the same draw P takes {one}, Q takes {other}."


def _why_empty(timeline: Timeline | None) -> tuple[str, str]:
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "How the sampler chooses appears here.")
    if timeline.following:
        return why_empty(timeline, "How the sampler chooses the first token appears here.")
    return "This token is part of the prompt: nothing was drawn.", "Press end for the token to come."


# ---- settings that are tried --------------------------------------------------------------------


def _changes(used: Settings | None, tried: Settings) -> str:
    """The settings that differ from those that were used."""
    if used is None or used == tried:
        return "nothing is changed yet" if used else "other settings"
    changed = differences(used, tried)
    texts = [
        f"{BY_NAME[name].label} {_value(name, old)} → {_value(name, new)}"
        for name, (old, new) in changed.items()
        if name in BY_NAME
    ] + ["another grammar"] * ("grammar" in changed)
    return ", ".join(texts) or "nothing is changed yet"


def _value(name: str, value: object) -> str:
    return visible(BY_NAME[name].format(value)) or "none"


def trial_summary(timeline: Timeline, room: int = 1000) -> str:
    """A count of the steps that the tried settings would have picked otherwise; empty if none are tried.

    Args:
        timeline: What is known.
        room: Cells available.
    """
    if (trial := timeline.trial) is None:
        return ""
    others = known = dropped = by_hand = 0
    for item in timeline.items:
        if not isinstance(item, Step):
            continue
        if item.origin not in ("sampled", "greedy"):
            by_hand += 1
        elif item.node not in trial.answers:
            dropped += 1
        else:
            known += 1
            others += not trial.answers[item.node].same
    if not (known or dropped or by_hand):  # before the first step nothing is tried
        return ""
    if trial.answered is None:
        return "asking …"
    text = f"{others} of {known} step{'s' * (known != 1)} would differ"
    text += f", {by_hand} by hand" if by_hand else ""
    if not dropped:
        return text
    recall = key_for("recall")
    lacks, short = f"their logits were dropped ({recall} recomputes)", f"dropped: {recall}"
    if timeline.recorded:
        lacks, short = "their logits were not recorded", "not recorded"
    full = f"{text}; {dropped} can't be answered: {lacks}"
    return full if len(full) <= room else f"{text}; {dropped} {short}"
