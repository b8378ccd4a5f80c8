"""The panels of a comparison: both branches token for token, the gap of their logprobs, and their totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from inspector import scales
from inspector.display import joined_to_fit, pad, token_label, truncate, truncate_words
from inspector.state.session_tree import Item
from inspector.tools.compare.changes import LEAST_SEEN, TokenChange, by_size
from inspector.tools.compare.comparison import (
    LEFT,
    RIGHT,
    Comparison,
    Line,
    Pair,
    Rule,
    Totals,
    lines,
    summary,
)
from inspector.widgets.canvas import PanelCanvas, Row, centred, colourful, is_dark, strip_of
from inspector.widgets.charts import HEIGHTS, area, sample
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.token_lines import heat_style

# ---- the columns of a half ----------------------------------------------------------------------


class PairColumn(Struct, frozen=True):
    """One number of a token."""

    head: str
    cells: int
    text: Callable[[Item], str]


def _prob(item: Item) -> str:
    return "" if item.prob is None else scales.percent(item.prob)


def _bits(item: Item) -> str:
    value = scales.METRIC["surprisal"].value(item)
    return "" if value is None else scales.bits(value)


def _rank(item: Item) -> str:
    return "" if item.rank is None else scales.count(item.rank)


PROB, BITS = PairColumn("p", 9, _prob), PairColumn("bits", 7, _bits)
RANK = PairColumn("rank", 7, _rank)
SUM_CELLS = 10
"""Of the cumulative logprob, which is no figure of the token alone."""
POSITION_CELLS = 6
TOKEN_CELLS = 9
"""The least that a token should have."""


class PairColumns(Struct, frozen=True):
    """The columns that a half has room for."""

    position: bool
    numbers: tuple[PairColumn, ...]
    sum: bool

    @property
    def cells(self) -> int:
        """Cells without the token."""
        numbers = sum(column.cells for column in self.numbers)
        return POSITION_CELLS * self.position + numbers + SUM_CELLS * self.sum


FORMS = (
    PairColumns(True, (PROB, BITS, RANK), True),
    PairColumns(True, (PROB, BITS, RANK), False),
    PairColumns(True, (PROB, BITS), False),
    PairColumns(True, (PROB,), False),
    PairColumns(False, (PROB,), False),
)
"""From the roomiest to the narrowest."""


def fitting(width: int) -> PairColumns:
    """The most columns that leave room for the token in a half of `width` cells."""
    return next((form for form in FORMS if width - form.cells >= TOKEN_CELLS), FORMS[-1])


# ---- the columns between the halves: what differs where both have the same token ----------------


class ChangeColumn(Struct, frozen=True):
    """One number of a token that both have: right less left."""

    head: str
    cells: int
    text: Callable[[TokenChange], str]


CHANGE = ChangeColumn("Δp", 9, lambda change: _points(change.prob))
CHANGE_BITS = ChangeColumn("Δbits", 8, lambda change: scales.signed(change.bits))
LEAST_KL = ChangeColumn(
    "KL ≥", 7, lambda change: "" if change.kl_bits is None else scales.bits(change.kl_bits)
)
CHANGE_FORMS: tuple[tuple[ChangeColumn, ...], ...] = (
    (CHANGE, CHANGE_BITS, LEAST_KL),
    (CHANGE, LEAST_KL),
    (CHANGE,),
)
"""From the roomiest to the narrowest."""
_LARGEST = "◆"


def _points(difference: float) -> str:
    """A difference of two probabilities in hundredths: `−21.00`."""
    return scales.signed(100 * difference)


def fitting_changes(width: int) -> tuple[ChangeColumn, ...]:
    """The most columns between the halves of a table of `width` cells that leave those their surprisals, or else
    their probabilities."""
    for form in CHANGE_FORMS:
        half = (width - _GUTTER - sum(column.cells for column in form)) // 2 - _MARK
        needed = PairColumns(True, (PROB, BITS) if form is CHANGE_FORMS[0] else (PROB,), False)
        if half - needed.cells >= TOKEN_CELLS:
            return form
    return CHANGE_FORMS[-1]


# ---- both, token for token ----------------------------------------------------------------------

HEAD = 2
"""Lines above the tokens: whose half it is, and the names of its columns."""
_MARK, _GUTTER = 2, 3
_CACHED = 512
_BESIDE = {(True, True): " ═ ", (True, False): " = ", (False, False): "   "}
"""Between the halves, by whether the two tokens are the same, and whether they are part of a meeting."""


class _Inks(Struct, frozen=True):
    """Styles of one token's line."""

    words: Style
    numbers: Style
    ground: Style
    heat: bool
    """True if its surprisal is coloured."""


