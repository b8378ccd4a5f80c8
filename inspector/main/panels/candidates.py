"""What could come next, or could have come: the model's belief, what the sampler made of it, and the draw."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message

from engine.protocol import Candidate, Distribution, PromptToken, Step
from inspector import scales
from inspector.display import pad, token_label, visible
from inspector.main.messages import CandidateChosen
from inspector.main.panels.candidate_columns import (
    ID,
    JOINT,
    MARK,
    PERCENT,
    RANK,
    SAMPLER,
    CandidateColumns,
    columns,
    columns_behind,
)
from inspector.main.panels.candidate_rows import fitting_rows, rows_of, why_no_candidates
from inspector.main.panels.draw_line import draw_line
from inspector.main.panels.lookahead_lines import (
    LEAST,
    LineText,
    Placement,
    fill_cells,
    line_text,
    own_row,
    placement,
)
from inspector.state.lookahead import LookAheadLines, wanted
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import CONCEALED, Canvas, Row, centred
from inspector.widgets.charts import bar
from inspector.widgets.inks import panel_css

DIM = Style(bold=False)
"""Of what might come, in a highlighted row too."""
_CONCEALS = ("picked", "probabilities")
"""What, where it is to be predicted, the stages of the sampler would tell."""
_BY_HAND = {"chosen": ", chosen by hand", "inserted": ", inserted", "intervened": ", under interventions"}
"""Why the token there is not the one that the sampler picked."""


class CandidatesPanel(Canvas, can_focus=True):
    """The candidates of the selected slot, best first, and the draw among them."""

    DEFAULT_CSS = panel_css("CandidatesPanel")
    NAME = "Next token"

    highlighted: int = 0
    """Row that Enter takes; it begins at the slot's own token."""
    ahead: LookAheadLines | None = None
    """What is known of what might come."""

    class CandidateHighlighted(Message):
        """Another row was highlighted."""

        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._rows: tuple[Candidate, ...] = ()
        self._of: object = None
        self._top = 0
        self._places: list[int] = []
        """The candidate in each row of the panel, from the second row on."""

    # ---- what is shown ----------------------------------------------------------------------

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate, None where there is none."""
        return self._rows[self.highlighted] if self.highlighted < len(self._rows) else None

    @property
    def wanted(self) -> tuple[int, ...]:
        """Ids of the candidates to look ahead from."""
        return wanted(self._rows, self.candidate)

    def move(self, delta: int) -> None:
        """Highlight the row `by` below (above if negative), as far as there are any."""
        self._highlight(max(0, min(len(self._rows) - 1, self.highlighted + delta)))

    def highlight(self, id: int) -> None:
        """Highlight the candidate with this id, where it is one."""
        self._highlight(next((n for n, c in enumerate(self._rows) if c.id == id), self.highlighted))

    def show(self, timeline: Timeline) -> None:
        """Show the candidates of the selected slot."""
        source = (timeline.before, timeline.taken, timeline.candidates)
        if source != self._of:
            self._of = source
            self._rows = rows_of(timeline)
            taken = timeline.taken
            self.highlighted = next((n for n, c in enumerate(self._rows) if c.id == taken), 0)
            self._top = 0
        super().show(timeline)

    def _highlight(self, index: int) -> None:
        if index != self.highlighted and 0 <= index < len(self._rows):
            self.highlighted = index
            self.post_message(self.CandidateHighlighted(index))
            self.redraw()

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._top = 0
        super().on_resize(event)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or not 1 <= at.y <= len(self._places):
            return
        index = self._places[at.y - 1]
        if index == self.highlighted:
            self.post_message(CandidateChosen(self._rows[index].id))
        else:
            self._highlight(index)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-1)

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, self._places = self.timeline, []
        if timeline is None or not self._rows:
            self._entitle(timeline)
            reason, advice = why_no_candidates(timeline)
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        kind = placement(self.ahead is not None and self.ahead.on, height)
        self._lay_out(kind, height, timeline.taken)
        self._entitle(timeline)
        distribution, item = timeline.distribution, timeline.selected
        fit = self._columns(kind, width, distribution is not None)
        rows = [self._head(fit), *self._candidates(kind, fit, width, timeline)]
        if len(rows) < height:
            rows.append(self._others(fit, distribution, item))
        if len(rows) < height:
            rows += [[] for _ in range(min(1, height - len(rows) - 1))]
            rows.append(self._draw_line(distribution, timeline, width))
        if len(rows) < height and distribution is not None and not timeline.conceals(*_CONCEALS):
            rows.append(self._stages(distribution))
        return rows

    def _columns(self, kind: Placement, width: int, sampler: bool) -> CandidateColumns:
        if kind is Placement.BEHIND:
            return columns_behind(width, sampler)
        longest = max(cell_len(token_label(each.text, each.raw)) for each in self._rows)
        return columns(width, sampler, longest)

    def _lay_out(self, kind: Placement, height: int, taken: int | None) -> None:
        """Find which candidates are in the rows between the head and the two lines below.

        They go on around the highlighted one; it, the one that stands there and the first are always among them.
        """
        tall = self._tall() if kind is Placement.UNDER else frozenset()
        cells = [1 + (index in tall) for index in range(len(self._rows))]
        standing = (index for index, candidate in enumerate(self._rows) if candidate.id == taken)
        pinned = tuple(dict.fromkeys((self.highlighted, *standing, 0)))
        room = min(max(height - 3, sum(cells[index] for index in pinned)), max(1, height - 1))
        self._top = min(self._top, self.highlighted)
        while not (shown := fitting_rows(self._top, pinned, cells, room)).issuperset(
            range(self._top, self.highlighted)
        ):
            self._top += 1
        self._places = [index for index in sorted(shown) for _ in range(cells[index])][:room]

    def _tall(self) -> frozenset[int]:
        """Candidates with a second row: those that have a line, or are about to have one."""
        timeline = self.timeline
        known = self.ahead.lines(timeline.before) if self.ahead and timeline else {}
        ids = {*self.wanted, *known}
        return frozenset(n for n, candidate in enumerate(self._rows) if candidate.id in ids)

    def _candidates(
        self, kind: Placement, fit: CandidateColumns, width: int, timeline: Timeline
    ) -> list[Row]:
        """The rows of the candidates, and of their lines where those are drawn under them."""
        rows: list[Row] = []
        for place, index in enumerate(self._places):
            line = self._line_text(self._rows[index], timeline)
            if place and self._places[place - 1] == index:
                row = self._under(line, width, self._ink(index, timeline.taken))
            else:
                behind = line if kind is Placement.BEHIND else LineText()
                row = self._row(index, fit, timeline.taken, behind)
            rows.append(self._lit(row, width) if index == self.highlighted else row)
        return rows

    def _line_text(self, candidate: Candidate, timeline: Timeline) -> LineText:
        """What is known of what might come after a candidate."""
        if self.ahead is None:
            return LineText()
        node = timeline.before
        waited_for = candidate.id in self.ahead.waited_for(node)
        return line_text(self.ahead.lines(node).get(candidate.id), waited_for)

    def _head(self, fit: CandidateColumns) -> Row:
        long, short = "token, and what greedy decoding would bring", "token, greedy after it"
        token = (long if len(long) <= fit.token else short) if fit.joint else "token"
        text = " " * MARK + pad(token, fit.token + 1 + fit.bar) + pad("model", PERCENT, right=True)
        text += pad("sampler", SAMPLER, right=True) if fit.sampler else ""
        text += pad("rank", RANK, right=True) if fit.rank else ""
        text += pad("id", ID, right=True) if fit.id else ""
        return [Segment(text + (pad("joint", JOINT, right=True) if fit.joint else ""), self.ink("muted"))]

    def _ink(self, index: int, taken: int | None) -> Style:
        """The ink of a row: grey where a stage cut its candidate."""
        candidate = self._rows[index]
        if candidate.cut_by is None or self._unnumbered:
            return self.rich_style
        return self.ink("muted" if index == self.highlighted or candidate.id == taken else "faint")

    def _row(self, index: int, fit: CandidateColumns, taken: int | None, line: LineText) -> Row:
        candidate, ink = self._rows[index], self._ink(index, taken)
        return [
            self._lead(index),
            Segment("▶ " if candidate.id == taken else "  ", self.ink("accent")),
            *self._words(candidate, fit.token, ink, line.text),
            *self._numbers(candidate, fit, ink, line.joint),
        ]

    def _lead(self, index: int) -> Segment:
        """Whether a row is highlighted, or others before it are left out."""
        if index == self.highlighted:
            return Segment("▌", self.ink("primary"))
        after_gap = index > 0 and index - 1 not in self._places
        return Segment("⋮" if after_gap else " ", self.ink("muted"))

    def _words(self, candidate: Candidate, cells: int, ink: Style, line: str) -> Row:
        """A candidate's text, and dim behind it what might come, in `cells` cells and one blank."""
        cut = candidate.cut_by is not None
        label, blanks = fill_cells(token_label(candidate.text, candidate.raw), cells)
        words = self.ink("special") if candidate.special and not cut else ink
        if not line:
            return [Segment(label, words), Segment(blanks + " ", ink)]
        behind, blanks = fill_cells(line, len(blanks))
        return [
            Segment(label, self.ink("muted") if cut else words),  # to distinguish the two
            Segment(f"{behind}{blanks} ", (ink if cut else self.ink("muted")) + DIM),
        ]

    def _under(self, line: LineText, width: int, ink: Style) -> Row:
        """What might come after a candidate, in a row of its own."""
        joint = f" joint {line.joint}" if line.joint else ""
        joint = joint if width - MARK - len(joint) >= LEAST else ""
        text, blanks = fill_cells(own_row(line.text), width - MARK - len(joint))
        ink = ink if ink != self.rich_style else self.ink("muted")
        return [Segment(" " * MARK), Segment(text + blanks + joint, ink + DIM)]

    def _lit(self, row: Row, width: int) -> Row:
        """The highlighted row."""
        ground, bold = Style(bgcolor=self.ink("row").bgcolor), Style(bold=True)
        return [Segment(text, bold + (style or Style()) + ground) for text, style, _ in _filled(row, width)]

    def _numbers(self, candidate: Candidate, fit: CandidateColumns, ink: Style, joint: str) -> Row:
        if self._unnumbered:
            return [Segment(" " * fit.bar + pad("?", PERCENT, right=True), self.ink("muted"))]
        row: Row = [
            Segment(bar(candidate.prob, fit.bar), ink if candidate.cut_by else ink + self.data()),
            Segment(pad(scales.percent(candidate.prob), PERCENT, right=True), ink),
        ]
        if fit.sampler:
            after = visible(candidate.cut_by) if candidate.cut_by else scales.percent(candidate.sampler_prob)
            row.append(Segment(" " + pad(after, SAMPLER - 1, right=True), ink))
        muted = ink if candidate.cut_by else self.ink("muted")
        if fit.rank:
            row.append(Segment(pad(scales.count(candidate.rank), RANK, right=True), muted))
        if fit.id:
            row.append(Segment(pad(str(candidate.id), ID, right=True), muted))
        if fit.joint:
            row.append(Segment(pad(joint, JOINT, right=True), muted))
        return row

    def _others(self, fit: CandidateColumns, distribution: Distribution | None, item: Item | None) -> Row:
        """The rest of the vocabulary in one row."""
        muted = self.ink("muted")
        if self._unnumbered:
            return []
        prompt = scales.others_prob(item) if isinstance(item, PromptToken) else 0.0
        mass = distribution.others_prob if distribution else prompt
        vocabulary = self.timeline.facts.vocabulary if self.timeline and self.timeline.facts else 0
        number = vocabulary - len(self._rows) if vocabulary else distribution.others if distribution else 0
        label = f"{scales.count(max(0, number))} others"
        row = [
            Segment(" " * MARK + pad(label, fit.token + 1 + fit.bar), muted),
            Segment(pad(scales.percent(mass), PERCENT, right=True), muted),
        ]
        if fit.sampler and distribution:
            cut = not distribution.others_sampler_prob and distribution.draw is not None
            after = "cut" if cut else scales.percent(distribution.others_sampler_prob)
            row.append(Segment(" " + pad(after, SAMPLER - 1, right=True), muted))
        return row

    def _draw_line(self, distribution: Distribution | None, timeline: Timeline, width: int) -> Row:
        muted = self.ink("muted")
        if distribution is None:
            return [Segment(" " * MARK + "the prompt stands here: nothing was drawn", muted)]
        inks = {name: self.ink(name) for name in ("muted", "accent", "strong", "faint")} | {
            "data": self.data()
        }
        lead = Segment(" " * MARK, muted)
        if timeline.conceals("probabilities"):
            return []
        concealed = timeline.following and timeline.conceals("picked")
        by_hand = not concealed and timeline.taken != distribution.picked
        return [lead, *draw_line(distribution, by_hand, width - len(lead.text), inks, concealed)]

    def _stages(self, distribution: Distribution) -> Row:
        """The stages of the sampler in their order, and how many tokens were left by those that cut."""
        muted = self.ink("muted")
        row = [Segment(" " * MARK + "stages ", muted)]
        left = distribution.others + len(distribution.candidates)
        for number, stage in enumerate(distribution.stages):
            row.append(Segment((" → " if number else "") + visible(stage.name), muted))
            if stage.kept != left:
                row += [Segment(" keeps ", muted), Segment(scales.count(stage.kept))]
            left = stage.kept
        return row if distribution.stages else []

    def _entitle(self, timeline: Timeline | None) -> None:
        """Whose candidates these are, and how much choice there is."""
        if timeline is None or not self._rows:
            self.title(Content("Next token"))
            return
        item, distribution = timeline.selected, timeline.distribution
        note = visible(self.ahead.note(timeline.before)) if self.ahead else ""
        if distribution is None:
            entropy = item.entropy_bits if isinstance(item, PromptToken) else None
            extra = f" · {scales.MODEL_ENTROPY} {scales.bits(entropy)} bits" if entropy is not None else ""
            self.title(Content(f"Prompt token {timeline.slot + 1}{extra}"), Content(note) if note else None)
            return
        name = (
            f"Step {item.index + 1}{_BY_HAND.get(item.origin, '')}"
            if isinstance(item, Step)
            else "Next token"
        )
        if timeline.conceals("probabilities"):
            self.title(Content(name), Content(CONCEALED))
            return
        left = note or f"{scales.SAMPLER_ENTROPY} {scales.bits(distribution.sampler_entropy_bits)} bits"
        left = CONCEALED if timeline.following and timeline.conceals("picked") else left
        under = left + self._hidden()
        short = (
            under
            if cell_len(under) <= self.size.width
            else note or self._hidden().removeprefix(" · ") or left
        )
        expected = scales.bits(distribution.entropy_bits)
        self.title(Content(f"{name} · {scales.MODEL_ENTROPY} {expected} bits"), Content(short))

    @property
    def _unnumbered(self) -> bool:
        """Whether the candidates' probabilities are to be predicted."""
        return self.timeline is not None and self.timeline.conceals("probabilities")

    def _hidden(self) -> str:
        more = len(self._rows) - len(set(self._places))
        return f" · {more} more rows ↑↓" if more > 0 else ""


def _filled(row: Row, width: int) -> Row:
    """A row made as wide as the panel, so that its ground reaches the edge."""
    missing = width - Segment.get_line_length(row)
    return [*row, Segment(" " * missing)] if missing > 0 else row
