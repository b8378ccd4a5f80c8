"""The sampler, stage by stage: why this token, and what other settings would have picked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content

from engine.frozen import frozen
from engine.protocol import Candidate, Distribution, Explained
from engine.settings import BY_NAME, STAGES, Settings, differences
from inspector import scales
from inspector.display import pad, token_label, visible
from inspector.keys import key_for, with_keys
from inspector.main.tool import CandidateChosen, CandidateClicked
from inspector.state.timeline import Phase, StageExplanation, Timeline, other
from inspector.tools.sampler.reason import PENALTIES, Reason, label_of, penalised, xtc
from inspector.widgets.canvas import Canvas, Row, centred, why_empty, wrapped
from inspector.widgets.charts import ruler
from inspector.widgets.inks import panel_css

LOGIT, MODEL, FINAL, NOW = "logit", "model", "final", "now"
"""Columns that are no stage; the last one is shown while other settings are tried."""
CELLS = 8
"""Of a column, its gap at the left included."""
UNKNOWN = "·"
"""Shown for a number that the engine has not sent yet, or can't."""
_MARK, _LEAST_TOKEN, _MOST_TOKEN = 3, 12, 40
_LEAST_ROWS = 4
"""Candidates that are shown at least, before a sentence is."""
ADVICE = "{recall} computes them again."
REPLAY_ADVICE = "{go_live} goes on live."


# ---- what is shown ------------------------------------------------------------------------------


@frozen
class SamplerView:
    """The contents of the panel, put together from the timeline."""

    distribution: Distribution
    """That was, or would be, drawn from."""
    now: Distribution | None
    """The present one, where other settings are tried."""
    explanation: StageExplanation | None
    settings: Settings | None
    taken: int | None
    """Token id at the slot."""

    @property
    def explained(self) -> Explained | None:
        """The explanation of the engine, None where there is none."""
        return self.explanation.explained if self.explanation else None

    @property
    def earlier(self) -> dict[int, tuple[int, ...]]:
        """Earlier positions of each candidate, as far back as the penalties look."""
        if self.explained is None:
            return {}
        return dict(zip((c.id for c in self.explained.next.candidates), self.explained.earlier, strict=True))


def view_of(timeline: Timeline, used: Settings | None = None) -> SamplerView | None:
    """The view of the selected slot; None in the prompt and before it.

    Args:
        timeline: What is known.
        used: The settings that the slot was, or will be, picked with.
    """
    shown, explanation = timeline.distribution, timeline.explanation()
    if shown is None:
        return None
    explained = explanation.explained if explanation else None
    changed = timeline.trial is not None and timeline.trial.settings != used
    if timeline.trial is not None and changed and explained is not None:
        return SamplerView(explained.next, shown, explanation, timeline.trial.settings, timeline.taken)
    if changed:
        explanation = None
    return SamplerView(
        shown, None, explanation, explanation.settings if explanation else used, timeline.taken
    )


# ---- columns ------------------------------------------------------------------------------------


