"""The figures of sweeps in words and as tables of characters: for the command line, and in part for the page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from engine.protocol import Figure, SweepPoint, Swept
from engine.sweep_settings import SweepName
from inspector.display import visible
from inspector.scales import amount, milliseconds, rate, size
from inspector.widgets.charts import bar

BAR = 16
PLACES: dict[SweepName, str] = {
    "ttft": "prompt", "tpot": "context", "batch": "sequences", "inspection": "steps",
    "blas": "dtype and BLAS",
}  # fmt: skip
TITLES: dict[SweepName, str] = {
    "ttft": "Time to first token over the prompt's length",
    "tpot": "Time per output token over the context's length",
    "batch": "Throughput over the batch's size",
    "inspection": "What inspection costs against mlx_lm's own loop",
    "blas": "What multiplies the matrices, and in which type",
}
UNITS: dict[str, Callable[[float], str]] = {
    "ms": milliseconds,
    "tokens/s": rate,
    "bytes": lambda value: size(round(value)),
    "times": lambda value: f"{value:.2f} times",
}


def tables(swept: Swept) -> str:
    """A table for each sweep, with the machine and the model on top and how it was taken under each."""
    lines = [*_head(swept), ""]
    for name, how in swept.how:
        points = [point for point in swept.points if point.sweep == name]
        if points:
            lines += [TITLES[name], *_table(name, points), *_wrapped(how), ""]
    return "\n".join(visible(line) for line in lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ")


def _head(swept: Swept) -> list[str]:
    machine = swept.machine
    memory = f", {size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    weights = f"{amount(swept.parameters)} parameters, {swept.quantization or swept.dtype}"
    return [
        f"{swept.model}: {swept.family}, {weights}, on {machine.backend}{f', {machine.blas}' if machine.blas else ''}",
        f"{machine.processor}, {machine.cores} cores{memory}, {machine.system}",
        f"mlx {machine.mlx}, mlx-lm {machine.mlx_lm}, Python {machine.python}; medians of {swept.rounds} rounds "
        "(least to most)",
    ]


def _table(name: SweepName, points: Sequence[SweepPoint]) -> list[str]:
    """One line a point: where it is, a bar of its first figure, and all figures with their spread."""
    if name == "inspection":
        return [f"  {figure.name:<16}{_cell(figure)}" for point in points for figure in point.figures]
    top = max(point.figures[0].median for point in points)
    names = [figure.name for figure in points[0].figures]
    rows = [[point.label or f"{point.at:,}", *map(_cell, point.figures)] for point in points]
    head = [PLACES[name], *names]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    bars = ["", *(bar(point.figures[0].median / top, BAR) for point in points)]
    return [
        f"  {row[0]:>{widths[0]}}  {drawn:<{BAR}}  "
        + "  ".join(f"{cell:<{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)).rstrip()
        for row, drawn in zip((head, *rows), bars, strict=True)
    ]


def _cell(figure: Figure) -> str:
    return UNITS[figure.unit](figure.median) + spread(figure)


def spread(figure: Figure) -> str:
    """The least and the most in brackets, without their units where these are one; empty where they read the same."""
    with_unit = UNITS[figure.unit]
    least, most = with_unit(min(figure.values)), with_unit(max(figure.values))
    if least == most:
        return ""
    alike = least.split(" ")[1:] == most.split(" ")[1:] == with_unit(figure.median).split(" ")[1:]
    return f" ({_bare(least)}-{_bare(most)})" if alike else f" ({least}-{most})"


def _bare(text: str) -> str:
    """The number without its unit."""
    return text.split(" ")[0]
