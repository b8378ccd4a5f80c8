"""Two branches compared: token for token, the gap of their logprobs, and their totals."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events, getters
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Static

from engine.protocol import MoveTo
from inspector import scales
from inspector.display import (
    joined_to_fit,
    pad,
    token_label,
    token_text,
    truncate,
    truncate_words,
    unfinished,
    visible,
)
from inspector.documents.compare import (
    LEAST_SEEN,
    LEFT,
    RIGHT,
    Comparison,
    Line,
    Pair,
    Rule,
    TokenChange,
    Totals,
    change_words,
    compare,
    divergence_words,
    lead,
    lines,
    nearest,
    others,
    summary,
)
from inspector.keys import with_keys
from inspector.main.view import LEAST_ROWS, View
from inspector.state.conditions import in_short, made_with
from inspector.state.session_tree import Item, numbered, quoted_label
from inspector.widgets.actions import Action, ActionTable, back, both, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, centred, reveal, scroll_at_once, strip_of
from inspector.widgets.charts import HEIGHTS, area, sample
from inspector.widgets.inks import Inked, panel_css
from inspector.widgets.rows import columns_that_fit
from inspector.widgets.token_lines import NEWLINE, Wrap, heat_style

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- the columns --------------------------------------------------------------------------------

CELLS = {"#": 6, "p": 9, "bits": 7, "rank": 8, "sum": 10, "Δp": 9, "Δbits": 8, "KL ≥": 7}
"""Cells of each column by its head, a blank before each number; `#` is a step, or a token of the prompt, `sum` the
cumulative logprob."""
TOKEN_CELLS = 9
"""Minimum cells of a token."""
_HALF = ("#", "p", "bits", "rank", "sum")
"""Columns of each half."""
CHANGE_FORMS = (("Δp", "Δbits", "KL ≥"), ("Δp", "KL ≥"), ("Δp",))
"""Columns between the halves, for a token that both have: right minus left."""
_MARK, _GUTTER = 2, 3


def cells_of(form: Sequence[str]) -> int:
    """Cells of some columns."""
    return sum(CELLS[head] for head in form)


def fitting(width: int) -> Sequence[str]:
    """The most columns that leave room for the token in a half of `width` cells."""
    half = {head: CELLS[head] for head in _HALF}
    return columns_that_fit(half, ("sum", "rank", "bits", "#"), width - TOKEN_CELLS)


def fitting_changes(width: int) -> Sequence[str]:
    """The most columns between the halves of a table of `width` cells that leave each half room for its surprisals,
    or else its probabilities."""
    for form in CHANGE_FORMS:
        half = (width - _GUTTER - cells_of(form)) // 2 - _MARK
        if half - cells_of(("#", "p", "bits") if "Δbits" in form else ("#", "p")) >= TOKEN_CELLS:
            return form
    return CHANGE_FORMS[-1]


def _numbers(form: Sequence[str], texts: Mapping[str, str]) -> str:
    """The columns after the token; a column without a text has its head."""
    return "".join(" " + pad(texts.get(head, head), CELLS[head] - 1, True) for head in form if head != "#")


# ---- both, token for token ----------------------------------------------------------------------

HEAD = 2
"""Lines above the tokens: the name of each half, and the heads of its columns."""
_BESIDE = {(True, True): " ═ ", (True, False): " = ", (False, False): "   "}
"""Between the halves, by whether the two tokens are the same, and whether they are part of a match."""


class CompareTable(ScrollView, Inked, can_focus=False):
    """Both continuations, token for token, with a cursor on one side. Each token has its pair and side as metadata."""

    DEFAULT_CSS = panel_css("CompareTable") + "CompareTable { overflow-x: hidden; scrollbar-gutter: stable; }"
    comparison = compare((), ())
    names: tuple[str, str] = ("", "")
    cursor = 0
    """Index of the pair under the cursor."""
    side = RIGHT

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[Line] = []
        self._places: list[int] = []
        """The line of each pair."""
        self._largest: TokenChange | None = None
        """The largest difference of a probability."""
        self._columns = fitting(0)
        self._between: Sequence[str] = ()
        """The columns between the halves."""

    # ---- its content ------------------------------------------------------------------------

    def show(self, comparison: Comparison, names: tuple[str, str]) -> None:
        """Show a comparison; the cursor stays on the same line, or goes to the last one.

        Args:
            comparison: The comparison.
            names: Names of left and right; printable.
        """
        self.comparison, self.names = comparison, names
        self.lines = list(lines(comparison))
        self._places = [place for place, line in enumerate(self.lines) if isinstance(line, Pair)]
        self.cursor = max(0, min(self.cursor, len(self._places) - 1))
        self._largest = next(iter(comparison.largest), None)
        self.border_title = Content("Compare")
        self.border_subtitle = Content(summary(comparison))
        self.virtual_size = Size(self.size.width, len(self.lines) + HEAD)
        self._fit()

    def point(self, cursor: int, side: int) -> None:
        """Put the cursor on a pair of tokens, or on the nearest there is, and on a side; bring it into view."""
        before, self.cursor = self.cursor, max(0, min(cursor, len(self._places) - 1))
        self.side = side
        for place in {before, self.cursor}:
            self.refresh_line(self._line(place) + HEAD)
        self.refresh_line(self.scroll_offset.y)  # the names
        self.reveal()

    def reveal(self) -> None:
        """Bring the cursor into view, with the line above it and the one below if there is room."""
        rows, line = self.size.height - HEAD, self._line(self.cursor)
        if rows > 0:
            reveal(self, min(len(self.lines) - 1, line + (rows > 2)), HEAD)
            reveal(self, max(0, line - (rows > 1)), HEAD)

    def center(self) -> None:
        """Bring the cursor into the upper third of the lines in sight."""
        scroll_at_once(self, self._line(self.cursor) - max(1, (self.size.height - HEAD) // 3))

    def _line(self, place: int) -> int:
        return self._places[place] if place < len(self._places) else 0

    @property
    def pair(self) -> Pair | None:
        """The tokens under the cursor."""
        return self.comparison.pairs[self.cursor] if self.comparison.pairs else None

    @property
    def page(self) -> int:
        """Lines of tokens that page up and page down move the cursor by."""
        return max(1, self.size.height - HEAD - 1)

    def _fit(self) -> None:
        """Choose the columns for the width, and draw every line again."""
        self._between = fitting_changes(self.scrollable_size.width) if self.comparison.changes else ()
        self._columns = fitting(self._half - _MARK)
        self.refresh()

    def on_resize(self) -> None:
        self._fit()
        self.reveal()

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
        width, line = self.scrollable_size.width, self.scroll_offset.y + y - HEAD
        row: Row = []
        if y < HEAD:
            row = self._head(y)
        elif line < len(self.lines):
            row = self._row(line)
        return strip_of(row, width, self.rich_style)

    def _head(self, y: int) -> Row:
        muted, columns = self.ink("muted"), self._columns
        if y > 0:
            text = " " * _MARK + (pad("#", CELLS["#"] - 1, True) + " " if "#" in columns else "")
            text += pad("token", self._token_cells) + _numbers(columns, {})
            return [Segment(text + _numbers(self._between, {}) + " " * _GUTTER + text, muted)]
        left, right = (
            Segment(pad(f"{'◉' if side == self.side else '○'} {name}", self._half),
                    self.ink("accent") if side == self.side else muted)
            for side, name in enumerate(joined_to_fit(each.split(" · "), self._half - 2) for each in self.names)
        )  # fmt: skip
        between = "right − left" if self._gutter > 2 * _GUTTER + 15 else ""
        return [left, Segment(between.center(self._gutter), muted), right]

    def _row(self, at: int) -> Row:
        """A line of tokens or of words."""
        line, comparison = self.lines[at], self.comparison
        if isinstance(line, Rule):
            width = self.scrollable_size.width
            words = line.words
            if len(words) > width - 6 and ", " in words:  # whole without what comes after the comma
                words = words.rpartition(", ")[0]
            words = truncate_words(f" {words} ", max(0, width - 4))
            return [Segment(f"──{words}".ljust(width, "─"), self.ink("good" if line.joins else "warn"))]
        left, right = comparison.items(line)
        same = left is not None and right is not None and left.id == right.id
        shared = line.left is not None and line.left < comparison.shared
        ink = self.ink("faint" if shared else "good" if line.joined else "muted")
        between = Segment(_BESIDE[same, same and line.joined], ink)
        place = bisect_left(self._places, at)
        row: Row = []
        for side in (LEFT, RIGHT):
            half = self._side(line, side, shared, (place, side) == (self.cursor, self.side))
            half = [between, *half] if side == RIGHT else [*half, self._changed(line)]
            row += Segment.apply_style(half, Style.from_meta({"pair": (place, side)}))
        return row

    def _changed(self, line: Pair) -> Segment:
        """The columns between the halves."""
        if (change := self.comparison.change(line)) is None or not self._between:
            return Segment(" " * cells_of(self._between))
        texts = {
            "Δp": scales.signed(100 * change.prob),
            "Δbits": scales.signed(change.bits),
            "KL ≥": "" if change.kl_bits is None else scales.bits(change.kl_bits),
        }
        numbers = _numbers(self._between, texts)
        if change is self._largest:
            return Segment(f" ◆{numbers[2:]}", self.ink("accent"))
        return Segment(numbers, self.ink("strong" if abs(change.prob) >= LEAST_SEEN else "faint"))

    def _side(self, line: Pair, side: int, shared: bool, here: bool) -> Row:
        """The token of a side with its numbers.

        Args:
            line: The pair.
            side: `LEFT` or `RIGHT`.
            shared: Whether the pair is a token of both, before they diverge.
            here: Whether the cursor is on this side of the pair.
        """
        ground = Style(bgcolor=self.ink("row").bgcolor, bold=True) if here else Style()

        def on_ground(ink: str) -> Style:
            return Style(color=self.ink(ink).color) + ground

        row = [Segment("▶ " if here else "  ", on_ground("accent"))]
        if (item := self.comparison.items(line)[side]) is None:
            return [*row, Segment(" " * (self._half - _MARK), ground)]
        metric, total = scales.METRIC["surprisal"], self.comparison.sum(line, side)
        surprisal = metric.value(item)
        texts = {
            "#": numbered(item).rpartition(" ")[2],
            "p": "" if item.prob is None else scales.percent(item.prob),
            "bits": "" if surprisal is None else scales.bits(surprisal),
            "rank": "" if item.rank is None else scales.count(item.rank),
            "sum": "" if total is None else scales.decimal(total),
        }
        if "#" in self._columns:
            position = pad(texts["#"], CELLS["#"] - 1, True) + " "
            row.append(Segment(position, on_ground("faint" if shared else "muted")))
        label = pad(token_label(item.text, item.raw, getattr(item, "pending", b"")), self._token_cells)
        words = "muted" if shared else "good" if line.joined else ""
        row.append(Segment(label, on_ground(words) if words else ground))
        hot = "bits" if "bits" in self._columns else "p"
        for head in self._columns:
            text = texts[head]
            if head == hot and not shared:
                heat = heat_style(metric.step(surprisal), self.dark, self.colorful)
                row.append(Segment(" " * max(0, CELLS[head] - len(text)), ground))
                row.append(Segment(text, ground + heat))
            elif head != "#":
                row.append(Segment(_numbers((head,), texts), on_ground("faint") if shared else ground))
        return row


# ---- the gap of their logprobs ------------------------------------------------------------------

_AXIS = 7
"""Cells of the axis' labels."""
_WIDEST = 4
"""Maximum cells of one step."""
_FREE = str.maketrans(HEIGHTS, HEIGHTS[::-1])
"""Maps the filled part of a cell to its free part."""
ROOMY = 40
"""Cells from which the chart has long texts."""
Halves = tuple[int, int, float]
"""The lines of a chart above and below its zero line, and the logprob of one line."""