@frozen
class TableColumn:
    """One column: what it is, what the stage did, and a text for each candidate."""

    name: str
    """Of the stage; or `logit`, `model`, `final`, `now`."""
    head: str
    setting: str
    kept: int | None
    """Tokens left after it; None where that means nothing."""
    removed: float
    cells: tuple[str, ...]
    """Empty for a candidate that is cut here or was before."""


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
        settings: That the stages ran with, None where they are not known.
        now: The present distribution, where `distribution` is only tried.
    """
    candidates = distribution.candidates
    vocabulary = distribution.others + len(candidates)
    table = [
        TableColumn(LOGIT, "logit", "", None, 0.0, _logits(explained, candidates)),
        TableColumn(MODEL, "model %", "", vocabulary, 0.0, tuple(_number(c.prob) for c in candidates)),
    ]
    table += _stages(distribution, explained, settings)
    if now is not None:
        finals = {candidate.id: candidate.sampler_prob for candidate in now.candidates}
        cells = tuple(_number(finals[c.id]) if c.id in finals else UNKNOWN for c in candidates)
        table.append(TableColumn(NOW, "now %", "", None, 0.0, cells))
    return (*table, _final(distribution))


def _number(share: float) -> str:
    """A probability in percent, without the sign, which the head of the column has."""
    return scales.percent(share).removesuffix(" %")


def _logits(explained: Explained | None, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    if explained is None:
        return (UNKNOWN,) * len(candidates)
    logits = dict(zip((c.id for c in explained.next.candidates), explained.logits, strict=True))
    return tuple(_logit(logits.get(c.id)) for c in candidates)


def _logit(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _stages(
    distribution: Distribution, explained: Explained | None, settings: Settings | None
) -> list[TableColumn]:
    names = [stage.name for stage in distribution.stages]
    stages = []
    for place, stage in enumerate(distribution.stages):
        if stage.name == "greedy":
            continue
        percent, cells = _values(stage.name, distribution.candidates, names[: place + 1], explained)
        known = STAGES.get(stage.name)
        head = (known.head if known and known.head else stage.name) + (" %" if percent else "")
        stages.append(
            TableColumn(
                stage.name, head, _setting(stage.name, settings), stage.kept, stage.removed_mass, cells
            )
        )
    return stages


def _values(
    name: str, candidates: Sequence[Candidate], ran: Sequence[str], explained: Explained | None
) -> tuple[bool, tuple[str, ...]]:
    """Whether the values are probabilities, and the cells; empty for who is cut by now."""
    stage = next((c for c in explained.columns if c.name == name), None) if explained else None
    if explained is None or stage is None:
        return name not in PENALTIES, tuple("" if c.cut_by in ran else UNKNOWN for c in candidates)
    percent = stage.unit == "prob"
    values = dict(zip((c.id for c in explained.next.candidates), stage.values, strict=True))
    cells = []
    for candidate in candidates:
        value = values.get(candidate.id)
        known = UNKNOWN if value is None else _number(value) if percent else _logit(value)
        cells.append("" if candidate.cut_by in ran else known)
    return percent, tuple(cells)


def _setting(name: str, settings: Settings | None) -> str:
    """The value of the setting of a stage, as text."""
    stage = STAGES.get(name)
    if settings is None or stage is None:
        return ""
    return stage.shown(settings) if stage.shown is not None else f"{getattr(settings, stage.setting):g}"


def _final(distribution: Distribution) -> TableColumn:
    drawable = distribution.stages[-1].kept if distribution.stages else None
    greedy = distribution.draw is None
    cells = tuple(
        "" if c.cut_by not in (None, "greedy") else _number(c.sampler_prob) for c in distribution.candidates
    )
    return TableColumn(FINAL, "taken %" if greedy else "final %", "", drawable, 0.0, cells)


def fitting(columns: Sequence[TableColumn], room: int) -> tuple[tuple[TableColumn, ...], int]:
    """The columns that fit into `room` cells, and how many stages are left out.

    The raw logits go first, then stages that left every number as it was, then those in the middle.
    """
    kept = list(columns)
    for column in _dispensable(columns):
        if len(kept) * CELLS <= room:
            break
        kept.remove(column)
    return tuple(kept), sum(1 for column in columns if column not in kept and column.name != LOGIT)


def _dispensable(columns: Sequence[TableColumn]) -> list[TableColumn]:
    logits = [column for column in columns if column.name == LOGIT]
    middle = [column for column in columns[:-1] if column.name not in (LOGIT, MODEL, NOW)]
    idle = [b for a, b in pairwise(columns[1:-1]) if b in middle and a.cells == b.cells]
    shaping = [column for column in middle if "%" not in column.head and column not in idle]
    rest = [column for column in reversed(middle) if column not in idle and column not in shaping]
    return [*logits, *idle, *shaping, *rest]


# ---- the panel ----------------------------------------------------------------------------------


class SamplerPanel(Canvas, can_focus=True):
    """One row a candidate, one column a stage, and the draw on top."""

    DEFAULT_CSS = panel_css("SamplerPanel")
    CONCEALED_BY = ("picked", "probabilities")
    NAME = "Why this token"

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._used: Settings | None = None
        self._highlighted: int | None = None
        self._first, self._top = 0, 0
        self._places: list[int] = []
        """Candidates that have a row, in the order of the rows."""

    def show(
        self, timeline: Timeline, used: Settings | None = None, highlighted: Candidate | None = None
    ) -> None:
        """Show the sampler's work at the selected slot.

        Args:
            timeline: What is known.
            used: The settings that the slot was, or will be, picked with.
            highlighted: The candidate that Enter takes.
        """
        self._used, self._highlighted = used, highlighted.id if highlighted else None
        super().show(timeline)

    # ---- events -----------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        view = view_of(self.timeline, self._used) if self.timeline else None
        if at is None or view is None or not 0 <= (row := at.y - self._first) < len(self._places):
            return
        clicked = view.distribution.candidates[self._places[row]].id
        chosen = clicked == self._highlighted
        self.post_message(CandidateChosen(clicked) if chosen else CandidateClicked(clicked))

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, self._places = self.timeline, []
        view = view_of(timeline, self._used) if timeline else None
        if timeline is None or view is None:
            self.title(Content("Why this token"))
            reason, advice = _why_empty(timeline)
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        table_columns = columns(view.distribution, view.explained, view.settings, view.now)
        table = 3 + (_LEAST_ROWS - 1 if height < 14 else _LEAST_ROWS if height < 18 else 2 * _LEAST_ROWS)
        above = self._reasons(timeline, view, width, height - table - 3)
        above += self._ruler(view.distribution, width, height - table - len(above))
        below = self._notes(timeline, view, width) if height > 20 else []
        room = max(_LEAST_ROWS, height - len(above) - len(below))
        table_rows = self._table(view, table_columns, width, room, len(above))
        self._entitle(timeline, view)
        return [*above, *table_rows, *below]

    def _reasons(self, timeline: Timeline, view: SamplerView, width: int, room: int) -> list[Row]:
        """Sentences, as many as there is room for, at least one line."""
        reason = Reason(view.distribution, view.settings, view.explained)
        texts = reason.sentences(timeline.selected) if view.now is None else reason.tried(view.now)
        lines = wrapped(" ".join(texts), width)
        while len(lines) > max(1, room) and len(texts) > 1:
            texts = texts[:-1]
            lines = wrapped(" ".join(texts), width)
        lines = lines[: max(1, room)]
        gap: list[Row] = [[]] if room > len(lines) + 2 else []
        return [*([Segment(line)] for line in lines), *gap]

    def _ruler(self, distribution: Distribution, width: int, room: int) -> list[Row]:
        inks = {name: self.ink(name) for name in ("muted", "accent", "strong", "faint")}
        inks |= {"data": self.data(0.4), "other": self.data(0.1)}
        rows: list[Row] = ruler(distribution, width, inks)
        gap: list[Row] = [[]] if room > len(rows) + 3 and rows else []
        return [*rows, *gap] if room >= len(rows) else rows[1:2] if room >= 1 and rows else []

    # ---- the table --------------------------------------------------------------------------

    def _table(
        self, view: SamplerView, table_columns: Sequence[TableColumn], width: int, height: int, first: int
    ) -> list[Row]:
        kept, missing = fitting(table_columns, width - _MARK - _LEAST_TOKEN)
        token = min(_MOST_TOKEN, width - _MARK - CELLS * len(kept))
        head = self._head(kept, token, missing)[: 2 if height < 9 else 3 if height < 13 else 4]
        candidates = view.distribution.candidates
        self._first = first + len(head)
        self._places = self._in_sight(view, min(len(candidates), height - len(head) - 1))
        rows = [self._row(view, kept, n, token, width) for n in self._places]
        return [*head, *rows, self._others(view, kept, token)]

    def _in_sight(self, view: SamplerView, rows: int) -> list[int]:
        """Places of the candidates that get a row: some around the highlighted one, always those picked or taken."""
        ids = [candidate.id for candidate in view.distribution.candidates]
        if rows <= 0:
            return []
        at = ids.index(self._highlighted) if self._highlighted in ids else 0
        self._top = max(min(self._top, at, len(ids) - rows), at - rows + 1, 0)
        shown = list(range(self._top, self._top + rows))
        wanted = [at, *(ids.index(id) for id in (view.distribution.picked, view.taken) if id in ids)]
        for place in wanted[:rows]:
            if place not in shown:
                spare = [row for row in shown if row not in wanted[:rows]]
                shown.remove(spare[-1] if place > shown[0] else spare[0])
                shown.append(place)
        return sorted(shown)

    def _head(self, kept: Sequence[TableColumn], token: int, missing: int) -> list[Row]:
        """Names of the columns; what each stage kept, cut and is set to."""
        muted, strong = self.ink("muted"), self.ink("strong")
        label = f"+{missing} stages: {key_for('enlarge')}" if missing else ""
        rows: list[Row] = [[Segment(" " * _MARK + pad(label, token), self.ink("warn"))]]
        rows += [[Segment(" " * _MARK + pad(name, token), muted)] for name in ("tokens left", "chance cut")]
        for column in kept:
            cut = column.removed > 0
            rows[0].append(Segment(pad(column.head, CELLS, right=True), strong))
            left = "" if column.kept is None else scales.count(column.kept)
            rows[1].append(Segment(pad(left, CELLS, right=True), self.rich_style if cut else muted))
            removed = _cut(column.removed) if cut else ""
            rows[2].append(Segment(pad(removed, CELLS, right=True), self.ink("warn")))
        if any(column.setting for column in kept):
            rows.append([Segment(" " * _MARK + pad("set to", token), muted)])
            rows[-1] += [Segment(pad(column.setting, CELLS, right=True), muted) for column in kept]
        return rows

    def _row(self, view: SamplerView, kept: Sequence[TableColumn], place: int, token: int, width: int) -> Row:
        candidate = view.distribution.candidates[place]
        cut, here = candidate.cut_by is not None, candidate.id == view.taken
        looked_at = here or candidate.id in (self._highlighted, view.distribution.picked)
        ink = self.ink("muted" if looked_at else "faint") if cut else self.rich_style
        words = self.ink("special") if candidate.special and not cut else ink
        again = "↺ " if self._is_penalised(view, candidate) else ""
        row: Row = [
            Segment("▌" if candidate.id == self._highlighted else " ", self.ink("primary")),
            self._mark(view, candidate),
            Segment(pad(again + token_label(candidate.text, candidate.raw), token), words),
            *self._cells(candidate, kept, place, ink),
        ]
        if candidate.id != self._highlighted:
            return row
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True)
        filled = [*row, Segment(" " * max(0, width - Segment.get_line_length(row)))]
        return [Segment(text, (style or Style()) + ground) for text, style, _ in filled]

    def _mark(self, view: SamplerView, candidate: Candidate) -> Segment:
        """The slot's token, and what the settings that are tried would pick."""
        if view.now is not None and candidate.id == view.distribution.picked != view.now.picked:
            return Segment("≠ ", self.ink("warn") + Style(bold=True))
        return Segment("▶ " if candidate.id == view.taken else "  ", self.ink("accent"))

    def _cells(self, candidate: Candidate, kept: Sequence[TableColumn], place: int, ink: Style) -> Row:
        """The numbers; from where it fell out on, the name of the stage."""
        row: Row = []
        for at, column in enumerate(kept):
            if candidate.cut_by is not None and not column.cells[place] and column.name != NOW:
                room = CELLS * (len(kept) - at) - 1
                return [*row, Segment(" " + pad(f"✕ {visible(candidate.cut_by)}", room), ink)]
            strong = column.name == FINAL and candidate.cut_by is None
            muted = column.name not in (FINAL, MODEL) and candidate.cut_by is None
            own = ink + self.ink("strong") if strong else self.ink("muted") if muted else ink
            row.append(Segment(pad(column.cells[place], CELLS, right=True), own))
        return row

    def _is_penalised(self, view: SamplerView, candidate: Candidate) -> bool:
        return bool(view.earlier.get(candidate.id)) and any(
            stage.name in PENALTIES for stage in view.distribution.stages
        )

    def _others(self, view: SamplerView, kept: Sequence[TableColumn], token: int) -> Row:
        """The rest of the vocabulary in one row."""
        distribution, muted = view.distribution, self.ink("muted")
        label = f"{scales.count(distribution.others)} others"
        row = [Segment(" " * _MARK + pad(label, token), muted)]
        shares = {MODEL: distribution.others_prob, FINAL: distribution.others_sampler_prob}
        if view.now is not None:
            shares[NOW] = view.now.others_sampler_prob
        for column in kept:
            share = shares.get(column.name)
            text = "" if share is None else _number(share) if share else "0"
            row.append(Segment(pad(text, CELLS, right=True), muted))
        return row

    # ---- below and around -------------------------------------------------------------------

    def _notes(self, timeline: Timeline, view: SamplerView, width: int) -> list[Row]:
        """Notes on dropped logits, on XTC and on penalties of the highlighted token."""
        texts = []
        if view.explanation is not None and view.explanation.failure is not None:
            advice = with_keys(REPLAY_ADVICE if timeline.recorded else ADVICE)
            texts.append(f"{visible(view.explanation.failure.message)} {advice}")
        texts.append(xtc(view.distribution, view.settings))
        shown = next((c for c in view.distribution.candidates if c.id == self._highlighted), None)
        if shown is not None and self._is_penalised(view, shown):
            earlier = view.earlier[shown.id]
            texts.append(penalised(shown, earlier, timeline.items, view.settings))
        lines = [line for text in texts if text for line in wrapped(text, width)]
        return [[], *([Segment(line, self.ink("muted"))] for line in lines[:4])] if lines else []

    def _entitle(self, timeline: Timeline, view: SamplerView) -> None:
        step = timeline.steps_before(timeline.slot) + 1
        where = f"step {step}" if not timeline.following else f"step {step}, to come"
        label = label_of(view.now or view.distribution, (view.now or view.distribution).picked)
        if timeline.trial is None:
            hidden = len(view.distribution.candidates) - len(self._places)
            more = f"{hidden} more rows ↑↓" if hidden else ""
            self.title(
                Content(f"Why {label} · {where}"), Content(_dropped_note(view, timeline.recorded) or more)
            )
            return
        self.title(Content(f"What if · {where} · {_changes(self._used, timeline.trial.settings)}"),
                   Content(trial_summary(timeline, self.size.width - 2)))  # fmt: skip


