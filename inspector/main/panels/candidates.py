"""What could come next, or could have come: the model's belief, what the sampler made of it, and the draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message

from engine.frozen import frozen
from engine.protocol import MADE_UP, AheadLine, Candidate, Distribution, PromptToken, Step
from inspector import scales
from inspector.display import SPACE, pad, token_label, truncate, visible
from inspector.main.tool import CandidateChosen
from inspector.state.lookahead import LookAheadLines, wanted
from inspector.state.session_tree import Item
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.canvas import Canvas, Row, centred, why_empty
from inspector.widgets.charts import bar, places
from inspector.widgets.inks import panel_css

END = "‹end›"
"""Marks where the text would end."""
WAITING = "…"
LEAST, ENOUGH = 24, 32
"""Cells that a line needs before the joint probability, and before what the sampler made of it, get their room."""
MOST = 60
"""Cells that a candidate and its line get before the bar comes back."""
TALL = 13
"""Rows from which a line gets a row of its own."""


class Placement(Enum):
    """Where the lines are drawn."""

    OFF = "off"
    BEHIND = "behind"
    """Behind the candidate's token, instead of the bar, the rank and the id."""
    UNDER = "under"
    """In a row under the candidate's."""


def placement(on: bool, height: int) -> Placement:
    """Where a panel of `height` rows draws the lines."""
    if not on:
        return Placement.OFF
    return Placement.UNDER if height >= TALL else Placement.BEHIND


@frozen
class LineText:
    """What is shown of one line."""

    text: str = ""
    joint: str = ""
    """Probability of the candidate and all tokens after it together."""


def line_text(line: AheadLine | None, waited_for: bool) -> LineText:
    """What is shown of a line, printable.

    Args:
        line: None where there is none.
        waited_for: Whether one was requested.
    """
    if line is None:
        return LineText(WAITING if waited_for else "")
    text = visible(line.text) + (END if line.ended else "")
    return LineText(text, scales.percent(math.exp(line.logprob)))


def own_row(text: str) -> str:
    """The text of a line in its own row: the spaces at its beginning are shown."""
    rest = text.lstrip(" ")
    return SPACE * (len(text) - len(rest)) + rest


def fill_cells(text: str, cells: int) -> tuple[str, str]:
    """A text cut to `cells` cells, and the blanks that fill them."""
    shown = truncate(text, cells)
    return shown, " " * (cells - cell_len(shown))


MARK, PERCENT, SAMPLER, RANK, ID, JOINT = 3, 8, 9, 7, 8, 9
"""Cells of the columns, their left gap included (the marks have none), and without their bars."""
WORDS = 22
"""Cells that a token's text gets at most."""
ROOM, TIGHT = 20, 12
"""Cells of tokens and bars under which a column is dropped; and under which the sampler's is, the last one."""
LEVEL = 0.9
"""Of the colour of the sampler's bar: another one than the model's."""
UNKNOWN = "·"
"""Shown for a number that the engine did not send."""
LEAST_BAR = 4
"""Cells that a bar keeps where the tokens are long."""
NOISE = 1e-5
"""Below this two probabilities are the same: a fifth of what half of the last digit is worth."""
BOTH, EITHER = "model = sampler", "both"
"""Heads of the one column where the sampler leaves the model's probabilities as they are."""


@frozen
class CandidateColumns:
    """Which columns fit, and how wide those are that give way."""

    token: int
    bar: int
    """Of each bar: the model's, and the sampler's where that has a column."""
    sampler: bool
    rank: bool
    id: bool
    joint: bool = False
    """The probability of a look ahead."""


def columns(width: int, sampler: bool, longest: int = 0) -> CandidateColumns:
    """The columns for a width: the id goes first, then the rank, then what the sampler made of it.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column at all.
        longest: Cells of the longest token's text: it has room before the bars have.
    """
    extra = {"sampler": SAMPLER, "rank": RANK, "id": ID}
    if not sampler:
        del extra["sampler"]
    for dropped in ("", "id", "rank", "sampler"):
        extra.pop(dropped, None)
        free = width - MARK - PERCENT - sum(extra.values())
        if free >= (TIGHT if [*extra] == ["sampler"] else ROOM):
            break
    bars = 1 + ("sampler" in extra)
    usual = free // 2 if bars == 1 else free * 2 // 5
    token = max(6, min(WORDS, max(usual, min(longest, free - bars * LEAST_BAR - 1))))
    return _divided(free, token, bars, **{name: name in extra for name in ("sampler", "rank", "id")})


