"""What two branches come to: the gap of their logprobs over the steps, and their totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from engine.frozen import frozen
from inspector import scales
from inspector.display import pad, truncate
from inspector.tools.compare.comparison import Comparison, Totals
from inspector.widgets.canvas import Canvas, Row, centred
from inspector.widgets.charts import HEIGHTS, area, sample
from inspector.widgets.inks import panel_css

_AXIS = 7
"""Cells of the axis' labels."""
_WIDEST = 4
"""Cells of one step at most."""
_FREE = str.maketrans(HEIGHTS, HEIGHTS[::-1])
"""From the filled part of a cell to the free one."""
_ROOMY = 40
"""Cells from which a panel uses its long texts."""
_LEAST = 7
"""Cells of a figure at least."""


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and a true minus; nothing is neither: `+1.20`, `−0.31`, `0.00`."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if any(char in "123456789" for char in text) else text[1:]


@frozen
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
        height: Lines available, 2 at least where there are values of both signs.
    """
    top, bottom = max((0.0, *values)), -min((0.0, *values))
    fewest = range(1 if top else 0, height + (0 if bottom else 1)) or range(height, height + 1)
    worth = {above: _worth(top, above, bottom, height - above) for above in fewest}
    above = min(worth, key=lambda lines: (worth[lines], -lines))
    return Halves(above, height - above, worth[above] or 1.0)


def _worth(top: float, above: int, bottom: float, below: int) -> float:
    """What a line must be worth for both extremes to fit."""
    return max(top / above if above else 0.0, bottom / below if below else 0.0)


class GapChart(Canvas):
    """The gap between two cumulative logprobs, a column or more a step: up where left is ahead."""

    DEFAULT_CSS = panel_css("GapChart")
    comparison: Comparison | None = None

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
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
            reason = "Only one of them goes on after the parting."
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
        return f"after {scales.count(step)}: {both}{signed(comparison.gap[step - 1], 1)}"

    def _chart(self, values: Sequence[float], marked: Sequence[bool], height: int) -> list[Row]:
        parts, accent = halves(values, height), self.ink("accent")
        up = area([max(0.0, value) for value in values], parts.above, parts.line * parts.above)
        down = area([max(0.0, -value) for value in values], parts.below, parts.line * parts.below)[::-1]
        left, right = self.data(0.25), self.data(0.95)
        rows = [row_above_zero(line, marked, left, accent) for line in up]
        rows += [row_below_zero(line, marked, right, accent) for line in down]
        labels, muted = axis(values, parts), self.ink("muted")
        return [
            [Segment(pad(labels.get(n, ""), _AXIS - 1, True) + " ", muted), *row]
            for n, row in enumerate(rows)
        ]


def columns(steps: int, cells: int) -> list[int]:
    """The step that each column shows: several columns a step, or evenly spaced steps with the last."""
    if steps > cells:
        return sample(steps, cells)
    used = min(cells, steps * _WIDEST)
    return [column * steps // used for column in range(used)]


def row_above_zero(line: str, marked: Sequence[bool], ink: Style, accent: Style) -> Row:
    """A line of an area above its zero line; marked columns have another colour."""
    row = [Segment(char, accent if here else ink) for char, here in zip(line, marked, strict=True)]
    return list(Segment.simplify(row))


def row_below_zero(line: str, marked: Sequence[bool], ink: Style, accent: Style) -> Row:
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
        labels[parts.above - min(parts.above, math.ceil(top / parts.line))] = signed(top, 1)
    if bottom:
        labels[parts.above + min(parts.below, math.ceil(-bottom / parts.line)) - 1] = signed(bottom, 1)
    return labels


# ---- totals -----------------------------------------------------------------------------------


@frozen
class ComparedFigure:
    """One line of the totals."""

    name: str
    unit: str
    """Shown where there is room."""
    value: Callable[[Totals], float | None]
    format: Callable[[float], str]
    digits: int
    """Of the difference."""
    worth: int
    """The least worthy goes first where there is no room."""


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
        names = {figure: f"{figure.name} {figure.unit}".rstrip() for figure in kept}
        if max(map(len, names.values())) + 3 * _LEAST >= width:
            names = {figure: figure.name for figure in kept}
        named = max(map(len, names.values())) + 1
        cells = max(_LEAST, (width - named) // 3)
        rows = [self._head(named, cells)]
        rows += [
            self._row(figure, names[figure], left, right, named, cells)
            for figure in FIGURES
            if figure in kept
        ]
        if (unknown := left.unknown + right.unknown) and len(rows) < height:
            rows.append(
                [Segment(truncate(f"{unknown} without a logprob are left out", width), self.ink("warn"))]
            )
        return rows

    def _head(self, named: int, cells: int) -> Row:
        heads = ("left", "right", "left − right" if cells > 12 else "gap")
        text = " " * named + "".join(pad(head, cells, True) for head in heads)
        return [Segment(text, self.ink("muted"))]

    def _row(
        self, figure: ComparedFigure, name: str, left: Totals, right: Totals, named: int, cells: int
    ) -> Row:
        one, other = figure.value(left), figure.value(right)
        numbers = "".join(
            pad("–" if value is None else figure.format(value), cells, True) for value in (one, other)
        )
        differs = "" if one is None or other is None else signed(one - other, figure.digits)
        return [
            Segment(pad(name, named), self.ink("muted")),
            Segment(numbers),
            Segment(pad(differs, cells, True), self.ink("strong")),
        ]
