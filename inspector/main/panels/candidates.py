"""The tokens that could come next, or could have come: the model's probabilities, the sampler's, and the draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.message import Message

from engine.protocol import MADE_UP, AheadLine, Candidate, Distribution, PromptToken, Step
from inspector import scales
from inspector.display import SPACE, pad, token_label, truncate, visible
from inspector.main.tool import CandidateChosen
from inspector.state.candidates import after_sampler, is_untouched, of_prompt, with_own
from inspector.state.lookahead import LookAheadLines, wanted
from inspector.state.session_tree import numbered
from inspector.state.timeline import Phase, Timeline
from inspector.widgets.canvas import Canvas, PanelCanvas, Row, why_empty
from inspector.widgets.charts import bar, places

END, COMPLETE = "‹end›", "‹grammar complete›"
"""Marks at the end of a text: with an end-of-sequence token, which counts in the joint probability, or without."""
WAITING = "…"
LEAST, ENOUGH = 24, 32
"""Cells that must be left for a look-ahead line beside the joint probability, and beside the sampler's."""
MOST = 60
"""Maximum cells of a candidate and its look-ahead line; the rank, the id and the bar get what is left."""
TALL = 13
"""Rows from which a look-ahead line gets a row of its own."""


LineText = tuple[str, str]
"""The text of a look-ahead line, and the joint probability of the candidate and all tokens after it; both may be
empty."""


def line_text(line: AheadLine | None, waited_for: bool, ends: Sequence[int] = ()) -> LineText:
    """The text of a look-ahead line; printable.

    Args:
        line: The line; None if there is none.
        waited_for: Whether a line was requested.
        ends: Ids of the end-of-sequence tokens.
    """
    if line is None:
        return WAITING if waited_for else "", ""
    end = END if (line.id, *line.ids)[-1] in ends else COMPLETE
    text = visible(line.text) + (end if line.ended else "")
    return text, scales.percent(math.exp(line.logprob))


def own_row(text: str) -> str:
    """The text of a look-ahead line in its own row, with visible spaces at its beginning."""
    rest = text.lstrip(" ")
    return SPACE * (len(text) - len(rest)) + rest


MARK, PERCENT = 3, 8
"""Cells of the marks, and of the model's probability with its left gap."""
NUMBERS = {"sampler": 9, "rank": 7, "id": 8, "joint": 9}
"""Cells of the other columns of numbers, their left gap included, without the sampler's bar."""
WORDS = 22
"""Maximum cells of a token's text."""
ROOM, TIGHT = 20, 12
"""Minimum cells of tokens and bars beside columns of numbers, and beside the sampler's column alone."""
LEVEL = 0.9
"""Level of the colour of the sampler's bar, which differs from the model's."""
LEAST_BAR = 4
"""Minimum cells of a bar beside long tokens."""
BOTH, EITHER = "model = sampler", "both"
"""Heads of the single column if the sampler doesn't change the model's probabilities."""


class CandidateColumns(Struct, frozen=True):
    """The columns that fit, and the widths of the flexible ones."""

    token: int
    bar: int
    """Cells of each bar: the model's, and the sampler's if that has a column."""
    numbers: tuple[str, ...]
    """Names of the `NUMBERS` that have a column."""


def columns(width: int, sampler: bool, longest: int = 0) -> CandidateColumns:
    """The columns for a width: the id is left out first, then the rank, then the sampler's probability.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column.
        longest: Cells of the longest token's text, which gets room before the bars.
    """
    numbers = ["sampler", "rank", "id"] if sampler else ["rank", "id"]
    while True:
        free = width - MARK - PERCENT - sum(map(NUMBERS.__getitem__, numbers))
        if not numbers or free >= (TIGHT if numbers == ["sampler"] else ROOM):
            break
        numbers.pop()
    bars = 1 + ("sampler" in numbers)
    usual = free // 2 if bars == 1 else free * 2 // 5
    token = max(6, min(WORDS, max(usual, min(longest, free - bars * LEAST_BAR - 1))))
    return _divided(free, token, numbers)