def halves(values: Sequence[float], height: int) -> Halves:
    """Lines for values above zero and for those below, in about the same proportion as their extremes.

    Args:
        values: The chart's values.
        height: Lines available; at least 2 if there are values of both signs.
    """
    top, bottom = max((0.0, *values)), -min((0.0, *values))
    possible = range(1 if top else 0, height + (0 if bottom else 1))
    # by number of lines above zero: the least logprob of a line with which both extremes fit
    worth = {above: max(top / max(1, above), bottom / max(1, height - above)) for above in possible}
    above = min(worth, key=lambda lines: (worth[lines], -lines))
    return above, height - above, worth[above] or 1.0


def columns(steps: int, cells: int) -> list[int]:
    """The step that each column shows: several columns a step, or evenly spaced steps with the last."""
    if steps > cells:
        return sample(steps, cells)
    used = min(cells, steps * _WIDEST)
    return [column * steps // used for column in range(used)]


def axis(values: Sequence[float], parts: Halves) -> dict[int, str]:
    """Labels by line: each extreme on the line that it reaches, and 0 between them."""
    above, below, line = parts
    top, bottom = max(0.0, *values), min(0.0, *values)
    labels = {above - 1: "0"} if above else {}
    if top:
        labels[above - min(above, math.ceil(top / line))] = scales.signed(top, 1)
    if bottom:
        labels[above + min(below, math.ceil(-bottom / line)) - 1] = scales.signed(bottom, 1)
    return labels


# ---- their totals -------------------------------------------------------------------------------


class ComparedFigure(NamedTuple):
    """One line of the totals."""

    name: str
    value: Callable[[Totals], float | None]
    format: Callable[[float], str]
    worth: int
    """The figure with the lowest value is left out first if there is no room."""


def difference(value: float, digits: int) -> str:
    """A difference with its sign; the larger it is, the fewer decimals it has."""
    return scales.signed(value, max(0, digits - max(0, len(f"{abs(value):.0f}") - 2)))


COMPARED = (
    ComparedFigure("tokens", lambda of: of.tokens, lambda value: scales.count(int(value)), 6),
    ComparedFigure("logprob", lambda of: of.logprob if of.mean is not None else None, scales.decimal, 7),
    ComparedFigure("mean logprob", lambda of: of.mean, scales.decimal, 3),
    ComparedFigure("perplexity", lambda of: of.perplexity, scales.perplexity, 5),
    ComparedFigure("entropy, bits", lambda of: of.entropy_bits, scales.decimal, 2),
    ComparedFigure("ms a token", lambda of: of.ms, scales.ms, 4),
)


def figure_lines(
    figures: Iterable[ComparedFigure], left: Totals, right: Totals, width: int
) -> Iterator[tuple[str, str, str]]:
    """The heads and the figures, in columns as wide as their contents, or wider if there is room.

    Args:
        figures: The figures, one for each line.
        left: Totals of the left branch.
        right: Totals of the right branch.
        width: Cells of a line.

    Yields:
        The name, both numbers, and their difference.
    """
    table = [("", "left", "right", "left − right" if width > 60 else "gap")]
    for figure in figures:
        values = one, other = figure.value(left), figure.value(right)
        texts = left_text, right_text = ["–" if value is None else figure.format(value) for value in values]
        differs = ""  # between the numbers as shown, with no more decimals than they have
        if one is not None and other is not None:
            digits = min(len(text.partition(".")[2]) for text in texts)
            differs = difference(round(one, digits) - round(other, digits), digits)
        table.append((figure.name, left_text, right_text, differs))
    named, *cells = (max(map(len, column)) + 1 for column in zip(*table, strict=True))
    spare = max(0, width - named - sum(cells)) // 3
    for name, *row in table:
        texts = [pad(text, room + spare, True) for text, room in zip(row, cells, strict=True)]
        yield pad(name, named), texts[0] + texts[1], texts[2]


# ---- the view -----------------------------------------------------------------------------------

ALONE = (
    "There is no second branch to compare with. {candidates}, then ↑↓ and ⏎ on another candidate, makes one"
)
TEXTS, TABLE, FIGURES = "texts", "table", "figures"
TALL, LOW, LOW_LED = 30, 16, 21
"""Rows of the answer from which texts, tokens and figures are shown together; and below which the figures are left out,
without and with a line above the table."""
SLIM = 56
"""Cells of the answer below which the chart beside the figures has too few columns to be read."""
TITLED = 6
"""Cells of a frame's top line that its title can't use."""
NARROW = 80
"""Cells below which the status line has no KL divergence of a token."""
LOOK_SECONDS = 0.5
"""Seconds between two checks for changes of the tree; comparing thousands of tokens takes some 30 ms."""
_WALK = "Walk through the tokens."
_DIVERGENCE = "Go to where they diverge, then to the first token; to the last one."
COMPARE_KEYS = screen_table(
    "While branches are compared",
    *both(("compare.up", "compare.down"), ("Up", "Down"), _WALK, lambda own, by: own.walk(by), hint="walk", worth=4,
          place=1),
    *both(("compare.page_up", "compare.page_down"), ("Page up", "Page down"), _WALK,
          lambda own, by: own.walk(by * own.table.page), hint="page", worth=1, place=6),
    Action("compare.divergence", "Divergence", _DIVERGENCE, lambda own: own.go_to_divergence()),
    Action("compare.end", "End", _DIVERGENCE, lambda own: own.walk(len(own.table.lines))),
    *both(("compare.match_before", "compare.next_match"), ("Previous match", "Next match"),
          "Go to the previous place where they match again or diverge, or to the next one.",
          lambda own, by: own.go_to_match(by), hint="matches", worth=3, place=5),
    Action("compare.largest", "Largest",
           "Where the tokens are the same, but were made differently: go to the largest difference of a probability "
           "(`◆`), then the next.",
           lambda own: own.go_to_largest(), hint=lambda own: "largest" if own.comparison.largest else "", worth=6,
           place=3),
    *both(("compare.left", "compare.right"), ("Left", "Right"), "Go to the other side.",
          lambda own, side: own.point_at(own.table.cursor, side), by=(LEFT, RIGHT), hint="side", worth=5, place=2),
    *both(("compare.next_branch", "compare.branch_before"), ("Next branch", "Previous branch"),
          "Compare with the next or the previous branch.", lambda own, by: own.compare_with(by), by=(1, -1),
          hint="other branch", worth=7, place=4, one=True),
    *both(("compare.next_view", "compare.view_before"), ("Next view", "Previous view"),
          "Change between texts, and tokens with their numbers.", lambda own, by: own.turn(by), by=(1, -1),
          hint="view", worth=7, place=2, one=True),
    Action("compare.go", "Go there", "Go to the token under the cursor, on its branch.", lambda own: own.go(),
           hint="go there", worth=6, place=3),
    back("compare.leave", "Go back."),
)  # fmt: skip


class CompareView(View):
    """Compares the current path, on the left, with another branch: as texts, and token for token."""

    TOOL: ClassVar[str] = "compare"
    ACTIONS: ClassVar[ActionTable] = COMPARE_KEYS
    PAUSES: ClassVar[bool] = False

    lead = getters.query_one("#compare-lead", Static)
    texts = getters.query_one("#compare-texts", Container)
    table = getters.query_one("#compare-table", CompareTable)
    gap = getters.query_one("#compare-gap", DrawnPanel)
    totals = getters.query_one("#compare-totals", DrawnPanel)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.other = 0
        """Last node of the branch that the path is compared with."""
        self._seen: tuple[int, ...] = ()
        self._looks: Timer
        self._view = 0
        self._places: Sequence[Sequence[int]] = ((), ())
        """The pair of each token, for left and right."""
        self._wraps: dict[tuple[int, int], Wrap] = {}
        """The lines of the texts, by side and width."""

    def body(self) -> ComposeResult:
        yield Static(id="compare-lead")
        with Container(id="compare-texts"):
            yield DrawnPanel(id="compare-left")
            yield DrawnPanel(id="compare-right")
        yield CompareTable("compare-table")
        with Horizontal(id="compare-figures"):
            yield DrawnPanel(id="compare-gap")
            yield DrawnPanel(id="compare-totals")

    @property
    def comparison(self) -> Comparison:
        """The comparison on show."""
        return self.table.comparison

    def refusal(self) -> str:
        """See `View.refusal`."""
        return with_keys(ALONE) if nearest(self.timeline) is None else ""

    def begin(self) -> None:
        """Begin where they diverge; from now on check regularly whether the tree has changed."""
        self._looks = self.set_interval(LOOK_SECONDS, self._look)
        self._compare()
        self.after_paint(self._go_to_begin)

    def let_go(self) -> None:
        """Stop these checks."""
        self._looks.stop()

    # ---- the branches -----------------------------------------------------------------------

    def _look(self) -> None:
        """Compare again if the tree has changed."""
        if not self.left and self.screen.is_current and self._stamp() != self._seen:
            self._compare(self.other)

    def _stamp(self) -> tuple[int, ...]:
        timeline, tree = self.timeline, self.timeline.tree
        return id(timeline), timeline.generation, len(timeline.items), len(tree.nodes), tree.marks.version

    def _compare(self, other: int | None = None) -> None:
        """Compare with a branch, or with the nearest if there is no such branch; leave if there is none."""
        self._seen, tree = self._stamp(), self.timeline.tree
        if other not in others(self.timeline):
            other = nearest(self.timeline)
        if other is None:
            self.call_next(self.dismiss)
            return
        self.other = other
        comparison = compare(list(self.timeline.items), tree.path(other))
        words = lead(comparison, tree)
        self.lead.update(Content(words))
        self.lead.display = bool(words)
        self.table.show(comparison, self._names(comparison))
        self._wraps.clear()
        self._places = tuple(
            [place for place, pair in enumerate(comparison.pairs) if pair.on(side) is not None]
            for side in (LEFT, RIGHT)
        )
        self.changed()

    def _names(self, of: Comparison) -> tuple[str, str]:
        """The name of each side, the conditions of its own tokens if there are any, and its number of tokens."""
        tree, ends = self.timeline.tree, others(self.timeline)
        place = ends.index(self.other) + 1 if self.other in ends else 1
        which = f"other {place} of {len(ends)}" if len(ends) > 1 else "the other"
        first = of.right[of.shared : of.shared + 1]
        name = tree.marks.at(first[0].node).name if first else ""

        def named(words: str, side: Sequence[Item]) -> str:
            parts = words, in_short(made_with(tree, side[of.shared :])), scales.counted(len(side), "token")
            return " · ".join(filter(None, parts))

        return named("this path", of.left), named(f"{visible(name)} · {which}" if name else which, of.right)

    def _go_to_begin(self) -> None:
        """Go to the first token after the divergence, on the right if there is one."""
        pairs, shared = self.comparison.pairs, self.comparison.shared
        right = shared < len(pairs) and pairs[shared].right is not None
        self._go_to(shared, RIGHT if right else LEFT)

    # ---- showing ----------------------------------------------------------------------------

    @property
    def views(self) -> Sequence[Sequence[str]]:
        """The parts that are shown together, at this size."""
        whole = (TEXTS, TABLE, FIGURES) if self.area.height >= TALL else ()
        parts = (TEXTS,), (TABLE, FIGURES)
        return tuple(filter(None, (whole, *(parts if self.area.height >= LEAST_ROWS else parts[::-1]))))

    def show(self) -> None:
        """Show the texts, the figures and the status; leave out the figures if they leave the table no room."""
        views = self.views
        view = views[self._view % len(views)]
        low = self.area.height < (LOW_LED if self.lead.display else LOW)
        self.set_class(self.area.width < SLIM, "-slim")
        self.texts.set_class(self.area.height >= TALL and self.area.width >= SLIM, "-beside")
        self.texts.set_class(TABLE not in view, "-alone")
        self.texts.display, self.table.display = TEXTS in view, TABLE in view
        self.query_one("#compare-figures").display = FIGURES in view and not low
        roomy = self.gap.size.width >= ROOMY
        title = "Logprob gap" + (": ▲ left, ▼ right is ahead" if roomy else "")
        self.gap.put(title, self._gap, self._gap_words(roomy))
        self.totals.put("Since they branched", self._totals)
        for side, id in enumerate(("#compare-left", "#compare-right")):
            sign = "◉" if side == self.table.side else "○"
            head = "" if side or TABLE in view else "Compare · "
            head, beside = f"{head}{sign} ", self.texts.has_class("-beside")
            room = self.area.width // (1 + beside) - TITLED - len(head)
            title = head + joined_to_fit(self.table.names[side].split(" · "), room)
            self.query_one(id, DrawnPanel).put(title, partial(self._text, side))
        told = "" if TABLE in view else joined_to_fit(divergence_words(self.comparison), self.area.width - 2)
        self.write(told)

    def _text(self, side: int, on: Canvas, width: int, height: int) -> list[Row]:
        """The text of a side around the cursor: what both share is grey, what differs is coloured and bold."""
        comparison, places = self.comparison, self._places[side]
        items = comparison.right if side else comparison.left
        if not items or height < 1:
            return []
        wrap, other = self._wrap(side, width), self._wrap(1 - side, width)
        here = max(0, bisect_right(places, self.table.cursor) - 1)
        own = side == self.table.side and places[here] == self.table.cursor
        longest = max(len(wrap.lines), len(other.lines))  # so that both begin with the same token
        top = max(0, min(wrap.line_of[here] - height // 3, longest - height))

        def ink(slot: int) -> Style:
            if slot == here and own:
                return on.ink("cursor")
            differs = slot >= comparison.shared and not comparison.pairs[places[slot]].joined
            style = on.ink("muted" if slot < comparison.shared else "accent" if differs else "base")
            return style + Style(underline=slot == here and places[here] == self.table.cursor)

        return [
            [Segment(piece.text, ink(piece.slot) + Style.from_meta({"pair": (places[piece.slot], side)}))
             for piece in line.pieces]
            for line in wrap.lines[top : top + height]
        ]  # fmt: skip

    def _wrap(self, side: int, width: int) -> Wrap:
        if (wrap := self._wraps.get((side, width))) is None:
            wrap = self._wraps[side, width] = Wrap(width - 1)
            for item in self.comparison.right if side else self.comparison.left:
                wrap.append(token_text(item.text, item.raw, unfinished(item.raw)).split(NEWLINE))
        return wrap

    @property
    def step(self) -> int:
        """Tokens from the divergence to the cursor; 0 before it."""
        pair = self.table.pair
        place = pair.on(self.table.side) if pair is not None else None
        return 0 if place is None else max(0, place - self.comparison.shared + 1)

    def _gap(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The gap between the two cumulative logprobs, a column or more a step: up where left is ahead."""
        if not (gap := self.comparison.gap) or height < 2:
            reason = "Only one of them continues after they diverge."
            return centred([(reason, on.ink("muted"))], width, height)
        shown = columns(len(gap), max(1, width - _AXIS))
        marked = next((place for place in shown if place >= self.step - 1), -1) if self.step else -1
        values = [gap[place] for place in shown]
        above, below, line = parts = halves(values, height)
        up = area([max(0.0, value) for value in values], above, line * above)
        down = area([max(0.0, -value) for value in values], below, line * below)[::-1]
        labels, rows = axis(values, parts), list[Row]()
        for n, chars in enumerate((*up, *down)):
            row = [Segment(pad(labels.get(n, ""), _AXIS - 1, True) + " ", on.ink("muted"))]
            for char, place in zip(chars, shown, strict=True):
                ink = on.ink("accent") if place == marked else on.data(0.25 if n < len(up) else 0.95)
                if n >= len(up) and char not in " █":  # a cell filled in part: ink and ground are exchanged
                    char, ink = char.translate(_FREE), Style(color=ink.color, reverse=True)
                row.append(Segment(char, ink))
            rows.append(row)
        return rows

    def _gap_words(self, roomy: bool) -> str:
        comparison = self.comparison
        if not comparison.gap:
            return ""
        step = min(max(1, self.step), len(comparison.gap))
        one, other = (cumulative[step - 1] for cumulative in comparison.cumulative)
        both = f"{scales.decimal(one, 1)} minus {scales.decimal(other, 1)} = " if roomy else ""
        return f"after {scales.count(step)}: {both}{scales.signed(comparison.gap[step - 1], 1)}"

    def _totals(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The figures of both branches after the divergence, and their differences."""
        left, right = self.comparison.totals
        muted = on.ink("muted")
        best = sorted(COMPARED, key=lambda figure: -figure.worth)[: max(1, height - 1)]
        lines = figure_lines([figure for figure in COMPARED if figure in best], left, right, width)
        rows: list[Row] = [[Segment("".join(next(lines)), muted)]]
        for name, sides, differs in lines:
            rows.append([Segment(name, muted), Segment(sides), Segment(differs, on.ink("strong"))])
        if (unknown := left.unknown + right.unknown) and len(rows) < height:
            words = f"{unknown} without a logprob are left out"
            rows.append([Segment(truncate(words, width), on.ink("warn"))])
        return rows

    def situation(self) -> str:
        """The token under the cursor, and what enter does with it."""
        if (pair := self.table.pair) is None:
            return ""
        if (item := self.comparison.items(pair)[self.table.side]) is None:
            return "There is no token on this side here. ←→ go to the other one"
        label = quoted_label(item)
        goes, path = ("looks at", "this path") if self.table.side == LEFT else ("goes to", "this branch")
        if (change := self.comparison.change(pair)) is None:
            return f"⏎ {goes} {label}, {numbered(item)} of {path}"
        before, after = (scales.METRIC["surprisal"].value(each) for each in (change.left, change.right))
        surprisal = ""
        if before is not None and after is not None:
            surprisal = f"{scales.bits(before)} → {scales.bits(after)} bits"
        return f"{label}: {change_words(change, self.app.size.width >= NARROW)}, {surprisal}. ⏎ {goes} it"

    # ---- keys -------------------------------------------------------------------------------

    def point_at(self, cursor: int, side: int | None = None) -> None:
        """Put the cursor on a pair."""
        self.table.point(cursor, self.table.side if side is None else side)
        self.say()

    def _go_to(self, cursor: int, side: int | None = None) -> None:
        """Put the cursor on a pair, with some lines above it."""
        self.point_at(cursor, side)
        self.table.center()

    def walk(self, by: int) -> None:
        self.point_at(self.table.cursor + by)

    def turn(self, by: int) -> None:
        """Change between texts, and tokens with their numbers."""
        self._view += by
        self.after_paint(self.table.reveal)

    def go_to_divergence(self) -> None:
        """Go to the first token after the divergence; from there to the first of all."""
        shared = self.comparison.shared
        self.point_at(0 if self.table.cursor == shared else shared)

    def go_to_match(self, by: int) -> None:
        """Go to the next place where they match or diverge, or to the previous one."""
        if ahead := [place for place in self.comparison.turns if (place - self.table.cursor) * by > 0]:
            self._go_to(ahead[0] if by > 0 else ahead[-1])
        else:
            self.say(f"The branches neither match nor diverge {'after' if by > 0 else 'before'} this.")

    def go_to_largest(self) -> None:
        """Go to the largest difference of a probability, or from there to the next largest, and round."""
        if places := [each.place for each in self.comparison.largest]:
            here = places.index(self.table.cursor) + 1 if self.table.cursor in places else 0
            self._go_to(places[here % len(places)])
        else:
            self.say("There are no tokens that both have after the same ones with other probabilities.")

    def on_click(self, event: events.Click) -> None:
        if (pair := event.style.meta.get("pair")) is not None:
            self.point_at(*pair)

    def compare_with(self, by: int) -> None:
        """Compare with a neighboring branch."""
        if len(ends := others(self.timeline)) < 2:
            self.say("There is no third branch to compare with.")
            return
        place = ends.index(self.other) + by if self.other in ends else 0
        self._compare(ends[place % len(ends)])
        self._go_to_begin()

    def go(self) -> None:
        """Leave for the token under the cursor, on its branch."""
        pair, side = self.table.pair, self.table.side
        slot = None if pair is None else pair.on(side)
        if slot is None:
            self.say(self.situation())
            return
        if side == LEFT:
            self.timeline.select(slot)
        else:
            self.timeline.expect(slot)
            self.controller.client.do(MoveTo(self.other))
        self.dismiss()
        self.host.answer()
