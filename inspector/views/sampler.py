"""The sampler stage by stage: why this token, and what other settings would have picked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import fsum
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events

from engine.protocol import Candidate, Distribution, Explained, ExplainSecond, ModelFacts, Record, Step
from engine.settings import BY_NAME, FIELDS, Settings, differences
from inspector import scales
from inspector.config.presets import Presets
from inspector.display import pad, token_label, truncate_words, visible
from inspector.documents.sampler import (
    CELLS,
    FINAL,
    LOGIT,
    MODEL,
    NOW,
    Reason,
    TableColumn,
    columns,
    earlier_of,
    fitting,
    label_of,
    penalised,
    xtc,
)
from inspector.keys import key_for, names_of, with_keys
from inspector.main.finder import Findable
from inspector.main.panels.candidates import row_marks
from inspector.main.tool import CandidateChosen, CandidateClicked, Host, ToolActions, live
from inspector.session.requests import Replies, failure_words
from inspector.state.candidates import with_own
from inspector.state.conditions import settings_words
from inspector.state.second_model import SecondModelSoFar
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.actions import Action, ActionTable, Needs, both, pressing
from inspector.widgets.canvas import PanelCanvas, Row, centred, grounded, why_empty, wrapped
from inspector.widgets.charts import ruler

_MARK, _LEAST_TOKEN, _MOST_TOKEN = 3, 12, 40
_STRIP_FROM = 9
"""Rows from which the row of settings is shown while the temperature isn't turned."""
_LEAST_ROWS = 4
"""Minimum rows of the table."""
_ID = attrgetter("id")
ADVICE = "{recall} computes them again."
LISTED = (
    "A server sent this token: how its sampler took it isn't known.",
    "With the model it is computed again.",
)
"""Shown instead of the stages for a token that is known only from a server's reply."""
REPLAY_ADVICE = "{go_live} continues live."
SYNONYMS = {
    "temp": "temp, randomness, less random, more random, creativity, creative, greedy, deterministic",
    "top_p": "topp, nucleus sampling, nucleus",
    "top_k": "topk",
    "min_p": "minp",
    "seed": "random seed, reproducible, same result again",
    "max_tokens": "length, max new tokens, num predict, longer text, limit the number of tokens",
    "min_tokens": "minimum length, no end",
    "stop": "stop sequence, stop word, stop text",
    "candidates": "number of candidates, more candidates, top logprobs",
    "repetition_penalty": "repeat penalty, repeats itself, avoid repetition",
    "logit_bias": "ban a token, bias a token, forbid a token, ban a word, forbid a word",
    "sampler_order": "order of the stages, order of llama.cpp, order of transformers",
}
"""Other names of settings, separated by commas."""
GRID, COARSE, FROM = 0.05, 0.1, 2.0
"""A key press turns the temperature by `GRID`, and from `FROM` on by `COARSE`."""
NOT_HERE = "This token is part of the prompt: nothing was drawn, and no temperature changes it"
NO_ROW = "The logits of this token were not recorded: no other temperature can be tried on it. {go_live} continues live"
TAKEN = "{sampler.apply} belongs to the lesson now. {sampling} opens all settings"
BRANCHED = (
    "The text continues from step {:,}: {{run}} runs. The old ending stays as a branch, which {{tree}} shows"
)
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
    """The temperature after a key press: the next multiple of the step.

    Args:
        temp: The temperature before.
        by: 1 for warmer, -1 for cooler.
    """
    step = COARSE if temp > FROM or (temp == FROM and by > 0) else GRID
    place = temp / step
    near = round(place)
    if abs(place - near) > 1e-6:  # between two multiples
        near = math.floor(place) if by > 0 else math.ceil(place)
    return min(BY_NAME["temp"].high, max(0.0, round((near + by) * step, 2)))


# ---- what is shown ------------------------------------------------------------------------------


