"""`inspector bench`: sweeps of speed and memory, as tables with bars or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, TextIO

from engine import commands, records
from engine.errors import SettingsError
from engine.records import Figure, SweepName, SweepPoint, Swept
from engine.settings import LoadSettings, Settings, check_load
from engine.sweep_settings import SWEEPS, SweepSettings, check_sweeps
from inspector.cli.arguments import Request
from inspector.cli.exit import concluded, output
from inspector.cli.flags import Parser, add_load, named, whole
from inspector.cli.plain import PlainText
from inspector.cli.summary import Summary
from inspector.display import visible
from inspector.scales import amount, milliseconds, rate, size
from inspector.widgets.charts import bar

BAR = 16
PLACES: dict[SweepName, str] = {
    "ttft": "prompt", "tpot": "context", "batch": "sequences", "inspection": "steps",
}  # fmt: skip
TITLES: dict[SweepName, str] = {
    "ttft": "Time to first token over the prompt's length",
    "tpot": "Time per output token over the context's length",
    "batch": "Throughput over the batch's size",
    "inspection": "What inspection costs against mlx_lm's own loop",
}
UNITS: dict[str, Callable[[float], str]] = {
    "ms": milliseconds,
    "tokens/s": rate,
    "bytes": lambda value: size(round(value)),
    "times": lambda value: f"{value:.2f} times",
}


def parser() -> Parser:
    """The parser of `inspector bench`."""
    found = Parser(
        prog="inspector bench",
        description="Measure a model: TTFT over prompt length, TPOT over context length, throughput and KV bytes over "
        "batch size, and what inspection costs. Figures to standard output, progress to standard error.",
        epilog="Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    group, default = found.add_argument_group("sweeps"), SweepSettings()
    names = ", ".join(SWEEPS)
    group.add_argument(
        "--sweeps", metavar="NAME", nargs="+", help=f"some of {names}, or comma-separated (default: all)"
    )
    for name, help_text in {
        "rounds": f"counted measurements of every point (default: {default.rounds})",
        "steps": f"tokens decoded for a figure (default: {default.steps})",
        "longest": f"tokens of the longest prompt and context (default: {default.longest})",
        "largest_batch": f"sequences at once (default: {default.largest_batch})",
    }.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=whole, metavar="N", help=help_text)
    add_load(found.add_argument_group("model and cache"))
    found.add_argument("--json", action="store_true", help="one JSON object with every single measurement")
    return found


def run(args: argparse.Namespace) -> int:
    """Run `inspector bench`.

    Raises:
        EngineError: A value is out of range.
    """
    from inspector.cli import generate as headless

    given = {name: value for name, value in vars(args).items() if value is not None}
    if "sweeps" in given:
        given["sweeps"] = tuple(name for part in given["sweeps"] for name in part.split(",") if name)
    try:
        settings = check_sweeps(SweepSettings(**_known(SweepSettings, given)))
        load = check_load(LoadSettings(**_known(LoadSettings, given)))
    except SettingsError as error:
        raise named(error) from None
    request = Request(load, Settings(), prompt="", chat=False)
    writer = BenchText(output(), sys.stderr, request, as_json=args.json)
    return concluded(headless.generate(request, writer, last=commands.Sweep(settings)))


def _known(kind: type[SweepSettings | LoadSettings], given: dict[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


class BenchText(PlainText):
    """Shows how far the measuring is, and writes what came of it.

    Args:
        out: Receives the figures.
        err: Receives the progress, where it is a terminal.
        request: Which model.
        as_json: One object instead of tables.
    """

    def __init__(self, out: TextIO, err: TextIO | None, request: Request, *, as_json: bool) -> None:
        super().__init__(out, err, request)
        self._json = as_json
        self._swept: Swept | None = None

    def take(self, record: records.Record, text: str) -> None:
        """Take in one record."""
        match record:
            case records.Measuring():
                filled = bar(record.done / record.total, BAR).replace(" ", "·")
                self._show(f"{filled} {record.done}/{record.total} {record.detail}")
            case Swept():
                self._swept = record
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the figures; nothing where the measuring was broken off."""
        self._show("")
        if self._swept is None:
            self._say("cancelled: nothing was measured to the end\n")
            return
        self._out.write(json.dumps(as_object(self._swept)) + "\n" if self._json else tables(self._swept))
        self._out.flush()
        self._say("".join(f"note        {visible(note)}\n" for note in (*self._notes, *self._swept.notes)))


def as_object(swept: Swept) -> dict[str, object]:
    """All that was measured, every single value and the medians, as JSON can hold it."""
    points = [
        {
            "sweep": point.sweep,
            "at": point.at,
            "figures": [
                {"name": each.name, "unit": each.unit, "median": each.median, "values": list(each.values)}
                for each in point.figures
            ],
        }
        for point in swept.points
    ]
    return {**asdict(swept), "how": dict(swept.how), "points": points}


# ---- tables -----------------------------------------------------------------------------------


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
        f"{swept.model}: {swept.family}, {weights}, on {machine.backend}",
        f"{machine.processor}, {machine.cores} cores{memory}, {machine.system}",
        f"mlx {machine.mlx}, mlx-lm {machine.mlx_lm}, Python {machine.python}; medians of {swept.rounds} rounds "
        "(least to most)",
    ]


def _table(name: SweepName, points: Sequence[SweepPoint]) -> list[str]:
    """One line a point: where it is, a bar of its first figure, and all figures with their spread."""
    if name == "inspection":
        return [f"  {each.name:<16}{_cell(each)}" for point in points for each in point.figures]
    top = max(point.figures[0].median for point in points)
    names = [figure.name for figure in points[0].figures]
    rows = [[f"{point.at:,}", *map(_cell, point.figures)] for point in points]
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
    told = UNITS[figure.unit]
    least, most = told(min(figure.values)), told(max(figure.values))
    if least == most:
        return ""
    alike = least.split(" ")[1:] == most.split(" ")[1:] == told(figure.median).split(" ")[1:]
    return f" ({_bare(least)}-{_bare(most)})" if alike else f" ({least}-{most})"


def _bare(text: str) -> str:
    """The number without its unit."""
    return text.split(" ")[0]