def _cut(share: float) -> str:
    """A probability that was taken out, in as few cells as a column has."""
    return "−<0.1 %" if share < 0.0005 else f"−{share:.1%}"[:-1].removesuffix(".0") + " %"


def _dropped_note(view: SamplerView, recorded: bool) -> str:
    if view.explanation is None or view.explanation.failure is None:
        return ""
    return with_keys(f"not recorded · {REPLAY_ADVICE}" if recorded else f"logits dropped · {ADVICE}")


def _why_empty(timeline: Timeline | None) -> tuple[str, str]:
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "How the sampler chooses appears here.")
    if timeline.following:
        return why_empty(timeline, "How the sampler chooses the first token appears here.")
    return "This token was given by the prompt: nothing was drawn.", "Press end for the token to come."


# ---- settings that are tried --------------------------------------------------------------------


def _changes(used: Settings | None, tried: Settings) -> str:
    """The settings that differ from those that were used."""
    changed = differences(used, tried) if used else {}
    texts = [
        f"{BY_NAME[name].label} {_value(name, old)} → {_value(name, new)}"
        for name, (old, new) in changed.items()
        if name in BY_NAME
    ] + ["another grammar"] * ("grammar" in changed)
    return ", ".join(texts) or ("nothing is changed yet" if used else "other settings")


