"""The screen that sets the current path against another branch: token for token, their gap, and their totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events, getters, on
from textual.app import ComposeResult
from textual.cache import LRUCache
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from inspector import scales
from inspector.display import joined_to_fit, pad, quoted, token_label, truncate, truncate_words, visible
from inspector.keys import key_for
from inspector.main.view import View
from inspector.state.conditions import in_short, made_with
from inspector.state.timeline import Timeline
from inspector.tools.compare import COMPARE_SCREEN, ComparedPlace
from inspector.tools.compare.comparison import (
    LEAST_SEEN,
    LEFT,
    RIGHT,
    Comparison,
    Line,
    Pair,
    Rule,
    TokenChange,
    Totals,
    apart,
    by_size,
    change_words,
    changes,
    compare,
    lead,
    lines,
    nearest,
    others,
    summary,
    tokens_words,
)
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import PanelCanvas, Row, centred, colourful, is_dark, strip_of
from inspector.widgets.charts import HEIGHTS, area, sample
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.token_lines import heat_style

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the columns --------------------------------------------------------------------------------

CELLS = {"pos": 6, "p": 9, "bits": 7, "rank": 7, "sum": 10, "Δp": 9, "Δbits": 8, "KL ≥": 7}
"""Cells of each column by its head; `sum` is the cumulative logprob."""
TOKEN_CELLS = 9
"""The least that a token should have."""
_HALF = ("pos", "p", "bits", "rank", "sum")
FORMS = (_HALF, _HALF[:4], _HALF[:3], _HALF[:2], ("p",))
"""Columns of a half, from the roomiest to the narrowest."""
CHANGE_FORMS = (("Δp", "Δbits", "KL ≥"), ("Δp", "KL ≥"), ("Δp",))
"""Columns between the halves, for a token that both have: right less left."""
_MARK, _GUTTER = 2, 3


def cells_of(form: Sequence[str]) -> int:
    """Cells of some columns."""
    return sum(CELLS[head] for head in form)


def fitting(width: int) -> Sequence[str]:
    """The most columns that leave room for the token in a half of `width` cells."""
    return next((form for form in FORMS if width - cells_of(form) >= TOKEN_CELLS), FORMS[-1])


def fitting_changes(width: int) -> Sequence[str]:
    """The most columns between the halves of a table of `width` cells that leave those their surprisals, or else
    their probabilities."""
    for form in CHANGE_FORMS:
        half = (width - _GUTTER - cells_of(form)) // 2 - _MARK
        if half - cells_of(("pos", "p", "bits") if "Δbits" in form else ("pos", "p")) >= TOKEN_CELLS:
            return form
    return CHANGE_FORMS[-1]


def _numbers(form: Sequence[str], texts: Mapping[str, str]) -> str:
    """The columns behind the token; a column without a text has its head."""
    return "".join(pad(texts.get(head, head), CELLS[head], True) for head in form if head != "pos")


# ---- both, token for token ----------------------------------------------------------------------

HEAD = 2
"""Lines above the tokens: the name of each half, and the heads of its columns."""
_CACHED = 512
_BESIDE = {(True, True): " ═ ", (True, False): " = ", (False, False): "   "}
"""Between the halves, by whether the two tokens are the same, and whether they are part of a meeting."""


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
        self._columns = fitting(0)
        self._changes: dict[int, TokenChange] = {}
        """Changes by the place of the pair."""
        self._largest: int | None = None
        """The place with the largest difference of a probability."""
        self._between: Sequence[str] = ()
        self._strips: LRUCache[int, Strip] = LRUCache(_CACHED)

    # ---- its content ------------------------------------------------------------------------

    def show(self, comparison: Comparison, names: tuple[str, str], changes: Sequence[TokenChange]) -> None:
        """Show a comparison; the cursor stays where it is, as far as there are lines.

        Args:
            comparison: The comparison.
            names: Names of left and right; printable.
            changes: Changes of the tokens that both have though they were made twice.
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
        """Bring the cursor into view, with a line above it, as the parting, and one below if there is room for both."""
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
        """Bring the cursor into the upper third of the lines in sight."""
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
        return _GUTTER + cells_of(self._between)

    @property
    def _half(self) -> int:
        return max(0, (self.scrollable_size.width - self._gutter) // 2)

    @property
    def _token_cells(self) -> int:
        return max(1, self._half - _MARK - cells_of(self._columns))

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_size.width, self.rich_style
        if y < HEAD:
            return strip_of(self._head(y), width, base)
        place = self.scroll_offset.y + y - HEAD
        if place >= len(self.lines) or self.comparison is None:
            return Strip.blank(width, base)
        strip = self._strips.get(place)
        if strip is None:
            strip = self._strips[place] = strip_of(self._row(self.comparison, self.lines[place]), width, base)
        return strip

    def _head(self, y: int) -> Row:
        muted, columns = self.ink("muted"), self._columns
        if y > 0:
            text = " " * _MARK + (pad("pos", CELLS["pos"] - 1, True) + " " if "pos" in columns else "")
            text += pad("token", self._token_cells) + _numbers(columns, {})
            return [Segment(text + _numbers(self._between, {}) + " " * _GUTTER + text, muted)]
        left, right = (
            Segment(pad(f"{'◉' if side == self.side else '○'} {name}", self._half),
                    self.ink("accent") if side == self.side else muted)
            for side, name in enumerate(joined_to_fit(each.split(" · "), self._half - 2) for each in self.names)
        )  # fmt: skip
        between = "right less left" if self._gutter > 2 * _GUTTER + 15 else ""
        return [left, Segment(between.center(self._gutter), muted), right]

    def _row(self, comparison: Comparison, line: Line) -> Row:
        if isinstance(line, Rule):
            width = self.scrollable_size.width
            words = truncate_words(f" {line.words} ", max(0, width - 4))
            return [Segment(f"──{words}".ljust(width, "─"), self.ink("good" if line.joins else "warn"))]
        left, right = comparison.items(line)
        same = left is not None and right is not None and left.id == right.id
        shared = line.left is not None and line.left < comparison.shared
        return [
            *self._side(comparison, line, LEFT, shared),
            self._changed(line),
            Segment(_BESIDE[same, same and line.joined],
                    self.ink("faint" if shared else "good" if line.joined else "muted")),
            *self._side(comparison, line, RIGHT, shared),
        ]  # fmt: skip

    def _changed(self, line: Pair) -> Segment:
        """The columns between the halves."""
        change = self._changes.get(line.left) if line.left is not None else None
        if change is None or not self._between:
            return Segment(" " * cells_of(self._between))
        texts = {
            "Δp": scales.signed(100 * change.prob),
            "Δbits": scales.signed(change.bits),
            "KL ≥": "" if change.kl_bits is None else scales.bits(change.kl_bits),
        }
        numbers = _numbers(self._between, texts)
        if change.place == self._largest:
            return Segment(f" ◆{numbers[2:]}", self.ink("accent"))
        return Segment(numbers, self.ink("strong" if abs(change.prob) >= LEAST_SEEN else "faint"))

    def _side(self, comparison: Comparison, line: Pair, side: int, shared: bool) -> Row:
        here = side == self.side and self.pair is line
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if here else Style()

        def on_ground(ink: str) -> Style:
            return Style(color=self.ink(ink).color) + ground

        row = [Segment("▶ " if here else "  ", on_ground("accent"))]
        item = comparison.items(line)[side]
        if item is None:
            return [*row, Segment(" " * (self._half - _MARK), ground)]
        metric, total = scales.METRIC["surprisal"], comparison.sum(line, side)
        surprisal = metric.value(item)
        texts = {
            "pos": str(item.position + 1),
            "p": "" if item.prob is None else scales.percent(item.prob),
            "bits": "" if surprisal is None else scales.bits(surprisal),
            "rank": "" if item.rank is None else scales.count(item.rank),
            "sum": "" if total is None else _plain(total),
        }
        if "pos" in self._columns:
            position = pad(texts["pos"], CELLS["pos"] - 1, True) + " "
            row.append(Segment(position, on_ground("faint" if shared else "muted")))
        label = pad(token_label(item.text, item.raw, getattr(item, "pending", b"")), self._token_cells)
        words = "muted" if shared else "good" if line.joined else ""
        row.append(Segment(label, on_ground(words) if words else ground))
        hot = "bits" if "bits" in self._columns else "p"
        for head in self._columns:
            text = texts[head]
            if head == hot and not shared:
                heat = heat_style(metric.step(surprisal), is_dark(self.app), colourful(self.app))
                row.append(Segment(" " * max(0, CELLS[head] - len(text)), ground))
                row.append(Segment(text, ground + heat))
            elif head != "pos":
                row.append(Segment(pad(text, CELLS[head], True), on_ground("faint") if shared else ground))
        return row


# ---- the gap of their logprobs ------------------------------------------------------------------

_AXIS = 7
"""Cells of the axis' labels."""
_WIDEST = 4
"""Cells of one step at most."""
_FREE = str.maketrans(HEIGHTS, HEIGHTS[::-1])
"""Translates the filled part of a cell to the free one."""
_ROOMY = 40
"""Cells from which a panel uses its long texts."""


Halves = tuple[int, int, float]
"""The lines of a chart above and below its zero line, and the logprob of one line."""


def halves(values: Sequence[float], height: int) -> Halves:
    """Lines for values above zero and for those below, in about the same proportion as their extremes.

    Args:
        values: Values of the chart.
        height: Lines available, at least 2 for values of both signs.
    """
    top, bottom = max((0.0, *values)), -min((0.0, *values))
    fewest = range(1 if top else 0, height + (0 if bottom else 1)) or range(height, height + 1)
    worth = {}
    for above in fewest:  # the least logprob of a line with which both extremes fit
        below = height - above
        worth[above] = max(top / above if above else 0.0, bottom / below if below else 0.0)
    above = min(worth, key=lambda lines: (worth[lines], -lines))
    return above, height - above, worth[above] or 1.0


class GapChart(PanelCanvas):
    """The gap between two cumulative logprobs, a column or more a step: up where left is ahead."""

    comparison: Comparison | None = None
    step = 0
    """Tokens from the parting to the cursor; 0 before it."""

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
        above, below, line = parts = halves(values, height)
        up = area([max(0.0, value) for value in values], above, line * above)
        down = area([max(0.0, -value) for value in values], below, line * below)[::-1]
        labels, muted, rows = axis(values, parts), self.ink("muted"), []
        for n, chars in enumerate((*up, *down)):
            row = [Segment(pad(labels.get(n, ""), _AXIS - 1, True) + " ", muted)]
            for char, here in zip(chars, marked, strict=True):
                ink = self.ink("accent") if here else self.data(0.25 if n < len(up) else 0.95)
                if n >= len(up) and char not in " █":  # a cell filled in part: ink and ground are exchanged
                    char, ink = char.translate(_FREE), Style(color=ink.color, reverse=True)
                row.append(Segment(char, ink))
            rows.append(row)
        return rows


def columns(steps: int, cells: int) -> list[int]:
    """The step that each column shows: several columns a step, or evenly spaced steps with the last."""
    if steps > cells:
        return sample(steps, cells)
    used = min(cells, steps * _WIDEST)
    return [column * steps // used for column in range(used)]


def axis(values: Sequence[float], parts: Halves) -> dict[int, str]:
    """Labels of the lines: the extremes where they reach to, and the zero line between them."""
    above, below, line = parts
    top, bottom = max(0.0, *values), min(0.0, *values)
    labels = {above - 1: "0"} if above else {}
    if top:
        labels[above - min(above, math.ceil(top / line))] = scales.signed(top, 1)
    if bottom:
        labels[above + min(below, math.ceil(-bottom / line)) - 1] = scales.signed(bottom, 1)
    return labels


# ---- their totals -------------------------------------------------------------------------------

_LEAST = 7
"""Cells of a figure at least."""


class ComparedFigure(Struct, frozen=True):
    """One line of the totals."""

    name: str
    unit: str
    """Shown if there is room."""
    value: Callable[[Totals], float | None]
    format: Callable[[float], str]
    digits: int
    """Decimals of a difference below 100: larger ones have fewer, and so fit their column."""
    worth: int
    """The least worthy goes first if there is no room."""


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
        heads = ("left", "right", "left − right" if cells > 12 else "gap")
        text = " " * named + "".join(pad(head, cells, True) for head in heads)
        rows = [[Segment(text, self.ink("muted"))]]
        for figure in (figure for figure in FIGURES if figure in kept):
            one, other = figure.value(left), figure.value(right)
            texts = ("–" if value is None else figure.format(value) for value in (one, other))
            differs = "" if one is None or other is None else _gap(one - other, figure.digits)
            rows.append([
                Segment(pad(names[figure], named), self.ink("muted")),
                Segment("".join(pad(text, cells, True) for text in texts)),
                Segment(pad(differs, cells, True), self.ink("strong")),
            ])  # fmt: skip
        if (unknown := left.unknown + right.unknown) and len(rows) < height:
            words = f"{unknown} without a logprob are left out"
            rows.append([Segment(truncate(words, width), self.ink("warn"))])
        return rows


# ---- the screen ---------------------------------------------------------------------------------

LOW, LOW_LED = 16, 21
"""Rows of the answer below which the figures are left out: without and with words above the table."""
SLIM = 56
"""Cells of the answer below which the chart beside the figures has too few columns to be read."""
NARROW = 80
"""Cells below which the status has no divergence of a token."""
LOOK_SECONDS = 0.5
"""Seconds between two checks whether the tree has grown; a comparison of thousands of tokens takes some 30 ms."""


class CompareScreen(View[ComparedPlace]):
    """Compares the current path, on the left, with one other branch.

    Args:
        host: The main screen; its timeline has a branch besides the current path.
        other: Last node of the branch that is shown first.
    """

    TOOL: ClassVar[str] = "compare"
    ACTIONS: ClassVar[ActionTable] = COMPARE_SCREEN
    AUTO_FOCUS = "#compare-table"

    lead = getters.query_one("#compare-lead", Static)
    table = getters.query_one("#compare-table", CompareTable)
    gap = getters.query_one("#compare-gap", GapChart)
    totals = getters.query_one("#compare-totals", TotalsPanel)

    def __init__(self, host: MainScreen, other: int) -> None:
        super().__init__(host)
        self.other = other
        self.comparison: Comparison
        self.changes: tuple[TokenChange, ...] = ()
        """Changes of the tokens that both have though they were made twice."""
        self._others: list[int] = []
        self._seen: tuple[int, ...] = ()

    @property
    def timeline(self) -> Timeline:
        """The one shown; another model brings another."""
        return self.host.controller.timeline

    def body(self) -> ComposeResult:
        yield Static(id="compare-lead")
        yield CompareTable(id="compare-table")
        with Horizontal(id="compare-figures"):
            yield GapChart(id="compare-gap")
            yield TotalsPanel(id="compare-totals")

    def begin(self) -> None:
        """Begin where they part; look now and then whether the tree has grown."""
        self._compare()
        self.after_paint(self._begin)
        self.set_interval(LOOK_SECONDS, self._look)

    def _fit(self) -> None:
        """Leave the figures out if they would leave the table no room, and the chart if it would have none."""
        self.set_class(self.area.height < (LOW_LED if self.lead.display else LOW), "-low")
        self.set_class(self.area.width < SLIM, "-slim")

    # ---- the branches -----------------------------------------------------------------------

    def _look(self) -> None:
        """Compare again if the tree has changed; leave if there is nothing to compare any more."""
        if self.left or not self.screen.is_current or self._stamp() == self._seen:
            return
        if self.other not in others(self.timeline):
            other = nearest(self.timeline)
            if other is None:
                self.dismiss(None)
                return
            self.other = other
        self._compare()

    def _stamp(self) -> tuple[int, ...]:
        timeline, tree = self.timeline, self.timeline.tree
        return id(timeline), timeline.generation, len(timeline.items), len(tree.nodes), tree.marks.version

    def _compare(self) -> None:
        self._seen = self._stamp()
        self._others = others(self.timeline) or [self.other]
        self.comparison = compare(list(self.timeline.items), self.timeline.tree.path(self.other))
        self.changes = changes(self.comparison)
        words = lead(self.comparison, self.changes, apart(self.timeline.tree, self.comparison))
        self.lead.update(Content(words))
        self.lead.display = bool(words)
        self._fit()
        self.table.show(self.comparison, self._names(), self.changes)
        self.totals.put(self.comparison)
        self._pointed()

    def _names(self) -> tuple[str, str]:
        """The name of each side, the conditions of its own tokens if there are any, and its number of tokens."""
        of, texts = self.comparison, []
        place = self._others.index(self.other) + 1 if self.other in self._others else 1
        which = f"other {place} of {len(self._others)}" if len(self._others) > 1 else "the other"
        first = of.right[of.shared : of.shared + 1]
        name = self.timeline.tree.marks.at(first[0].node).name if first else ""
        whose = "this path", f"{visible(name)} · {which}" if name else which
        for words, side, totals in zip(whose, (of.left, of.right), of.totals, strict=True):
            made = in_short(made_with(self.timeline.tree, side[of.shared :]))
            count = tokens_words(totals.tokens + of.shared)
            texts.append(" · ".join(filter(None, (words, made, count))))
        return texts[LEFT], texts[RIGHT]

    def _begin(self) -> None:
        """The first token after the parting, on the side that has one."""
        right = self.comparison.totals[RIGHT].tokens > 0
        self.table.point(self.comparison.shared, RIGHT if right else LEFT)
        self.table.centre()
        self._pointed()

    # ---- the cursor -------------------------------------------------------------------------

    def _point(self, cursor: int, side: int | None = None) -> None:
        self.table.point(cursor, self.table.side if side is None else side)
        self._pointed()

    def _pointed(self) -> None:
        """Describe the pair under the cursor, and mark it in the chart."""
        if (pair := self.table.pair) is None:
            return
        place = pair.on(self.table.side)
        self.gap.put(self.comparison, 0 if place is None else max(0, place - self.comparison.shared + 1))
        self.say()

    def show(self) -> None:
        """Show the status."""
        self._fit()
        self.write()

    def situation(self) -> str:
        """The token under the cursor, and what enter does with it."""
        if (pair := self.table.pair) is None:
            return ""
        item = self.comparison.items(pair)[self.table.side]
        if item is None:
            return f"There is no token on this side. {key_for('compare.other_side')} goes to the other one"
        label = quoted(token_label(item.text, item.raw))
        goes, path = ("looks at", "this path") if self.table.side == LEFT else ("goes to", "this branch")
        change = next((each for each in self.changes if each.place == self.table.cursor), None)
        if change is not None:
            before, after = (scales.METRIC["surprisal"].value(each) for each in (change.left, change.right))
            surprisal = (
                f"{scales.bits(before)} → {scales.bits(after)} bits"
                if before is not None and after is not None
                else ""
            )
            figures = f"{label}: {change_words(change, self.app.size.width >= NARROW)}, {surprisal}. "
            return f"{figures}⏎ {goes} it"
        return f"⏎ {goes} {label}, token {item.position + 1} of {path}"

    def walk(self, by: int) -> None:
        """Walk up or down."""
        self._point(self.table.cursor + by)

    def go_to_parting(self) -> None:
        """Go to the first token after the parting; from there to the first of all."""
        shared = self.comparison.shared
        self._point(0 if self.table.cursor == shared else shared)

    def go_to_side(self, side: int | None = None) -> None:
        """Go to a side, or to the other one."""
        self._point(self.table.cursor, 1 - self.table.side if side is None else side)

    def go_to_meeting(self, by: int) -> None:
        """Go to where they meet or part next, or did before."""
        here = self.table.cursor
        ahead = [place for place in self.comparison.turns if (place > here if by > 0 else place < here)]
        if ahead:
            self._point(ahead[0] if by > 0 else ahead[-1])
            self.table.centre()
        else:
            self.say(f"The branches neither meet nor part {'after' if by > 0 else 'before'} this.")

    @property
    def differing(self) -> list[TokenChange]:
        """The tokens whose probabilities differ, the largest difference first."""
        return by_size(self.changes)

    def go_to_largest(self) -> None:
        """Go to the largest difference of a probability; from there to the next largest, and round."""
        places = [each.place for each in self.differing]
        if not places:
            self.say("There are no tokens that both have after the same ones with other probabilities.")
            return
        here = places.index(self.table.cursor) + 1 if self.table.cursor in places else 0
        self._point(places[here % len(places)])
        self.table.centre()

    @on(CompareTable.PairClicked)
    def _clicked(self, message: CompareTable.PairClicked) -> None:
        self._point(message.place, message.side)

    # ---- branches ---------------------------------------------------------------------------

    def compare_with(self, by: int) -> None:
        """Compare with a neighbouring branch."""
        ends = others(self.timeline)
        if len(ends) < 2:
            self.say("There is no third branch to compare with.")
            return
        place = ends.index(self.other) + by if self.other in ends else 0
        self.other = ends[place % len(ends)]
        self._compare()
        self._begin()

    def go(self) -> None:
        """Leave for the token under the cursor."""
        pair, side = self.table.pair, self.table.side
        slot = None if pair is None else pair.on(side)
        if slot is None:
            self.say(
                f"There is no token on this side here. {key_for('compare.other_side')} goes to the other one"
            )
        else:
            self.dismiss((None if side == LEFT else self.other, slot))