def columns_behind(width: int, sampler: bool) -> CandidateColumns:
    """The columns where look-ahead is drawn behind the tokens: its text has room first, then the present numbers.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column at all.
    """
    free = width - MARK - PERCENT
    fits: dict[str, bool] = {}
    for name, cells, least in (
        ("joint", JOINT, LEAST), ("sampler", SAMPLER, ENOUGH), ("rank", RANK, MOST), ("id", ID, MOST),
    ):  # fmt: skip
        fits[name] = free - cells >= least and (name != "sampler" or sampler)
        free -= cells if fits[name] else 0
    return _divided(free, min(MOST, free - 1), 1 + fits["sampler"], **fits)


def _divided(free: int, token: int, bars: int, **fits: bool) -> CandidateColumns:
    """Divide the cells that no number takes: what the token leaves is for the bars, whose rest is the token's."""
    each = max(0, (free - token - 1) // bars)
    return CandidateColumns(max(token, free - 1 - bars * each), each, **fits)


def is_untouched(distribution: Distribution) -> bool:
    """True if the sampler leaves every probability as the model has it: two bars would be twins."""
    for each in distribution.candidates:
        if each.cut_by is not None or not abs(each.prob - each.sampler_prob) < NOISE:
            return False
    return abs(distribution.others_prob - distribution.others_sampler_prob) < NOISE


def fitting_rows(top: int, pinned: Sequence[int], cells: Sequence[int], room: int) -> set[int]:
    """The candidates that are shown: those that always are, then as many as fit from `top` on.

    Args:
        top: Index of a candidate.
        pinned: Indices, the most important first; the first of them is shown whether it fits or not.
        cells: Rows that each candidate takes.
        room: Rows.
    """
    shown = {pinned[0]}
    left = room - cells[pinned[0]]
    for index in (*pinned[1:], *range(top, len(cells))):
        if index not in shown:
            if cells[index] > left:
                break
            shown.add(index)
            left -= cells[index]
    return shown


def rows_of(timeline: Timeline) -> tuple[Candidate, ...]:
    """The candidates of the selected slot, and its own token where that is not among them.

    Under a grammar those that it allows come first: as a rule it cuts what the model finds most probable.
    """
    tried, item = timeline.tried, timeline.selected
    distribution = tried or timeline.distribution
    candidates = tried.candidates if tried is not None else timeline.candidates
    if distribution is not None and distribution.grammar is not None:
        candidates = tuple(sorted(candidates, key=lambda each: each.cut_by == "grammar"))
    if not candidates or item is None or any(candidate.id == item.id for candidate in candidates):
        return candidates
    if item.prob is None or item.logprob is None or item.rank is None:
        return candidates
    sampler = item.sampler_prob if isinstance(item, Step) else item.prob
    own = Candidate(
        item.id, item.text, item.raw, item.special, item.logprob, item.prob, item.rank, sampler, None
    )
    return (*candidates, own)


def why_no_candidates(timeline: Timeline | None) -> tuple[str, str]:
    """Why there are none: the reason and the advice."""
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "The candidates for each token appear here.")
    if timeline.distribution is not None and timeline.distribution.listed:
        return "The reply ends here: it lists nothing for the next token.", "← goes back to its tokens."
    if timeline.following:
        return why_empty(timeline, "The candidates for the first token appear here.")
    if timeline.slot == 0:
        return (
            "This is the first token: the model had no text to predict it from.",
            "Press → for the next one.",
        )
    if timeline.prompts.opened is not None and not timeline.prompts.opened.echo:
        return (
            "Prompt logprobs are off, so the probabilities of the prompt's tokens are not known.",
            "They are on for prompts of up to 2,048 tokens, unless --no-prompt-logprobs turns them off.",
        )
    if timeline.slot < timeline.held:
        return (
            "The logprob of this token of the prompt is not computed yet.",
            "It is computed as soon as the engine is idle.",
        )
    return (
        "This token of the prompt has not gone through the model yet.",
        "Its candidates come with its chunk.",
    )


_LEAST = 10
"""Cells of a scale that can still be read."""
_DRAWN, _TAKEN, _OTHER, _EDGE = "●", "━", "─", "┆"