class CompareTable(ScrollView, Inked, can_focus=True):
    """Both continuations, token for token, with a cursor on one side."""

    DEFAULT_CSS = panel_css("CompareTable") + "CompareTable { overflow-x: hidden; scrollbar-gutter: stable; }"

    class PairClicked(Message):
        """A token was clicked."""

        def __init__(self, place: int, side: int) -> None:
            self.place, self.side = place, side
            super().__init__()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.comparison: Comparison | None = None
        self.names: tuple[str, str] = ("", "")
        self.cursor, self.side = 0, RIGHT
        self.lines: list[Line] = []
        self._places: list[int] = []
        self._columns: PairColumns = fitting(0)
        self._changes: dict[int, TokenChange] = {}
        """By the place of the pair."""
        self._largest: int | None = None
        """The place of the one whose probability differs most."""
        self._between: tuple[ChangeColumn, ...] = ()
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED)

    # ---- what is shown ----------------------------------------------------------------------

    def show(
        self, comparison: Comparison, names: tuple[str, str], changes: Sequence[TokenChange] = ()
    ) -> None:
        """Show a comparison; the cursor stays where it is, as far as there are lines.

        Args:
            comparison: What is shown.
            names: Of left and right; printable.
            changes: Of the tokens that both have though they were made twice.
        """
        self.comparison, self.names = comparison, names
        self._changes = {each.place: each for each in changes}
        self._largest = next((each.place for each in by_size(changes)), None)
        self.lines = list(lines(comparison))
        self._places = [place for place, line in enumerate(self.lines) if isinstance(line, Pair)]
        self.cursor = max(0, min(self.cursor, len(self._places) - 1))
        self.border_title = Content("Compare")
        self.border_subtitle = Content(summary(comparison))
        self.virtual_size = Size(self.size.width, len(self.lines) + HEAD)
        self.restyle()

    def point(self, cursor: int, side: int) -> None:
        """Put the cursor on a pair of tokens, as far as there are any, and on a side; bring it into view."""
        before, self.cursor = self.cursor, max(0, min(cursor, len(self._places) - 1))
        self.side = side
        for place in {before, self.cursor}:
            self._strips.discard(self._line(place))
            self.refresh_line(self._line(place) + HEAD)
        self.refresh_line(0)
        self.reveal()

    def reveal(self) -> None:
        """Bring the cursor into view: a line above it, as the parting, and one below where there is room for both."""
        rows, line, top = self.size.height - HEAD, self._line(self.cursor), self.scroll_offset.y
        if rows <= 0:
            return
        above, below = int(rows > 1), int(rows > 2)
        if line - above < top:
            self.scroll_to(y=max(0, line - above), animate=False, immediate=True, force=True)
        elif line + below >= top + rows:
            last = min(len(self.lines) - 1, line + below)
            self.scroll_to(y=last - rows + 1, animate=False, immediate=True, force=True)

    def centre(self) -> None:
        """Bring the cursor into the upper third of what is seen."""
        at = self._line(self.cursor) - max(1, (self.size.height - HEAD) // 3)
        self.scroll_to(y=max(0, at), animate=False, immediate=True, force=True)

    def _line(self, place: int) -> int:
        return self._places[place] if place < len(self._places) else 0

    @property
    def pair(self) -> Pair | None:
        """The tokens under the cursor."""
        line = self.lines[self._line(self.cursor)] if self.lines else None
        return line if isinstance(line, Pair) else None

    @property
    def page(self) -> int:
        """Lines of tokens that are seen at a time."""
        return max(1, self.size.height - HEAD - 1)

    def restyle(self) -> None:
        """Every line looks different: another comparison, theme or width."""
        self._strips.clear()
        self._between = fitting_changes(self.scrollable_size.width) if self._changes else ()
        self._columns = fitting(self._half - _MARK)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self.restyle()
        self.reveal()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or at.y < HEAD:
            return
        line = self.scroll_offset.y + at.y - HEAD
        if line < len(self.lines) and isinstance(self.lines[line], Pair):
            side = LEFT if at.x < self._half + self._gutter // 2 else RIGHT
            self.post_message(self.PairClicked(self._places.index(line), side))

    # ---- drawing ----------------------------------------------------------------------------

    @property
    def _gutter(self) -> int:
        """Cells between the halves."""
        return _GUTTER + sum(column.cells for column in self._between)

    @property
    def _half(self) -> int:
        return max(0, (self.scrollable_size.width - self._gutter) // 2)

    @property
    def _token_cells(self) -> int:
        return max(1, self._half - _MARK - self._columns.cells)

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_size.width, self.rich_style
        if y < HEAD:
            return strip_of(self._names() if y == 0 else self._heads(), width, base)
        place = self.scroll_offset.y + y - HEAD
        if place >= len(self.lines) or self.comparison is None:
            return Strip.blank(width, base)
        strip = self._strips.get(place)
        if strip is None:
            strip = self._strips[place] = strip_of(self._row(self.comparison, self.lines[place]), width, base)
        return strip

    def _names(self) -> Row:
        chosen, other = self.ink("accent"), self.ink("muted")
        left, right = (
            Segment(pad(f"{'◉' if side == self.side else '○'} {name}", self._half),
                    chosen if side == self.side else other)
            for side, name in enumerate(joined_to_fit(each.split(" · "), self._half - 2) for each in self.names)
        )  # fmt: skip
        between = "right less left" if self._gutter > 2 * _GUTTER + 15 else ""
        return [left, Segment(between.center(self._gutter), other), right]

    def _heads(self) -> Row:
        text = " " * _MARK + (pad("pos", POSITION_CELLS - 1, True) + " " if self._columns.position else "")
        text += pad("token", self._token_cells)
        text += "".join(pad(column.head, column.cells, True) for column in self._columns.numbers)
        text += pad("sum", SUM_CELLS, True) if self._columns.sum else ""
        between = "".join(pad(column.head, column.cells, True) for column in self._between)
        return [Segment(text + between + " " * _GUTTER + text, self.ink("muted"))]

    def _row(self, comparison: Comparison, line: Line) -> Row:
        if isinstance(line, Rule):
            return self._rule(line)
        left, right = comparison.items(line)
        same = left is not None and right is not None and left.id == right.id
        ink = "faint" if self._is_shared(comparison, line) else "good" if line.joined else "muted"
        return [
            *self._side(comparison, line, LEFT),
            *self._changed(line),
            Segment(_BESIDE[same, same and line.joined], self.ink(ink)),
            *self._side(comparison, line, RIGHT),
        ]

    def _changed(self, line: Pair) -> Row:
        """The columns between the halves: of a token that both have, right less left."""
        cells = sum(column.cells for column in self._between)
        change = self._changes.get(line.left) if line.left is not None else None
        if change is None or not cells:
            return [Segment(" " * cells)]
        largest = change.place == self._largest
        ink = self.ink("accent" if largest else "strong" if abs(change.prob) >= LEAST_SEEN else "faint")
        numbers = "".join(pad(column.text(change), column.cells, True) for column in self._between)
        return [Segment(f"{' ' + _LARGEST}{numbers[2:]}" if largest else numbers, ink)]

    def _is_shared(self, comparison: Comparison, line: Pair) -> bool:
        return line.left is not None and line.left < comparison.shared

    def _rule(self, rule: Rule) -> Row:
        width = self.scrollable_size.width
        words = truncate_words(f" {rule.words} ", max(0, width - 4))
        text = f"──{words}".ljust(width, "─")
        return [Segment(text, self.ink("good" if rule.joins else "warn"))]

    def _side(self, comparison: Comparison, line: Pair, side: int) -> Row:
        here = side == self.side and self.pair is line
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if here else Style()
        mark = Segment("▶ " if here else "  ", Style(color=self.ink("accent").color) + ground)
        item = comparison.items(line)[side]
        if item is None:
            return [mark, Segment(" " * (self._half - _MARK), ground)]
        inks = self._inks(comparison, line, ground)
        label = token_label(item.text, item.raw, getattr(item, "pending", b""))
        return [
            mark,
            *self._position(item, inks),
            Segment(pad(label, self._token_cells), inks.words),
            *(part for column in self._columns.numbers for part in self._number(column, item, inks)),
            *self._sum(comparison.sum(line, side), inks),
        ]

    def _inks(self, comparison: Comparison, line: Pair, ground: Style) -> _Inks:
        if self._is_shared(comparison, line):
            words, numbers = self.ink("muted").color, self.ink("faint").color
            return _Inks(Style(color=words) + ground, Style(color=numbers) + ground, ground, False)
        words = self.ink("good").color if line.joined else None
        return _Inks(Style(color=words) + ground, ground, ground, True)

    def _position(self, item: Item, inks: _Inks) -> Row:
        if not self._columns.position:
            return []
        text = pad(str(item.position + 1), POSITION_CELLS - 1, True) + " "
        muted = Style(color=self.ink("muted").color) + inks.ground
        return [Segment(text, muted if inks.heat else inks.numbers)]

    def _number(self, column: PairColumn, item: Item, inks: _Inks) -> Row:
        text = column.text(item)
        hot = BITS if BITS in self._columns.numbers else PROB
        if not inks.heat or column is not hot:
            return [Segment(pad(text, column.cells, True), inks.numbers)]
        metric = scales.METRIC["surprisal"]
        heat = heat_style(metric.step(metric.value(item)), is_dark(self.app), colourful(self.app))
        return [
            Segment(" " * max(0, column.cells - len(text)), inks.ground),
            Segment(text, inks.ground + heat),
        ]

    def _sum(self, value: float | None, inks: _Inks) -> Row:
        if not self._columns.sum:
            return []
        text = "" if value is None else _plain(value)
        return [Segment(pad(text, SUM_CELLS, True), inks.numbers)]


# ---- the gap of their logprobs ------------------------------------------------------------------

_AXIS = 7
"""Cells of the axis' labels."""
_WIDEST = 4
"""Cells of one step at most."""
_FREE = str.maketrans(HEIGHTS, HEIGHTS[::-1])
"""From the filled part of a cell to the free one."""
_ROOMY = 40
"""Cells from which a panel uses its long texts."""


class Halves(Struct, frozen=True):
    """The lines of a chart above and below its zero line."""

    above: int
    below: int
    line: float
    """Logprob of one line."""


def halves(values: Sequence[float], height: int) -> Halves:
    """Lines for what is above nothing and for what is below, in about the same proportion as their extremes.

    Args:
        values: What is drawn.
        height: Lines available, 2 at least where there are values of both signs.
    """
    top, bottom = max((0.0, *values)), -min((0.0, *values))
    fewest = range(1 if top else 0, height + (0 if bottom else 1)) or range(height, height + 1)
    worth = {above: _worth(top, above, bottom, height - above) for above in fewest}
    above = min(worth, key=lambda lines: (worth[lines], -lines))
    return Halves(above, height - above, worth[above] or 1.0)


def _worth(top: float, above: int, bottom: float, below: int) -> float:
    """The least logprob of a line with which both extremes fit."""
    return max(top / above if above else 0.0, bottom / below if below else 0.0)


class GapChart(PanelCanvas):
    """The gap between two cumulative logprobs, a column or more a step: up where left is ahead."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.comparison: Comparison | None = None
        self.step = 0
        """Tokens since the parting that the cursor has come to, 0 before it."""

    def put(self, comparison: Comparison, step: int) -> None:
        """Show the gap of a comparison, and the cursor's place."""
        self.comparison, self.step = comparison, step
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        comparison = self.comparison
        gap = comparison.gap if comparison else ()
        roomy = width >= _ROOMY
        self.title(Content("Logprob gap" + (": ▲ left, ▼ right is ahead" if roomy else "")),
                   Content(self._words(comparison, roomy)))  # fmt: skip
        if not gap or height < 2:
            reason = "Only one of them continues after the parting."
            return centred([(reason, self.ink("muted"))], width, height)
        shown = columns(len(gap), max(1, width - _AXIS))
        marked = next((place for place in shown if place >= self.step - 1), -1) if self.step else -1
        return self._chart([gap[place] for place in shown], [place == marked for place in shown], height)

    def _words(self, comparison: Comparison | None, roomy: bool) -> str:
        if comparison is None or not comparison.gap:
            return ""
        step = min(max(1, self.step), len(comparison.gap))
        one, other = (cumulative[step - 1] for cumulative in comparison.cumulative)
        both = f"{one:.1f} less {other:.1f} = ".replace("-", "−") if roomy else ""
        return f"after {scales.count(step)}: {both}{scales.signed(comparison.gap[step - 1], 1)}"

    def _chart(self, values: Sequence[float], marked: Sequence[bool], height: int) -> list[Row]:
        parts, accent = halves(values, height), self.ink("accent")
        up = area([max(0.0, value) for value in values], parts.above, parts.line * parts.above)
        down = area([max(0.0, -value) for value in values], parts.below, parts.line * parts.below)[::-1]
        left, right = self.data(0.25), self.data(0.95)
        rows = [_above_zero(line, marked, left, accent) for line in up]
        rows += [_below_zero(line, marked, right, accent) for line in down]
        labels, muted = axis(values, parts), self.ink("muted")
        labelled = (Segment(pad(labels.get(n, ""), _AXIS - 1, True) + " ", muted) for n in range(len(rows)))
        return [[label, *row] for label, row in zip(labelled, rows, strict=True)]


def columns(steps: int, cells: int) -> list[int]:
    """The step that each column shows: several columns a step, or evenly spaced steps with the last."""
    if steps > cells:
        return sample(steps, cells)
    used = min(cells, steps * _WIDEST)
    return [column * steps // used for column in range(used)]


def _above_zero(line: str, marked: Sequence[bool], ink: Style, accent: Style) -> Row:
    """A line of an area above its zero line; marked columns have another colour."""
    row = [Segment(char, accent if here else ink) for char, here in zip(line, marked, strict=True)]
    return list(Segment.simplify(row))


def _below_zero(line: str, marked: Sequence[bool], ink: Style, accent: Style) -> Row:
    """A line of an area below its zero line: in a cell filled in part, ink and ground are exchanged."""
    turned = {here: Style(color=style.color, reverse=True) for here, style in ((False, ink), (True, accent))}
    row = [
        Segment(char, accent if here else ink)
        if char in " █"
        else Segment(char.translate(_FREE), turned[here])
        for char, here in zip(line, marked, strict=True)
    ]
    return list(Segment.simplify(row))


def axis(values: Sequence[float], parts: Halves) -> dict[int, str]:
    """Labels of the lines: the extremes where they reach to, and the zero line between them."""
    top, bottom = max(0.0, *values), min(0.0, *values)
    labels = {parts.above - 1: "0"} if parts.above else {}
    if top:
        labels[parts.above - min(parts.above, math.ceil(top / parts.line))] = scales.signed(top, 1)
    if bottom:
        labels[parts.above + min(parts.below, math.ceil(-bottom / parts.line)) - 1] = scales.signed(bottom, 1)
    return labels


# ---- their totals -------------------------------------------------------------------------------

_LEAST = 7
"""Cells of a figure at least."""


class ComparedFigure(Struct, frozen=True):
    """One line of the totals."""

    name: str
    unit: str
    """Shown where there is room."""
    value: Callable[[Totals], float | None]
    format: Callable[[float], str]
    digits: int
    """Of the difference, where that is below 100: larger ones have fewer, and so fit their column."""
    worth: int
    """The least worthy goes first where there is no room."""


def _gap(value: float, digits: int) -> str:
    return scales.signed(value, max(0, digits - max(0, len(f"{abs(value):.0f}") - 2)))


def _plain(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


FIGURES = (
    ComparedFigure("tokens", "", lambda of: of.tokens, lambda value: scales.count(int(value)), 0, 6),
    ComparedFigure("logprob", "", lambda of: of.logprob if of.mean is not None else None, _plain, 2, 7),
    ComparedFigure("mean", "a token", lambda of: of.mean, _plain, 2, 3),
    ComparedFigure("perplexity", "", lambda of: of.perplexity, _plain, 2, 5),
    ComparedFigure("model entropy", "bits", lambda of: of.entropy_bits, _plain, 2, 2),
    ComparedFigure("ms a token", "", lambda of: of.ms, scales.ms, 2, 4),
)


class TotalsPanel(PanelCanvas):
    """The figures of both branches after the parting, and their differences."""

    comparison: Comparison | None = None

    def put(self, comparison: Comparison) -> None:
        """Show the totals of a comparison."""
        self.comparison = comparison
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        self.title(Content("Since the parting"), Content(""))
        if self.comparison is None:
            return []
        left, right = self.comparison.totals
        kept = sorted(FIGURES, key=lambda figure: -figure.worth)[: max(1, height - 1)]
        names = {figure: f"{figure.name} {figure.unit}".rstrip() for figure in kept}
        if max(map(len, names.values())) + 3 * _LEAST >= width:
            names = {figure: figure.name for figure in kept}
        named = max(map(len, names.values())) + 1
        cells = max(_LEAST, (width - named) // 3)
        rows = [self._head(named, cells)]
        shown = (figure for figure in FIGURES if figure in kept)
        rows += [self._row(figure, names[figure], left, right, named, cells) for figure in shown]
        if (unknown := left.unknown + right.unknown) and len(rows) < height:
            words = f"{unknown} without a logprob are left out"
            rows.append([Segment(truncate(words, width), self.ink("warn"))])
        return rows

    def _head(self, named: int, cells: int) -> Row:
        heads = ("left", "right", "left − right" if cells > 12 else "gap")
        text = " " * named + "".join(pad(head, cells, True) for head in heads)
        return [Segment(text, self.ink("muted"))]

    def _row(
        self, figure: ComparedFigure, name: str, left: Totals, right: Totals, named: int, cells: int
    ) -> Row:
        one, other = figure.value(left), figure.value(right)
        texts = ("–" if value is None else figure.format(value) for value in (one, other))
        numbers = "".join(pad(text, cells, True) for text in texts)
        differs = "" if one is None or other is None else _gap(one - other, figure.digits)
        return [
            Segment(pad(name, named), self.ink("muted")),
            Segment(numbers),
            Segment(pad(differs, cells, True), self.ink("strong")),
        ]