class OfSecond(Struct, frozen=True):
    """The sampler's work on the second model's distribution at the slot."""

    title: str
    """Name of the second model; not yet printable."""
    explained: Explained | None
    why: str
    """Why there is no explanation, as a sentence; printable."""


# ---- the row of the settings under the table ----------------------------------------------------


class StripPart(NamedTuple):
    """A part of the row of settings."""

    ink: str
    text: str
    action: str = ""
    """Id of the action that a click runs; empty for none."""
    short: str = ""
    """A shorter text if there is less room; empty for none."""


class SettingsStrip(Struct, frozen=True):
    """The row under the table: the settings, and the changes if the temperature is turned."""

    in_force: Settings
    """The settings that the sampler continues with."""
    turned: Settings | None = None
    """The settings with the turned temperature; None if it isn't turned."""
    at: int | None = None
    """Number of the earlier step from which they would apply; None at the end of the path."""
    lacking: str = ""
    """Why the token on show has no answer; printable, empty if it has one."""
    recorded: bool = False
    """True if nothing can be applied, since no model is loaded."""

    def parts(self, used: Settings | None) -> list[StripPart]:
        """The parts of the row, the most important first.

        Args:
            used: The settings that the token on show was, or will be, picked with.
        """
        now = _degrees(self.in_force)
        if self.turned is None:
            used = used or self.in_force
            here = f"T {_degrees(used)}" + (f", now {now}" if used.temp != self.in_force.temp else "")
            words = [*map(visible, settings_words(used)), *([f"seed {used.seed}"] if used.temp else [])]
            return [
                StripPart("strong", here),
                StripPart("muted", with_keys("{sampler.cooler} {sampler.warmer} adjust")),
                StripPart("muted", with_keys("{sampling} all settings"), "sampling"),
                *(StripPart("muted", word) for word in words),
            ]
        after, apply, discard = _degrees(self.turned), key_for("sampler.apply"), key_for("stop")
        where = "" if self.at is None else f" from step {self.at:,}"
        parts = [
            StripPart("accent", f"T {now} → {after}" if now != after else f"T {now}, as it is"),
            StripPart("warn", self.lacking),
            StripPart("base", "" if self.recorded else f"{apply} applies{where}", "sampler.apply", apply),
            StripPart("base", f"{discard} discards", "stop", discard),
            StripPart("base", with_keys("{go_live} continues live") if self.recorded else "", "go_live"),
        ]
        return [part for part in parts if part.text]

    def row(self, used: Settings | None, width: int, ink: Callable[[str], Style]) -> Row:
        """As many parts as fit into `width` cells, in order and in named inks; always the first."""
        row: Row = []
        for part in self.parts(used):
            lead = "  " if row else ""
            left = width - Segment.get_line_length(row) - len(lead)
            fits = (each for each in (part.text, part.short) if each and cell_len(each) <= left)
            if not (shown := next(fits, "" if row else part.text)):
                break
            pressed = pressing(names_of(part.action)[0]).rich_style if part.action else Style()
            row += [Segment(lead), Segment(shown, ink(part.ink) + pressed)]
        return row


def _degrees(settings: Settings) -> str:
    """A temperature with two decimals, more if it has them; 0 is greedy."""
    temp = settings.temp
    return "0 (greedy)" if temp == 0 else f"{temp:.2f}" if round(temp, 2) == temp else f"{temp:g}"


# ---- the panel ----------------------------------------------------------------------------------