def draw_line(
    distribution: Distribution, by_hand: bool, width: int, inks: Mapping[str, Style], concealed: bool = False
) -> list[Segment]:
    """`draw 0.417 ▕──●──┆──▏ fell on ␣toys`, as much of it as the width allows.

    Args:
        distribution: What was, or will be, drawn from.
        by_hand: Whether another token than the picked one was taken.
        width: Cells available.
        inks: Named styles: `muted`, `accent`, `strong`, `faint`.
        concealed: Whether it is to be predicted where the draw fell.
    """
    picked = next((c for c in distribution.candidates if c.id == distribution.picked), None)
    label = token_label(picked.text, picked.raw) if picked else f"id {distribution.picked}"
    label = "?" if concealed else label
    if distribution.draw is None:
        words = f"greedy: no draw; the most probable is {label}" if by_hand else "greedy: no draw"
        return [Segment(words, inks["muted"])]
    row = [Segment("draw ", inks["muted"]), Segment(f"{places(distribution)[0]} ", inks["accent"])]
    again = f" (re-roll {distribution.reroll})" if distribution.reroll else ""
    end = f"{again} fell on "
    room = width - sum(part.cell_length for part in row) - 2
    if room - cell_len(end + label) >= _LEAST:
        scale = _scale(distribution, room - cell_len(end + label), inks, concealed)
        return [*row, *scale, Segment(end, inks["muted"]), Segment(label, inks["strong"])]
    return [*row, *_scale(distribution, max(1, room), inks, concealed)]


