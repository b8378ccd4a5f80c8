"""What sweeps measured, as tables with bars: rows from records."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import Figure, SweepPoint, Swept
from engine.sweep_settings import SweepName
from inspector.display import visible
from inspector.scales import amount, count, size
from inspector.tools.sweeps.tables import PLACES, TITLES, UNITS, spread
from inspector.widgets.canvas import Canvas, Row, fact_rows
from inspector.widgets.charts import bar

_READABLE = 104
_LEAST_BAR, _MOST_BAR = 6, 40
_GAP = 2


def sweeps_page(on: Canvas, swept: Swept, width: int) -> list[Row]:
    """A table for each sweep, how each was taken, and the machine."""
    rows: list[Row] = []
    for name, how in swept.how:
        points = [point for point in swept.points if point.sweep == name]
        if points:
            foot = fact_rows([("how", how)], min(width, _READABLE), on.ink("muted"), on.ink("muted"))
            rows += [[Segment(TITLES[name], on.ink("primary"))], *_table(on, name, points, width), *foot, []]
    notes = [("note", note) for note in swept.notes]
    return [
        *rows,
        *fact_rows([*_where(swept), *notes], min(width, _READABLE), on.ink("muted"), on.rich_style),
    ]


def _where(swept: Swept) -> list[tuple[str, str]]:
    machine = swept.machine
    memory = f", {size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    rounds = f"{swept.rounds} rounds" if swept.last else f"the rounds so far, of {swept.rounds}"
    versions = f"mlx {machine.mlx}, mlx-lm {machine.mlx_lm}, Python {machine.python}"
    weights = f"{amount(swept.parameters)} parameters, {swept.quantization or swept.dtype}, {machine.backend}"
    weights += f", {machine.blas}" if machine.blas else ""
    return [
        ("model", f"{swept.model}: {swept.family}, {weights}"),
        ("machine", f"{machine.processor}, {machine.cores} cores{memory}, {machine.system}; {versions}"),
        ("figures", f"medians of {rounds}, after a warm-up; in brackets the least and the most"),
    ]


def _table(on: Canvas, name: SweepName, points: Sequence[SweepPoint], width: int) -> list[Row]:
    """One line a point: where it is, its figures, and the first of them as a bar; spread where there is room."""
    if name == "inspection":
        return [_single(on, figure) for point in points for figure in point.figures]
    head = [PLACES[name], *(figure.name for figure in points[0].figures)]
    for with_spread in (True, False):
        body = [
            [
                visible(point.label) or count(point.at),
                *(_cell(figure, with_spread) for figure in point.figures),
            ]
            for point in points
        ]
        widths = [max(cell_len(row[column]) for row in (head, *body)) for column in range(len(head))]
        room = width - sum(widths) - _GAP * len(widths)
        if room >= _LEAST_BAR:
            break
    top = max(point.figures[0].median for point in points)
    bars = [
        bar(point.figures[0].median / top if top else 0.0, max(0, min(room, _MOST_BAR))) for point in points
    ]
    return [
        [Segment(_line(head, widths), on.ink("muted"))],
        *(
            [Segment(_line(row, widths), on.rich_style), Segment(drawn, on.data(0.45))]
            for row, drawn in zip(body, bars, strict=True)
        ),
    ]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (" " * (width - cell_len(cell)) + cell for cell, width in zip(cells, widths, strict=True))
    return "".join(f"{cell}{' ' * _GAP}" for cell in padded)


def _single(on: Canvas, figure: Figure) -> Row:
    return [
        Segment(visible(figure.name).ljust(20), on.ink("muted")), Segment(_cell(figure, True), on.ink("strong")),
    ]  # fmt: skip


def _cell(figure: Figure, with_spread: bool) -> str:
    return UNITS[figure.unit](figure.median) + (spread(figure) if with_spread else "")