class SamplerPanel(PanelCanvas, can_focus=True):
    """A row for each candidate, a column for each stage, and the draw on top."""

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
            timeline: The timeline on show.
            used: The settings that the slot was, or will be, picked with.
            highlighted: The candidate that Enter takes.
            strip: The row of settings; None to leave it out.
            second: The sampler's work on the second model's distribution; None to show the session's model's.
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
            return None if explained is None else Reason(explained.next, used, explained, timeline.taken)
        if (shown := timeline.distribution) is None:
            return None
        trial, stages, taken = timeline.trial, timeline.explanation(), timeline.taken
        shown = with_own(shown, timeline.selected)
        against = self._highlighted if self._highlighted != shown.picked else None
        if stages is not None and (trial is None or trial.settings == used):
            return Reason(shown, stages.settings, stages.explained, taken, stages.failure, against=against)
        if stages is None or trial is None or stages.explained is None:
            return Reason(shown, used, taken=taken, against=against)
        tried = with_own(stages.explained.next, timeline.selected, tried=True)
        return Reason(tried, trial.settings, stages.explained, taken, now=shown, against=against)

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, self._places = self.timeline, []
        view = self._view()
        if view is None and self._second is not None:
            self.title(visible(f"B {self._second.title}"))
            return centred([(self._second.why, self.ink("base"))], width, height)
        if timeline is None or view is None or view.distribution.listed:
            self.title(self.NAME)
            said = LISTED if view is not None and view.distribution.listed else _why_empty(timeline)
            return self.centred(said, width, height)
        table_columns = columns(view.distribution, view.explained, view.settings, view.now)
        table = 3 + (_LEAST_ROWS - 1 if height < 14 else _LEAST_ROWS if height < 18 else 2 * _LEAST_ROWS)
        strip: list[Row] = []  # always while the temperature is turned, else if there is room
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
        """As many sentences as fit, and the ruler in the rest of `height`. The first sentence may take up to `most`
        rows."""
        if self._second is not None:
            texts = [_compared(timeline.distribution, view.distribution), *view.sentences()]
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
        # one row for the rest of the vocabulary and the candidates out of sight
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
        """Indices of the candidates that get a row: some around the highlighted one, and always the picked and the
        taken one; if one of these two is highlighted, the best ones."""
        ids = list(map(_ID, view.distribution.candidates))
        if rows <= 0:
            return []
        at = ids.index(self._highlighted) if self._highlighted in ids else 0
        always = [ids.index(each) for each in (view.distribution.picked, view.taken) if each in ids]
        self._top = 0 if at in always else max(min(self._top, at, len(ids) - rows), at - rows + 1, 0)
        shown, wanted = list(range(self._top, self._top + rows)), [at, *always]
        for place in wanted[:rows]:
            if place not in shown:
                spare = [row for row in shown if row not in wanted[:rows]]
                shown.remove(spare[-1] if place > shown[0] else spare[0])
                shown.append(place)
        return sorted(shown)

    def _head(self, kept: Sequence[TableColumn], token: int, missing: int) -> list[Row]:
        """Names of the columns; what each stage kept, cut and is set to."""
        muted, strong = self.ink("muted"), self.ink("strong")
        label = f"+{scales.counted(missing, 'stage')}" if missing else ""
        if missing and (self._strip is not None or self.timeline is None or self.timeline.trial is None):
            label += f": {key_for('enlarge')}"  # not while the settings form is open: it takes letters
        cut = "probability removed" if token > 19 else "removed"
        names = ((label, self.ink("warn")), ("tokens kept", muted), (cut, muted), ("value", muted))
        rows: list[Row] = [[Segment(" " * _MARK + pad(name, token), ink)] for name, ink in names]
        for column in kept:
            cuts = column.removed > 0
            removed = "" if column.name in (LOGIT, MODEL, FINAL, NOW) else "0"
            if cuts:  # short enough for a column
                share = f"{column.removed:.1%}"[:-1].removesuffix(".0")
                removed = "<0.1 %" if column.removed < 0.0005 else f"{share} %"
            kept_words = "" if column.kept is None else scales.count(column.kept)
            cells = (
                (column.head, strong),
                (kept_words, self.rich_style if cuts else muted),
                (removed, self.ink("warn") if cuts else muted),
                (column.setting, muted),
            )
            for row, (text, ink) in zip(rows, cells, strict=True):
                row.append(Segment(pad(text, CELLS, right=True), ink))
        return rows if any(column.setting for column in kept) else rows[:3]

    def _rows(self, view: Reason, kept: Sequence[TableColumn], token: int, width: int) -> list[Row]:
        """A row for each candidate in sight: its marks, its text, and its numbers; if a stage removed it, the name of
        that stage instead of further numbers."""
        earlier, accent = earlier_of(view), self.ink("accent")
        rows: list[Row] = []
        for place in self._places:
            candidate = view.distribution.candidates[place]
            cut, here = candidate.cut_by is not None, candidate.id == view.taken
            looked_at = here or candidate.id in (self._highlighted, view.distribution.picked)
            ink = self.ink("muted" if looked_at else "faint") if cut else self.rich_style
            words = self.ink("special") if candidate.special and not cut else ink
            again = "↺ " if earlier.get(candidate.id) else ""
            mark = Segment("▶" if here else " ", accent)
            if view.now is not None and candidate.id == view.distribution.picked != view.now.picked:
                mark = Segment("≠", self.ink("warn") + Style(bold=True))
            gap = place > 0 and place - 1 not in self._places
            row: Row = [
                *row_marks(self, candidate.id == self._highlighted, mark, gap),
                Segment(pad(again + token_label(candidate.text, candidate.raw), token), words),
            ]
            for column in kept:
                if candidate.cut_by is not None and not column.cells[place] and column.name != NOW:
                    if column.name == FINAL:
                        room = CELLS * sum(not each.cells[place] for each in kept) - 1
                        row.append(Segment(" " + pad(f"✕ {visible(candidate.cut_by)}", room), ink))
                    continue
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
        where = f"step {step:,}" + " (next)" * timeline.following
        if timeline.trial is not None:
            self.title(f"Preview · {where} · {_changes(self._used, timeline.trial.settings)}",
                       trial_summary(timeline, self.size.width - 2))  # fmt: skip
            return
        model = visible(timeline.of(SecondModelSoFar).prefix(timeline.facts, self._second is not None))
        hidden = len(view.distribution.candidates) - len(self._places)
        note = f"{scales.counted(hidden, 'more row')} ↑↓" if hidden else ""
        if view.failure is not None:
            lacks = f"not recorded · {REPLAY_ADVICE}" if timeline.recorded else f"logits dropped · {ADVICE}"
            note = with_keys(lacks)
        label = label_of(view.distribution, view.distribution.picked)
        if view.against is not None:
            label += f", not {label_of(view.distribution, view.against)}"
        self.title(f"{model}Why {label} · {where}", note)