def columns_behind(width: int, sampler: bool) -> CandidateColumns:
    """The columns if look-ahead lines are drawn after the tokens: their text gets room first, then the numbers.

    Args:
        width: Cells available.
        sampler: Whether there is a sampler's column.
    """
    free, numbers = width - MARK - PERCENT, []
    for name, least in (("joint", LEAST), ("sampler", ENOUGH), ("rank", MOST), ("id", MOST)):
        if free - NUMBERS[name] >= least and (sampler or name != "sampler"):
            numbers.append(name)
            free -= NUMBERS[name]
    return _divided(free, min(MOST, free - 1), numbers)


def _divided(free: int, token: int, numbers: Sequence[str]) -> CandidateColumns:
    """Split the free cells: the token column comes first, then equal bars; the remainder goes to the token."""
    bars = 1 + ("sampler" in numbers)
    each = max(0, (free - token - 1) // bars)
    return CandidateColumns(max(token, free - 1 - bars * each), each, tuple(numbers))


def shown(timeline: Timeline) -> Distribution | None:
    """The distribution before the selected slot, that of tried settings if there are any, with the slot's own token;
    None in the prompt."""
    distribution, tried = timeline.tried or timeline.distribution, timeline.tried is not None
    return None if distribution is None else with_own(distribution, timeline.selected, tried)


def rows_of(timeline: Timeline) -> Sequence[Candidate]:
    """The candidates of the selected slot, its own token among them.

    Under a grammar, the candidates that it allows come first: it usually cuts the most probable ones.
    """
    item = timeline.selected
    if (distribution := shown(timeline)) is None:
        return of_prompt(item)[0] if isinstance(item, PromptToken) else timeline.candidates
    if distribution.grammar is None:
        return distribution.candidates
    return tuple(sorted(distribution.candidates, key=lambda each: each.cut_by == "grammar"))


def why_no_candidates(timeline: Timeline | None) -> tuple[str, str]:
    """The reason why there are no candidates, and advice."""
    if timeline is None or timeline.phase in (Phase.LOADING, Phase.FAILED, Phase.EMPTY) or not timeline.items:
        return why_empty(timeline, "The candidates for each token appear here.")
    if timeline.distribution is not None and timeline.distribution.listed:
        return "The reply ends here: it lists nothing for the next token.", "← goes back to its tokens."
    if timeline.following:
        return why_empty(timeline, "The candidates for the first token appear here.")
    if timeline.slot == 0:
        first = "This is the first token: the model had no text to predict it from."
        return first, "Press → for the next one."
    if timeline.prompts.opened is not None and not timeline.prompts.opened.echo:
        return (
            "Prompt logprobs are off, so the probabilities of the prompt's tokens are not known.",
            "They are on for prompts of up to 2,048 tokens, unless --no-prompt-logprobs turns them off.",
        )
    if timeline.slot < timeline.held:
        not_yet = "The logprob of this token of the prompt is not computed yet."
        return not_yet, "It is computed as soon as the engine is idle."
    not_read = "This token of the prompt has not gone through the model yet."
    return not_read, "Its candidates come with its chunk."


_LEAST = 10
"""Minimum cells of a readable scale."""
_DRAWN, _TAKEN, _OTHER, _EDGE = "●", "━", "─", "┆"


def draw_line(
    timeline: Timeline, distribution: Distribution | None, width: int, inks: Mapping[str, Style]
) -> Row:
    """`draw 0.417 ▕──●──┆──▏ fell on ␣toys`, as much of it as the width allows; or why there is no draw.

    Args:
        timeline: The timeline on show.
        distribution: The distribution that was, or will be, drawn from; None in the prompt.
        width: Cells available.
        inks: Named styles: `muted`, `accent`, `strong`, `faint`, `data`.

    Returns:
        The row, with room for the marks at its beginning; an empty one while the probabilities are concealed.
    """
    muted, lead = inks["muted"], Segment(" " * MARK, inks["muted"])
    if distribution is None:
        return [lead, Segment("part of the prompt: nothing was drawn", muted)]
    if distribution.listed:
        return [lead, Segment("a server sent it: how it was drawn isn't known", muted)]
    if timeline.conceals("probabilities"):
        return []
    concealed = timeline.following and timeline.conceals("picked")
    picked = (token_label(c.text, c.raw) for c in distribution.candidates if c.id == distribution.picked)
    label = "?" if concealed else next(picked, f"id {distribution.picked}")
    if distribution.draw is None:
        by_hand = not concealed and timeline.taken != distribution.picked
        words = f"greedy: no draw; the most probable is {label}" if by_hand else "greedy: no draw"
        return [lead, Segment(words, muted)]
    row = [lead, Segment("draw ", muted), Segment(f"{places(distribution)[0]} ", inks["accent"])]
    again = f" (re-roll {distribution.reroll})" if distribution.reroll else ""
    end = f"{again} fell on "
    room = width - Segment.get_line_length(row) - 2
    cells = room - cell_len(end + label)
    if cells < _LEAST:
        return [*row, *_scale(distribution, max(1, room), inks, concealed)]
    scale = _scale(distribution, cells, inks, concealed)
    return [*row, *scale, Segment(end, muted), Segment(label, inks["strong"])]


def _scale(
    distribution: Distribution, cells: int, inks: Mapping[str, Style], concealed: bool
) -> list[Segment]:
    """The shares of the candidates end to end, the best first: where each ends, and, unless that is concealed, where
    the draw fell."""
    chars = [_OTHER] * cells
    shares = sorted(map(attrgetter("sampler_prob"), distribution.candidates), reverse=True)
    for edge in accumulate(shares):
        at = int(edge * cells)
        if edge > 0 and at < cells:
            chars[at] = _EDGE
    low, high = int((distribution.draw_from or 0.0) * cells), int((distribution.draw_to or 0.0) * cells)
    taken = range(0) if concealed else range(low, max(low + 1, high))
    drawn = -1 if concealed else min(cells - 1, int((distribution.draw or 0.0) * cells))
    row = [Segment("▕", inks["faint"])]
    for at, char in enumerate(chars):
        if at == drawn:
            row.append(Segment(_DRAWN, inks["accent"]))
        else:
            row.append(Segment(_TAKEN, inks["data"]) if at in taken else Segment(char, inks["faint"]))
    return [*row, Segment("▏", inks["faint"])]


DIM = Style(bold=False)
"""The style of a look-ahead line, also in a highlighted row."""
_BY_HAND = {"chosen": ", chosen by hand", "inserted": ", inserted", "intervened": ", under interventions"}
"""Words for a token that the sampler did not pick, by its origin."""


def row_marks(on: Canvas, highlighted: bool, mark: Segment, gap: bool) -> Row:
    """The marks before a candidate's text: whether it is highlighted, its own mark, and whether candidates above it are
    left out."""
    left_out = Segment("⋮" if gap else " ", on.ink("muted"))
    if highlighted:
        return [Segment("▌", on.ink("primary")), mark, left_out]
    return [left_out, mark, Segment(" ")]


class CandidatesPanel(PanelCanvas, can_focus=True):
    """The candidates of the selected slot, best first, and the draw among them."""

    NAME = "Next token"

    highlighted: int = 0
    """Place of the candidate that enter takes; at first the slot's own token."""
    ahead: LookAheadLines | None = None
    """The look-ahead lines."""
    _rows: Sequence[Candidate] = ()
    _of: tuple[object, Distribution | None] | None = None
    """The place that the rows are for, and the distribution there under tried settings."""
    _top = 0
    _places: Sequence[int] = ()
    """Place of the candidate in each row of the panel, from the second row on."""

    class CandidateHighlighted(Message):
        """Another row was highlighted."""

    # ---- what is shown ----------------------------------------------------------------------

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted candidate; None if there are none."""
        return self._rows[self.highlighted] if self.highlighted < len(self._rows) else None

    @property
    def wanted(self) -> tuple[int, ...]:
        """Ids of the candidates to look ahead from."""
        return wanted(self._rows, self.candidate)

    def move(self, delta: int) -> None:
        """Highlight the row that is `delta` below (above if negative), up to the last or first one."""
        to = self.highlighted + delta
        if delta < 0 and not self._top and (above := [at for at in self._places if at < self.highlighted]):
            to = min(to, above[-1])  # from an improbable token to the best ones above it
        self._highlight(max(0, min(len(self._rows) - 1, to)))

    def highlight(self, id: int) -> None:
        """Highlight the candidate with this id, if there is one."""
        self._highlight(next((n for n, c in enumerate(self._rows) if c.id == id), self.highlighted))

    def show(self, timeline: Timeline) -> None:
        """Show the candidates of the selected slot."""
        place, tried = (timeline.before, timeline.taken, timeline.candidates), timeline.tried
        if (place, tried) != self._of:
            kept = self.candidate if self._of is not None and place == self._of[0] else None
            self._of = place, tried
            self._rows = rows_of(timeline)
            self.highlighted, self._top = 0, self._top if kept is not None else 0
            for row, candidate in enumerate(self._rows):
                if candidate.id == timeline.taken:
                    self.highlighted = row
                elif kept is not None and candidate.id == kept.id:
                    self.highlighted = row
                    break
        super().show(timeline)

    def _highlight(self, index: int) -> None:
        if index != self.highlighted and 0 <= index < len(self._rows):
            self.highlighted = index
            # the main screen shows it, with the status line
            self.post_message(self.CandidateHighlighted())

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

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _scrolled(self, event: events.MouseEvent) -> None:
        event.stop()
        self.move(1 if isinstance(event, events.MouseScrollDown) else -1)

    # ---- drawing ----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> list[Row]:
        timeline, self._places = self.timeline, ()
        if timeline is None or not self._rows:
            self.title(self.NAME)
            return self.centred(why_no_candidates(timeline), width, height)
        # look-ahead lines are drawn under the candidates, or after their tokens instead of bar, rank and id
        ahead = self.ahead if self.ahead is not None and self.ahead.on else None
        behind = ahead is not None and height < TALL
        self._lay_out(None if behind else ahead, height, timeline)
        distribution = timeline.tried or timeline.distribution
        self._entitle(timeline, distribution)
        concealed = timeline.conceals("probabilities")
        untouched = distribution is not None and not concealed and is_untouched(distribution)
        sampler = distribution is not None and not untouched
        if behind:
            fit = columns_behind(width, sampler)
        else:
            fit = columns(width, sampler, max(cell_len(token_label(c.text, c.raw)) for c in self._rows))
        head = self._head(fit, untouched, timeline.tried is not None, distribution)
        rows = [head, *self._candidates(ahead, behind, fit, width, timeline)]
        if len(rows) < height:
            rows.append([] if concealed else self._others(fit, shown(timeline), timeline))
        if len(rows) < height:
            rows += [[]] * min(1, height - len(rows) - 1)
            inks = {name: self.ink(name) for name in ("muted", "accent", "strong", "faint")}
            inks["data"] = self.data()
            rows.append(draw_line(timeline, distribution, width, inks))
        known = distribution is not None and not timeline.conceals("picked", "probabilities")
        if len(rows) < height and distribution is not None and known:
            rows.append(self._stages(distribution))
        return rows

    def _lay_out(self, under: LookAheadLines | None, height: int, timeline: Timeline) -> None:
        """Choose the candidates for the rows between the head and the two lines below.

        They are those around the highlighted one; it, the slot's own token and the first candidate are always among
        them. While the slot's own token is highlighted, they are the best ones, and it. A candidate that has a
        look-ahead line under it, or will have one soon, takes two rows.
        """
        tall = () if under is None else {*self.wanted, *under.lines(timeline.before)}
        cells, taken = [2 if candidate.id in tall else 1 for candidate in self._rows], timeline.taken
        standing = [index for index, candidate in enumerate(self._rows) if candidate.id == taken]
        pinned = tuple(dict.fromkeys((self.highlighted, *standing, 0)))
        room = min(max(height - 3, sum([cells[index] for index in pinned])), max(1, height - 1))
        self._top = min(self._top, self.highlighted)
        while True:
            shown, left = {self.highlighted}, room - cells[self.highlighted]
            for index in (*pinned, *range(self._top, len(cells))):
                if index not in shown:
                    if cells[index] > left:
                        break
                    shown.add(index)
                    left -= cells[index]
            best = not self._top and self.highlighted in standing
            if best or shown.issuperset(range(self._top, self.highlighted)):
                break
            self._top += 1  # the rows above leave no room for the highlighted one
        self._places = [index for index in sorted(shown) for _ in range(cells[index])][:room]

    def _candidates(
        self,
        ahead: LookAheadLines | None,
        behind: bool,
        fit: CandidateColumns,
        width: int,
        timeline: Timeline,
    ) -> list[Row]:
        """The rows of the candidates, and of the look-ahead lines under them."""
        rows: list[Row] = []
        node, taken, line = timeline.before, timeline.taken, ("", "")
        for place, index in enumerate(self._places):
            candidate, here, ink = self._rows[index], index == self.highlighted, self.ink("base")
            if candidate.cut_by is not None and not timeline.conceals("probabilities"):
                ink = self.ink("muted" if here or candidate.id == taken else "faint")
            if ahead is not None:
                ends = timeline.facts.eos_ids if timeline.facts is not None else ()
                waited_for = candidate.id in ahead.waited_for(node)
                line = line_text(ahead.lines(node).get(candidate.id), waited_for, ends)
            if place and self._places[place - 1] == index:
                row = self._under(line, width, ink)
            else:
                row = self._row(index, fit, ink, line if behind else ("", ""), timeline)
            if here:
                if (missing := width - Segment.get_line_length(row)) > 0:
                    row.append(Segment(" " * missing))  # its ground reaches the edge
                ground = Style(bgcolor=self.ink("row").bgcolor)
                row = list(Segment.apply_style(row, Style(bold=True), ground))
            rows.append(row)
        return rows

    def _head(
        self, fit: CandidateColumns, untouched: bool, tried: bool, distribution: Distribution | None
    ) -> Row:
        long, short = "token, and its greedy continuation", "token, greedy after it"
        token = (long if len(long) <= fit.token else short) if "joint" in fit.numbers else "token"
        room, muted = fit.bar + PERCENT, self.ink("muted")
        model = (BOTH if len(BOTH) < room else EITHER) if untouched else "model"
        model = "server" if distribution is not None and distribution.listed else model
        row = [Segment(" " * MARK + pad(token, fit.token + 1) + pad(model, room, right=True), muted)]
        if "sampler" in fit.numbers:
            after, ink = ("tried", self.ink("accent")) if tried else ("sampler", muted)
            row.append(Segment(pad(after, fit.bar + NUMBERS["sampler"], right=True), ink))
        for name in ("rank", "id", "joint"):
            row += [Segment(pad(name, NUMBERS[name], right=True), muted)] * (name in fit.numbers)
        return row

    def _row(self, index: int, fit: CandidateColumns, ink: Style, line: LineText, timeline: Timeline) -> Row:
        """The row of a candidate: its marks, its text with a dim look-ahead line after it, and its numbers."""
        candidate, muted = self._rows[index], self.ink("muted")
        cut = candidate.cut_by is not None
        mark = Segment("▶" if candidate.id == timeline.taken else " ", self.ink("accent"))
        gap = index > 0 and index - 1 not in self._places
        marks = row_marks(self, index == self.highlighted, mark, gap)
        text, joint = line
        label = truncate(token_label(candidate.text, candidate.raw), fit.token)
        left = max(0, fit.token - cell_len(label))
        words = self.ink("special") if candidate.special and not cut else ink
        if text:
            words = muted if cut else words  # to set it apart from the line
            behind = Segment(pad(text, left) + " ", (ink if cut else muted) + DIM)
        else:
            behind = Segment(" " * (left + 1), ink)
        numbers = self._numbers(candidate, fit, ink, joint, timeline)
        return [*marks, Segment(label, words), behind, *numbers]

    def _numbers(
        self, candidate: Candidate, fit: CandidateColumns, ink: Style, joint: str, timeline: Timeline
    ) -> Row:
        """The model's probability, the sampler's or the stage that cut it, and the other columns that fit."""
        if timeline.conceals("probabilities"):
            return [Segment(" " * fit.bar + pad("?", PERCENT, right=True), self.ink("muted"))]
        cut = candidate.cut_by
        percent = "?" if math.isnan(candidate.logprob) else scales.percent(candidate.prob)
        row: Row = [
            Segment(bar(candidate.prob, fit.bar), ink if cut else ink + self.data()),
            Segment(pad(percent, PERCENT, right=True), ink),
        ]
        if "sampler" in fit.numbers:
            none = cut or math.isnan(candidate.sampler_prob)
            cells, drawn = (0, "") if none else (fit.bar, bar(candidate.sampler_prob, fit.bar))
            after = pad(after_sampler(candidate), fit.bar + NUMBERS["sampler"] - 1 - cells, right=True)
            row += [Segment(" ", ink), Segment(drawn, ink + self.data(LEVEL)), Segment(after, ink)]
        rank = scales.count(candidate.rank) if candidate.rank else "?"
        id = str(candidate.id) if candidate.id < MADE_UP else ""
        for name, text in (("rank", rank), ("id", id), ("joint", joint)):
            if name in fit.numbers:
                row.append(Segment(pad(text, NUMBERS[name], right=True), ink if cut else self.ink("muted")))
        return row

    def _under(self, line: LineText, width: int, ink: Style) -> Row:
        """The look-ahead line of a candidate, in a row of its own."""
        joint = f" joint {line[1]}" if line[1] else ""
        joint = joint if width - MARK - len(joint) >= LEAST else ""
        text = pad(own_row(line[0]), width - MARK - len(joint))
        ink = ink if ink != self.ink("base") else self.ink("muted")
        return [Segment(" " * MARK), Segment(text + joint, ink + DIM)]

    def _others(self, fit: CandidateColumns, distribution: Distribution | None, timeline: Timeline) -> Row:
        """The rest of the vocabulary in one row."""
        muted, item, mass = self.ink("muted"), timeline.selected, 0.0
        if distribution is not None:
            mass = distribution.others_prob
        elif isinstance(item, PromptToken):
            mass = of_prompt(item)[1]
        hidden = [each for place, each in enumerate(self._rows) if place not in self._places]
        vocabulary = timeline.facts.vocabulary if timeline.facts else 0
        number = vocabulary - len(self._rows) if vocabulary else distribution.others if distribution else 0
        listed = distribution is not None and distribution.listed
        label = "all others" if listed else f"{scales.count(max(0, number) + len(hidden))} others"
        mass += math.fsum(each.prob for each in hidden)
        row = [
            Segment(" " * MARK + pad(label, fit.token + 1 + fit.bar), muted),
            Segment(pad("?" if listed and mass <= 0 else scales.percent(mass), PERCENT, right=True), muted),
        ]
        if "sampler" in fit.numbers and distribution:
            drawn = [each.sampler_prob for each in hidden if not math.isnan(each.sampler_prob)]
            after_all = distribution.others_sampler_prob + math.fsum(drawn)
            cut = not after_all and distribution.draw is not None
            after = "cut" if cut else scales.percent(after_all)
            row.append(Segment(" " + pad(after, fit.bar + NUMBERS["sampler"] - 1, right=True), muted))
        return row

    def _stages(self, distribution: Distribution) -> Row:
        """The sampler's stages in order, and the number of tokens that each cutting stage keeps."""
        muted = self.ink("muted")
        row = [Segment(" " * MARK + "stages ", muted)]
        left = distribution.others + len(distribution.candidates)
        for number, stage in enumerate(distribution.stages):
            row.append(Segment((" → " if number else "") + visible(stage.name), muted))
            if stage.kept != left:
                row += [Segment(" keeps ", muted), Segment(scales.count(stage.kept))]
            left = stage.kept
        return row if distribution.stages else []

    def _entitle(self, timeline: Timeline, distribution: Distribution | None) -> None:
        """Set the titles: the token that the candidates are for, the entropies, and the number of hidden rows."""
        item, entropy = timeline.selected, None
        name = self.NAME if item is None else numbered(item).capitalize()
        note = under = visible(self.ahead.note(timeline.before)) if self.ahead and self.ahead.on else ""
        more = len(self._rows) - len(set(self._places))
        hidden = f"{scales.counted(more, 'more row')} ↑↓" if more > 0 else ""
        if isinstance(item, Step):
            name += _BY_HAND.get(item.origin, "")
        if distribution is None:
            entropy, under = item.entropy_bits if isinstance(item, PromptToken) else None, note or hidden
        elif timeline.conceals("probabilities"):
            under = timeline.concealed_as
        elif distribution.listed:
            name, under = f"{name} · as the server lists it", hidden
        else:
            entropy = distribution.entropy_bits
            tried = "tried: " if timeline.tried is not None else ""
            sampler = f"{scales.SAMPLER_ENTROPY} {scales.bits(distribution.sampler_entropy_bits)}"
            left = note or f"{tried}{sampler} bits"
            if timeline.following and timeline.conceals("picked"):
                left = timeline.concealed_as
            under = f"{left} · {hidden}" if hidden else left
            if cell_len(under) > self.size.width:
                under = note or hidden or left
        if entropy is not None:
            name += f" · {scales.MODEL_ENTROPY} {scales.bits(entropy)} bits"
        self.title(name, under)
