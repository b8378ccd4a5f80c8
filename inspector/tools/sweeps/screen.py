"""The screen of the sweeps: what speed and memory depend on, measured point by point, as tables with bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult
from textual.content import Content

from engine import protocol
from engine.protocol import Figure, SweepPoint, Swept
from engine.sweep_settings import SWEEPS, SweepName
from inspector.display import visible
from inspector.keys import key_for, names_of
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import amount, count, size, time_left
from inspector.tools.sweeps.control import NAMES, SHORT, SWEEP_SCREEN, SweepControl
from inspector.tools.sweeps.tables import BAR, PLACES, TITLES, UNITS, spread
from inspector.widgets.actions import ActionTable, pressing
from inspector.widgets.canvas import Canvas, PageView, Row, centred, fact_rows, wrapped
from inspector.widgets.charts import bar

_READABLE = 104
_LEAST_BAR, _MOST_BAR = 6, 40
_GAP = 2


# ---- the page -----------------------------------------------------------------------------------


def sweeps_page(on: Canvas, swept: Swept, width: int) -> list[Row]:
    """A table for each sweep, how each was taken, and the machine."""
    rows: list[Row] = []
    for name, how in swept.how:
        points = [point for point in swept.points if point.sweep == name]
        if points:
            titled = [[Segment(line, on.ink("primary"))] for line in wrapped(TITLES[name], width)]
            foot = fact_rows([("how", how)], min(width, _READABLE), on.ink("muted"), on.ink("muted"))
            rows += [*titled, *_table(on, name, points, width), *foot, []]
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


# ---- the screen ---------------------------------------------------------------------------------


class SweepScreen(ToolScreen[None]):
    """Measures the model; the session stays as it is.

    Args:
        host: The main screen.
        control: Knows the engine, and what came of the last sweeps.
    """

    TOOL: ClassVar[str] = "sweeps"
    ACTIONS: ClassVar[ActionTable] = SWEEP_SCREEN
    MEASURES: ClassVar[str] = "A sweep"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (protocol.Swept,)
    AUTO_FOCUS = "#sweep-view"

    view = getters.query_one("#sweep-view", PageView)

    def __init__(self, host: Host, control: SweepControl) -> None:
        super().__init__(host, control.job)
        self.control = control

    def body(self) -> ComposeResult:
        yield PageView(id="sweep-view")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.view.put("Sweeps", self._draw)
        self.write(self._selection())

    def _selection(self) -> Content:
        """The selected sweeps: each with its key and a mark, in words where there is room."""
        if self.recorded:
            swept = self.control.swept
            return Content(f"Sweeps · recorded · {visible(swept.model)}" if swept else "Sweeps · recorded")
        control, short, dense = self.control, self.area.width < 128, self.area.width < 76
        parts = [
            Content.styled(
                f"{key_for(f'sweeps.{name}')}{'' if dense else ' '}{mark} {SHORT[name] if short else NAMES[name]}",
                "bold" if mark == "◉" else "$ink-muted",
            ).stylize(pressing(names_of(f"sweeps.{name}")[0]))
            for name, mark in ((name, "◉" if name in control.chosen else "○") for name in SWEEPS)
        ]
        to = f"to {control.settings.longest:,}{'' if dense else ' tokens'}"
        gap = Content(" " if dense else "  ")
        whole = gap.join([*parts, Content(to)])
        return whole if whole.cell_length <= self.area.width - 2 else gap.join(parts)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        control = self.control
        if control.job.failure is not None and not self.recorded:
            failed = control.job.failure
            texts = [(visible(failed.message), on.ink("bad")), (visible(failed.hint), on.ink("muted"))]
            return centred(texts, width, height)
        if control.swept is not None:
            return sweeps_page(on, control.swept, width)
        if self.recorded:
            texts = [
                ("No sweep was recorded up to here.", on.rich_style),
                (f"{self.needs_model}.", on.ink("muted")),
            ]
            return centred(texts, width, height)
        return self._about(on, width, height)

    def _about(self, on: Canvas, width: int, height: int) -> list[Row]:
        """What can be measured, before anything was: a line a sweep, with its key and its short name."""
        lines = [f"{key_for(f'sweeps.{name}')}  {SHORT[name]:<10}  {NAMES[name]}" for name in SWEEPS]
        left = " " * max(0, (width - max(map(cell_len, lines))) // 2)
        head = centred(
            [("What speed and memory depend on, measured point by point.", on.rich_style)], width, height
        )
        rows: list[Row] = [*head, [], *([Segment(left), Segment(line, on.ink("muted"))] for line in lines)]
        return rows[:height]

    def situation(self) -> str:
        """The state of the measuring, and the keys that matter now."""
        control = self.control
        if self.recorded:
            more = ", more was measured" if control.swept is not None and not control.swept.last else ""
            return f"Recorded{more}. {self.needs_model}"
        if control.job.running:
            now = control.job.progress
            if now is None:
                return "Getting ready"
            filled = bar(now.done / now.total if now.total else 0.0, BAR).replace(" ", "·")
            return f"{filled} {now.done}/{now.total} {visible(now.detail)}{time_left(now.left_ms)}"
        if control.job.failure is not None:
            return visible(control.job.failure.message)
        partly = control.swept is not None and not control.swept.last
        stopped = "the figures are of the rounds until then" if partly else "nothing was measured to the end"
        stopped = f"Stopped: {stopped}. " if control.job.cancelled else ""
        return (
            f"{stopped}Press {key_for('sweeps.go')} to measure to {control.settings.longest:,} tokens; "
            f"{control.settings.rounds} rounds after a warm-up"
        )

    # ---- keys -------------------------------------------------------------------------------

    def turn(self, place: int) -> None:
        """Ask for a sweep, or no longer."""
        if not self.control.job.running:
            self.control.turn(place)

    def lengthen(self, by: int) -> None:
        """Go to longer or shorter prompts and contexts."""
        if not self.control.job.running:
            self.control.lengthen(by)