def _compared(mine: Distribution | None, theirs: Distribution) -> str:
    """The tokens that the two models take with the same draw, as a sentence."""
    if mine is None or mine.picked == theirs.picked:
        return f"Both take {label_of(theirs, theirs.picked)} with the same settings and the same draw."
    one, other = label_of(mine, mine.picked), label_of(theirs, theirs.picked)
    return f"With the same settings and the same draw A takes {one}, B takes {other}."


def _why_empty(timeline: Timeline | None) -> tuple[str, str]:
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "How the sampler chooses appears here.")
    if timeline.following:
        return why_empty(timeline, "How the sampler chooses the first token appears here.")
    return "This token is part of the prompt: nothing was drawn.", "Press end for the next token."


# ---- settings that are tried --------------------------------------------------------------------


def _changes(used: Settings | None, tried: Settings) -> str:
    """The settings that differ from those that were used."""
    if used is None:
        return "other settings"
    changed = differences(used, tried)
    texts = [
        f"{BY_NAME[name].label} {_value(name, old)} → {_value(name, new)}"
        for name, (old, new) in changed.items()
        if name in BY_NAME
    ] + ["another grammar"] * ("grammar" in changed)
    return ", ".join(texts) or "no changes yet"


def _value(name: str, value: object) -> str:
    return visible(BY_NAME[name].format(value)) or "none"


