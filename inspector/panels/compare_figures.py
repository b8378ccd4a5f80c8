"""What two branches come to: the gap of their logprobs over the steps, and their totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from inspector import scales
from inspector.comparison import Comparison, Totals
from inspector.display import pad, truncate
from inspector.panels.canvas import Canvas, Row, centred, panel_css
from inspector.panels.charts import HEIGHTS, area, sample

_AXIS = 7
"""Cells of the axis' labels."""
_WIDEST = 4
"""Cells of one step at most."""


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and a true minus; nothing is neither: `+1.20`, `−0.31`, `0.00`."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if any(char in "123456789" for char in text) else text[1:]


@dataclass(frozen=True, slots=True)
class Halves:
    """How the lines of a chart are divided by its zero line."""

    above: int
    below: int
    line: float
    """What one line is worth."""


def halves(values: Sequence[float], height: int) -> Halves:
    """Lines for what is above nothing and for what is below, in about the same proportion as their extremes.

    Args:
        values: What is drawn.
        height: Lines at hand, 2 at least where there are values of both signs.
    """
    top, bottom = max((0.0, *values)), -min((0.0, *values))
    if not top and not bottom:
        return Halves(height, 0, 1.0)
    above = round(height * top / (top + bottom))
    above = min(max(above, 1 if top else 0), height - (1 if bottom else 0))
    below = height - above
    return Halves(above, below, max(top / above if above else 0.0, bottom / below if below else 0.0))


def hanging(values: Sequence[float], height: int, top: float) -> list[str]:
    """An area that hangs from its first line, to be drawn with ink and ground exchanged.

    Args:
        values: One column a value, none below zero.
        height: Lines.
        top: The value that fills the whole height.

    Returns:
        The lines, the highest first: each character shows the part of its cell that stays free.
    """
    free = str.maketrans(HEIGHTS, HEIGHTS[::-1])
    return [line.translate(free) for line in reversed(area(values, height, top))]


class GapChart(Canvas):
    """The gap between two cumulative logprobs, a column or more a step: up where left is ahead."""

    DEFAULT_CSS = panel_css("GapChart")
    comparison: Comparison | None = None

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.step = 0
        """Tokens since the parting that the cursor has come to, 0 before it."""

    def put(self, comparison: Comparison, step: int) -> None:
        """Show the gap of a comparison, and where the cursor stands."""
        self.comparison, self.step = comparison, step
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        comparison = self.comparison
        gap = comparison.gap if comparison else ()
        self.title(Content("Logprob gap"), Content(self._words(comparison)))
        if not gap or height < 1:
            told = "Only one of them goes on after the parting."
            return centred([(told, self.ink("muted"))], width, height)
        shown = sample(len(gap), max(1, width - _AXIS))
        wide = min(_WIDEST, max(1, (width - _AXIS) // len(gap)))
        return self._chart([gap[place] for place in shown], self._marked(shown), wide, height)

    def _words(self, comparison: Comparison | None) -> str:
        if comparison is None or not comparison.gap:
            return ""
        step = min(max(1, self.step), len(comparison.gap))
        one, other = (cumulative[step - 1] for cumulative in comparison.cumulative)
        both = f"{one:.1f} less {other:.1f}".replace("-", "−")
        return f"after {scales.count(step)}: {both} = {signed(comparison.gap[step - 1], 1)}"

    def _marked(self, shown: Sequence[int]) -> int:
        """The column of the cursor, -1 for none."""
        return (
            next((column for column, place in enumerate(shown) if place >= self.step - 1), -1)
            if self.step
            else -1
        )

    def _chart(self, values: Sequence[float], marked: int, wide: int, height: int) -> list[Row]:
        parts = halves(values, height)
        up = area([max(0.0, value) for value in values], parts.above, parts.line * parts.above)
        down = hanging([max(0.0, -value) for value in values], parts.below, parts.line * parts.below)
        rows = [self._line(line, self.data(0.25), marked, wide) for line in up]
        rows += [self._line(line, self.data(0.95) + Style(reverse=True), marked, wide) for line in down]
        labels = {0: signed(max(0.0, *values), 1), height - 1: signed(min(0.0, *values), 1)}
        if parts.above and parts.below and height > 2:
            labels.setdefault(parts.above - 1, "0")
        muted = self.ink("muted")
        return [
            [Segment(pad(labels.get(n, ""), _AXIS - 1, True) + " ", muted), *row]
            for n, row in enumerate(rows)
        ]

    def _line(self, line: str, ink: Style, marked: int, wide: int) -> Row:
        """A line of the chart; the free part of a hanging cell must stay the ground's colour."""
        accent = Style(color=self.ink("accent").color) + Style(reverse=ink.reverse)
        return [Segment(char * wide, accent if column == marked else ink) for column, char in enumerate(line)]


# ---- totals -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the totals."""

    name: str
    value: Callable[[Totals], float | None]
    format: Callable[[float], str]
    digits: int
    """Of the difference."""
    worth: int
    """The least worthy goes first where there is no room."""


def _plain(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


FIGURES = (
    Figure("tokens", lambda of: of.tokens, lambda value: scales.count(int(value)), 0, 6),
    Figure("logprob", lambda of: of.logprob if of.mean is not None else None, _plain, 2, 7),
    Figure("mean", lambda of: of.mean, _plain, 2, 3),
    Figure("perplexity", lambda of: of.perplexity, _plain, 2, 5),
    Figure("entropy", lambda of: of.entropy_bits, _plain, 2, 2),
    Figure("ms a token", lambda of: of.ms, scales.ms, 2, 4),
)


class TotalsPanel(Canvas):
    """The figures of both branches after the parting, and their differences."""

    DEFAULT_CSS = panel_css("TotalsPanel")
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
        cells = max(7, (width - 11) // 3)
        rows = [self._head(cells)]
        rows += [self._row(figure, left, right, cells) for figure in FIGURES if figure in kept]
        if (unknown := left.unknown + right.unknown) and len(rows) < height:
            rows.append(
                [Segment(truncate(f"{unknown} without a logprob are left out", width), self.ink("warn"))]
            )
        return rows

    def _head(self, cells: int) -> Row:
        heads = ("left", "right", "left−right" if cells >= 10 else "differ.")
        text = " " * 11 + "".join(pad(head, cells, True) for head in heads)
        return [Segment(text, self.ink("muted"))]

    def _row(self, figure: Figure, left: Totals, right: Totals, cells: int) -> Row:
        one, other = figure.value(left), figure.value(right)
        numbers = "".join(
            pad("–" if value is None else figure.format(value), cells, True) for value in (one, other)
        )
        differs = "" if one is None or other is None else signed(one - other, figure.digits)
        return [
            Segment(pad(figure.name, 11), self.ink("muted")),
            Segment(numbers),
            Segment(pad(differs, cells, True), self.ink("strong")),
        ]