def _scale(
    distribution: Distribution, cells: int, inks: Mapping[str, Style], concealed: bool
) -> list[Segment]:
    """The distribution laid end to end, best first: where each share ends, and where the draw fell."""
    chars = [_OTHER] * cells
    shares = sorted((c.sampler_prob for c in distribution.candidates if c.sampler_prob > 0), reverse=True)
    for edge in accumulate(shares):
        if (at := int(edge * cells)) < cells:
            chars[at] = _EDGE
    low, high = distribution.draw_from or 0.0, distribution.draw_to or 0.0
    taken = range(int(low * cells), max(int(low * cells) + 1, int(high * cells)))
    drawn = min(cells - 1, int((distribution.draw or 0.0) * cells))
    if concealed:
        taken, drawn = range(0), -1
    return [
        Segment("▕", inks["faint"]),
        *(
            Segment(_DRAWN, inks["accent"]) if at == drawn
            else Segment(_TAKEN, inks["data"]) if at in taken
            else Segment(char, inks["faint"])
            for at, char in enumerate(chars)
        ),
        Segment("▏", inks["faint"]),
    ]  # fmt: skip


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
        self._of: tuple[object, Distribution | None] | None = None
        """The place of the rows, and what tried settings would draw from there."""
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
        place, tried = (timeline.before, timeline.taken, timeline.candidates), timeline.tried
        if (place, tried) != self._of:
            kept = self.candidate if self._of is not None and place == self._of[0] else None
            self._of = place, tried
            self._rows = rows_of(timeline)
            at = {candidate.id: row for row, candidate in enumerate(self._rows)}
            taken = at.get(timeline.taken, 0) if timeline.taken is not None else 0
            self.highlighted = at.get(kept.id, taken) if kept is not None else taken
            self._top = self._top if kept is not None else 0
        super().show(timeline)

    def reads(self, timeline: Timeline) -> tuple[object, ...]:
        node, ahead = timeline.before, self.ahead
        lines = (*ahead.lines(node).items(), ahead.waited_for(node)) if ahead is not None and ahead.on else ()
        return *timeline.place, timeline.tried, self.highlighted, lines

    def _highlight(self, index: int) -> None:
        if index != self.highlighted and 0 <= index < len(self._rows):
            self.highlighted = index
            self.post_message(
                self.CandidateHighlighted(index)
            )  # the main screen shows it, and the status, at once

    # ---- events -----------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        if self._top:
            self._top = 0
            self.redraw()
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
            return centred([(reason, self.ink("base")), (advice, self.ink("muted"))], width, height)
        kind = placement(self.ahead is not None and self.ahead.on, height)
        self._lay_out(kind, height, timeline.taken)
        self._entitle(timeline)
        tried, item = timeline.tried, timeline.selected
        distribution = tried or timeline.distribution
        untouched = distribution is not None and is_untouched(distribution) and not self._unnumbered
        sampler = distribution is not None and not untouched
        if kind is Placement.BEHIND:
            fit = columns_behind(width, sampler)
        else:
            longest = max(cell_len(token_label(each.text, each.raw)) for each in self._rows)
            fit = columns(width, sampler, longest)
        listed = distribution is not None and distribution.listed
        rows = [
            self._head(fit, untouched, tried is not None, listed),
            *self._candidates(kind, fit, width, timeline),
        ]
        if len(rows) < height:
            rows.append(self._others(fit, distribution, item))
        if len(rows) < height:
            rows += [[]] * min(1, height - len(rows) - 1)
            rows.append(self._draw_line(distribution, timeline, width))
        if len(rows) < height and distribution is not None and not timeline.conceals(*_CONCEALS):
            rows.append(self._stages(distribution))
        return rows

    def _lay_out(self, kind: Placement, height: int, taken: int | None) -> None:
        """Find which candidates are in the rows between the head and the two lines below.

        They go on around the highlighted one; it, the one that stands there and the first are always among them.
        """
        tall = self._tall() if kind is Placement.UNDER else frozenset()
        cells = [1 + (index in tall) for index in range(len(self._rows))]
        standing = [index for index, candidate in enumerate(self._rows) if candidate.id == taken]
        pinned = tuple(dict.fromkeys((self.highlighted, *standing, 0)))
        room = min(max(height - 3, sum([cells[index] for index in pinned])), max(1, height - 1))
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
        if self.ahead is None or not self.ahead.on:
            return LineText()
        node = timeline.before
        waited_for = candidate.id in self.ahead.waited_for(node)
        return line_text(self.ahead.lines(node).get(candidate.id), waited_for)

    def _head(self, fit: CandidateColumns, untouched: bool, tried: bool, listed: bool) -> Row:
        long, short = "token, and its greedy continuation", "token, greedy after it"
        token = (long if len(long) <= fit.token else short) if fit.joint else "token"
        room, muted = fit.bar + PERCENT, self.ink("muted")
        model = (BOTH if len(BOTH) < room else EITHER) if untouched else "model"
        model = "server" if listed else model
        row = [Segment(" " * MARK + pad(token, fit.token + 1) + pad(model, room, right=True), muted)]
        if fit.sampler:
            after, ink = ("tried", self.ink("accent")) if tried else ("sampler", muted)
            row.append(Segment(pad(after, fit.bar + SAMPLER, right=True), ink))
        for there, name, cells in ((fit.rank, "rank", RANK), (fit.id, "id", ID), (fit.joint, "joint", JOINT)):
            row += [Segment(pad(name, cells, right=True), muted)] * there
        return row

    def _ink(self, index: int, taken: int | None) -> Style:
        """The ink of a row: grey where a stage cut its candidate."""
        candidate = self._rows[index]
        if candidate.cut_by is None or self._unnumbered:
            return self.ink("base")
        return self.ink("muted" if index == self.highlighted or candidate.id == taken else "faint")

    def _row(self, index: int, fit: CandidateColumns, taken: int | None, line: LineText) -> Row:
        """The row of a candidate: at its beginning whether it is highlighted, or others before it are left out."""
        candidate, ink = self._rows[index], self._ink(index, taken)
        lead = Segment("⋮" if index > 0 and index - 1 not in self._places else " ", self.ink("muted"))
        return [
            Segment("▌", self.ink("primary")) if index == self.highlighted else lead,
            Segment("▶ " if candidate.id == taken else "  ", self.ink("accent")),
            *self._words(candidate, fit.token, ink, line.text),
            *self._numbers(candidate, fit, ink, line.joint),
        ]

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
        ink = ink if ink != self.ink("base") else self.ink("muted")
        return [Segment(" " * MARK), Segment(text + blanks + joint, ink + DIM)]

    def _lit(self, row: Row, width: int) -> Row:
        """The highlighted row, as wide as the panel, so that its ground reaches the edge."""
        ground, bold = Style(bgcolor=self.ink("row").bgcolor), Style(bold=True)
        missing = width - Segment.get_line_length(row)
        filled = [*row, Segment(" " * missing)] if missing > 0 else row
        return [Segment(text, bold + (style or Style()) + ground) for text, style, _ in filled]

    def _numbers(self, candidate: Candidate, fit: CandidateColumns, ink: Style, joint: str) -> Row:
        if self._unnumbered:
            return [Segment(" " * fit.bar + pad("?", PERCENT, right=True), self.ink("muted"))]
        unknown = math.isnan(candidate.logprob)
        row: Row = [
            Segment(bar(candidate.prob, fit.bar), ink if candidate.cut_by else ink + self.data()),
            Segment(pad("?" if unknown else scales.percent(candidate.prob), PERCENT, right=True), ink),
        ]
        if fit.sampler:
            row += self._after(candidate, fit.bar, ink)
        muted = ink if candidate.cut_by else self.ink("muted")
        if fit.rank:
            row.append(
                Segment(pad(scales.count(candidate.rank) if candidate.rank else "?", RANK, right=True), muted)
            )
        if fit.id:
            row.append(
                Segment(pad("" if candidate.id >= MADE_UP else str(candidate.id), ID, right=True), muted)
            )
        if fit.joint:
            row.append(Segment(pad(joint, JOINT, right=True), muted))
        return row

    def _after(self, candidate: Candidate, cells: int, ink: Style) -> Row:
        """What the sampler made of a candidate: a bar and its number, or the stage that cut it."""
        tried = self._of[1] if self._of is not None else None
        if candidate.cut_by:
            after = visible(candidate.cut_by)
        elif tried is not None and candidate not in tried.candidates:
            after = UNKNOWN  # the slot's own token, beyond the candidates
        else:
            number = pad(scales.percent(candidate.sampler_prob), SAMPLER - 1, right=True)
            drawn = Segment(bar(candidate.sampler_prob, cells), ink + self.data(LEVEL))
            return [Segment(" ", ink), drawn, Segment(number, ink)]
        return [Segment(" " + pad(after, cells + SAMPLER - 1, right=True), ink)]

    def _others(self, fit: CandidateColumns, distribution: Distribution | None, item: Item | None) -> Row:
        """The rest of the vocabulary in one row."""
        muted = self.ink("muted")
        if self._unnumbered:
            return []
        prompt = scales.others_prob(item) if isinstance(item, PromptToken) else 0.0
        mass = distribution.others_prob if distribution else prompt
        vocabulary = self.timeline.facts.vocabulary if self.timeline and self.timeline.facts else 0
        number = vocabulary - len(self._rows) if vocabulary else distribution.others if distribution else 0
        listed = distribution is not None and distribution.listed
        label = "all others" if listed else f"{scales.count(max(0, number))} others"
        row = [
            Segment(" " * MARK + pad(label, fit.token + 1 + fit.bar), muted),
            Segment(pad("?" if listed and mass <= 0 else scales.percent(mass), PERCENT, right=True), muted),
        ]
        if fit.sampler and distribution:
            cut = not distribution.others_sampler_prob and distribution.draw is not None
            after = "cut" if cut else scales.percent(distribution.others_sampler_prob)
            row.append(Segment(" " + pad(after, fit.bar + SAMPLER - 1, right=True), muted))
        return row

    def _draw_line(self, distribution: Distribution | None, timeline: Timeline, width: int) -> Row:
        muted = self.ink("muted")
        if distribution is None:
            return [Segment(" " * MARK + "part of the prompt: nothing was drawn", muted)]
        inks = {name: self.ink(name) for name in ("muted", "accent", "strong", "faint")}
        inks["data"] = self.data()
        lead = Segment(" " * MARK, muted)
        if distribution.listed:
            return [lead, Segment("a server sent it: how it was drawn isn't known", muted)]
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
        item, tried = timeline.selected, timeline.tried
        distribution = tried or timeline.distribution
        note = visible(self.ahead.note(timeline.before)) if self.ahead and self.ahead.on else ""
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
            self.title(Content(name), Content(timeline.concealed_as))
            return
        if distribution.listed:
            self.title(
                Content(f"{name} · as the server lists it"), Content(self._hidden().removeprefix(" · "))
            )
            return
        after = f"{scales.SAMPLER_ENTROPY} {scales.bits(distribution.sampler_entropy_bits)} bits"
        left = note or ("tried: " if tried is not None else "") + after
        left = timeline.concealed_as if timeline.following and timeline.conceals("picked") else left
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
        """True if the candidates' probabilities are to be predicted."""
        return self.timeline is not None and self.timeline.conceals("probabilities")

    def _hidden(self) -> str:
        more = len(self._rows) - len(set(self._places))
        return f" · {more} more rows ↑↓" if more > 0 else ""