def trial_summary(timeline: Timeline, room: int = 1000) -> str:
    """A count of the steps that the tried settings would have picked differently; empty if none are tried.

    Args:
        timeline: The timeline on show.
        room: Cells available.
    """
    if (trial := timeline.trial) is None:
        return ""
    steps = [item for item in timeline.items if isinstance(item, Step)]
    drawn = [item.node for item in steps if item.origin in ("sampled", "greedy")]
    known = [trial.answers[node] for node in drawn if node in trial.answers]
    if not steps:  # before the first step nothing is tried
        return ""
    if trial.answered is None:
        return "asking …"
    others, by_hand, dropped = (
        sum(not each.same for each in known),
        len(steps) - len(drawn),
        len(drawn) - len(known),
    )
    text = f"{others} of {scales.counted(len(known), 'step')} would differ"
    text += f" ({by_hand} {'was' if by_hand == 1 else 'were'} your choice)" if by_hand else ""
    if not dropped:
        return text
    recall = key_for("recall")
    lacks, short = f"their logits were dropped ({recall} recomputes)", f"dropped: {recall}"
    if timeline.recorded:
        lacks, short = "their logits were not recorded", "not recorded"
    full = f"{text}; {dropped} can't be answered: {lacks}"
    return full if len(full) <= room else f"{text}; {dropped} {short}"


# ---- keys ---------------------------------------------------------------------------------------