def _value(name: str, value: object) -> str:
    return visible(BY_NAME[name].format(value)) or "none"


def trial_summary(timeline: Timeline, room: int = 1000) -> str:
    """A count of the steps that the tried settings would have picked otherwise; empty where none are tried.

    Args:
        timeline: What is known.
        room: Cells available.
    """
    trial = timeline.trial
    if trial is None or not timeline.steps:  # before the first step nothing is tried
        return ""
    if trial.answered is None:
        return "asking …"
    drawn = [step for step in timeline.steps if step.origin in ("sampled", "greedy")]
    known = [step for step in drawn if step.node in trial.answers]
    others = sum(1 for step in known if other(timeline.trial, step) is not None)
    by_hand = len(timeline.steps) - len(drawn)
    text = f"{others} of {len(known)} step{'s' * (len(known) != 1)} would differ"
    text += f", {by_hand} by hand" if by_hand else ""
    if not (dropped := len(drawn) - len(known)):
        return text
    if timeline.recorded:
        full = f"{text}; {dropped} can't be answered: their logits were not recorded"
        return full if len(full) <= room else f"{text}; {dropped} not recorded"
    recall = key_for("recall")
    full = f"{text}; {dropped} can't be answered: their logits were dropped ({recall} recomputes)"
    return full if len(full) <= room else f"{text}; {dropped} dropped: {recall}"