class SamplerActions(ToolActions):
    """Shows why a token was chosen, and tries other settings."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._asks = False
        """True if the form is open."""
        self._slot: int | None = None
        """The slot that was selected when the form was opened; None for the end of the path."""
        self.presets = Presets()
        self._second = Replies(self.controller.client, Explained)
        """Answers about the second model; a recording has none."""
        self.controller.client.listen(self._loaded, ModelFacts)

    def _loaded(self, _: Record) -> None:
        """Give an open form the settings of a newly loaded model, except for what was typed."""
        if not self._asks:
            return
        from inspector.views.sampling_dialog import SamplingDialog

        if isinstance(form := self.host.app.screen, SamplingDialog):
            form.rebase(self.controller.setup.settings)

    def findable(self) -> Iterator[Findable]:
        """The settings: each opens the dialog at its field."""
        keys = key_for("sampling")
        for each in FIELDS:
            label = f"{each.label[0].upper()}{each.label[1:]}"
            yield Findable(f"setting {each.name}", label, f"{each.help[0].upper()}{each.help[1:]}.", "Settings", keys,
                           SYNONYMS.get(each.name, ""), "sampling", partial(self.sampling, each.name))  # fmt: skip

    def sampling(self, field: str = "") -> None:
        """Ask for sampling settings, and show what they would have picked as they are typed.

        Args:
            field: Name of the setting to begin with; empty for the first.
        """
        from inspector.views.sampling_dialog import SamplingDialog

        timeline, setup, trial = self.timeline, self.controller.setup, self.timeline.trial
        self._asks = self.awake = True
        self._slot = None if timeline.following else timeline.slot
        self.host.arrangement.dialog = "sampler" if self.controller.stepping else ""
        settings = trial.settings if trial is not None else setup.settings
        self.attempt(settings)
        self._ask()  # before the form is made, so that its first paint has the answers
        self.presets.refresh()
        self.host.open(SamplingDialog(self, settings, field), self._end)

    # ---- turning the temperature ------------------------------------------------------------

    @property
    def turning(self) -> bool:
        """True if the temperature is turned: settings are tried without the form."""
        return self.timeline.trial is not None and not self._asks

    @property
    def can_turn(self) -> bool:
        """True if the keys turn the temperature: the panel is current or it is turned already, and nothing runs."""
        here = self.host.arrangement.current == "sampler" or self.turning
        rests = self.timeline.phase is Phase.READY and not self.controller.transport.running
        return here and "sampler" in self.host.shown and rests

    @property
    def _lesson_applies(self) -> bool:
        """True if a lesson uses the key that would apply the settings."""
        narration = self.host.narrator.narration() if self.host.narrator is not None else None
        return narration is not None and not narration.keys.isdisjoint(names_of("sampler.apply"))

    def turn(self, by: int) -> None:
        """Turn the temperature by a step, and show what it would pick at the token on show; nothing is applied."""
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
        """Continue with the turned temperature."""
        trial = self.timeline.trial
        if trial is not None and trial.settings == self.controller.setup.settings:
            self._discard(STAYS)
        elif trial is not None:
            self._end(trial.settings)

    def stop(self) -> bool:
        """Discard the turned temperature; returns whether there was one."""
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
        stages = timeline.explanation() if trial is not None else None
        lacking = "" if stages is None or stages.failure is None else "not recorded here"
        if lacking and not timeline.recorded:
            lacking = with_keys("logits dropped: {recall}")
        now = trial.settings if trial is not None else None
        return SettingsStrip(setup.settings, now, timeline.older, lacking, timeline.recorded)

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show the sampler, if it is on screen, and ask for what it lacks."""
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
        """Ask for what the sampler lacks, if it is on show; returns whether it is."""
        queries = self.controller.queries
        queries.watching = self.host.arrangement.dialog == "sampler" or "sampler" in self.host.shown
        queries.ask(self.timeline)
        return queries.watching

    def _of_second(self) -> OfSecond | None:
        """The sampler's work on the second model's distribution at the slot, if that model is on show."""
        timeline, distribution = self.timeline, self.timeline.distribution
        looked = timeline.of(SecondModelSoFar).looked
        if looked is None or distribution is None:
            return None
        if timeline.recorded:
            return OfSecond(looked.title, None, with_keys(NOT_RECORDED))
        used = self.controller.queries.used(timeline)
        about = looked, distribution.node, distribution.reroll, used
        if not timeline.running:
            self._second.want(about, ExplainSecond(distribution.node, used, distribution.reroll))
        failure = self._second.failure(about)
        why = failure_words(failure) if failure is not None else AWAITED
        if timeline.running:
            why = with_keys(BUSY)
        return OfSecond(looked.title, self._second.get(about), why)

    def other_word(self) -> str:
        """The word for the key that shows the other model's stages, while the sampler is on screen."""
        return self.timeline.of(SecondModelSoFar).other_word if "sampler" in self.host.shown else ""

    def other_model(self) -> None:
        """Show the stages of the other model."""
        if not self.timeline.of(SecondModelSoFar).switch():
            self.host.answer(with_keys("No second model is open: {second_model} opens one"))
        elif "sampler" in self.host.shown:
            self.host.answer()
        else:
            self.host.go_to("sampler")

    def attempt(self, settings: Settings) -> None:
        """Show what settings would pick."""
        self.controller.queries.try_out(self.timeline, settings)
        self.host.answer()

    def look(self, what: str, by: int) -> None:
        """Look at another token while settings are typed, or compute dropped logits again.

        Args:
            what: `walk`, `differing` or `recall`.
            by: -1 for earlier, 1 for later.
        """
        if not self.controller.stepping:
            return
        if what == "differing":
            self.host.answer(self.controller.navigation.differing(by))
        elif what == "recall":
            self.host.answer(self.controller.setup.recall())
        else:
            self.timeline.walk(by)
            self.host.answer()

    def _end(self, settings: Settings | None) -> None:
        """Apply the settings; if they were discarded, stop trying them and restore the selected slot."""
        self._asks = self.awake = False
        self.host.arrangement.dialog = ""
        if settings is not None and not self.controller.transport.recorded:
            older = self.timeline.older
            self.controller.setup.apply(settings)
            self.host.answer(with_keys(BRANCHED.format(older)) if older is not None else "")
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
