"""The screen of what one step costs, a page each: its parts, its layers, the roofline, and quantized KV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult
from textual.content import Content

from engine import protocol
from engine.protocol import (
    CompareKV,
    KVCompared,
    KVCost,
    Measure,
    MeasureRoofline,
    Profile,
    Profiled,
    RooflineMeasured,
    Work,
)
from inspector.display import pad, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import amount, count, milliseconds, size
from inspector.tools.costs.control import BITS, COST_SCREEN, LAYERS, PARTS, CostControl
from inspector.tools.costs.tables import by_layer, by_role, works
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, PageView, Row, centred, fact_rows
from inspector.widgets.charts import bar, curves

PAGES = ("Parts of a step", "Layers", "Roofline", "KV cache at fewer bits")
SHORT = ("Parts", "Layers", "Roofline", "Bits")
NEEDS: tuple[tuple[type[Measure], ...], ...] = (
    (Profile, MeasureRoofline),
    (Profile,),
    (MeasureRoofline,),
    (CompareKV,),
)
"""The measurements of each page; it can't be drawn without the first."""
BAR = 16


class ProfileScreen(ToolScreen[None]):
    """Measures the step to come, on copies: the session stays as it is.

    Args:
        host: The main screen.
        control: Asks the engine and keeps what was measured.
        page: The one to begin with.
    """

    TOOL: ClassVar[str] = "costs"
    ACTIONS: ClassVar[ActionTable] = COST_SCREEN
    MEASURES: ClassVar[str] = "A profile"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (
        protocol.Profiled,
        protocol.RooflineMeasured,
        protocol.KVCompared,
    )
    AUTO_FOCUS = "#cost-view"

    view = getters.query_one("#cost-view", PageView)

    def __init__(self, host: Host, control: CostControl, page: int = PARTS) -> None:
        super().__init__(host, control.job)
        self.control = control
        self._turn_to(page)

    def body(self) -> ComposeResult:
        yield PageView(id="cost-view")

    def on_mount(self) -> None:
        """Ask for what the page needs."""
        self.control.enter()
        self.control.want(*NEEDS[self.page])

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.view.put(PAGES[self.page], self._draw)
        self.write(self._tabs(), self._failure is not None)

    def _tabs(self) -> Content:
        """The pages, the present one reversed."""
        names = PAGES if self.area.width >= 72 else SHORT
        parts = [
            Content.styled(f" {name} ", "reverse bold" if n == self.page else "")
            for n, name in enumerate(names)
        ]
        return Content(" ").join(parts)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        control = self.control
        match self.page:
            case 0 if control.profiled is not None:
                return parts_page(on, control.profiled, control.roofline, width, height)
            case 1 if control.profiled is not None:
                return layers_page(on, control.profiled, width)
            case 2 if control.roofline is not None:
                return roofline_page(on, control.roofline, width, height)
            case 3 if control.compared is not None:
                return bits_page(on, control.compared, width)
        return self._empty(on, width, height)

    def _empty(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The reason why there is nothing yet."""
        failure = self._failure
        if self.recorded:
            texts = [("Not recorded up to here.", on.rich_style), (f"{self.needs_model}.", on.ink("muted"))]
        elif failure is not None:
            texts = [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        elif self.control.job.running:
            texts = [("Being measured, on a copy of the KV cache.", on.rich_style)]
        else:
            texts = [
                ("Nothing was measured.", on.rich_style),
                (f"Press {key_for('costs.again')} to measure.", on.ink("muted")),
            ]
        return centred(texts, width, height)

    @property
    def _failure(self) -> protocol.Failure | None:
        return self.control.job.failures.get(NEEDS[self.page][0].kind)

    def situation(self) -> str:
        """The state of the measurements."""
        control, again = self.control, f"Press {key_for('costs.again')} to measure again"
        if self.recorded:
            return self._recorded()
        if control.job.running:
            now = control.job.progress
            if now is None:
                return "Getting ready"
            filled = bar(now.done / now.total if now.total else 0.0, BAR).replace(" ", "·")
            return f"{filled} {visible(now.detail)} {now.done}/{now.total}"
        if self._failure is not None:
            return visible(self._failure.message)
        if self.page in (PARTS, LAYERS) and control.profiled is not None:
            done = control.profiled
            return f"The step after {done.tokens:,} tokens, {done.repeats} times. {again}"
        return again

    def _recorded(self) -> str:
        """After how many tokens what is shown was measured."""
        control = self.control
        found = (control.profiled, control.profiled, control.roofline, control.compared)[self.page]
        if found is None:
            return self.needs_model
        tokens = found.decode.context - 1 if isinstance(found, protocol.RooflineMeasured) else found.tokens
        return f"Recorded after {tokens:,} tokens. {self.needs_model}"

    # ---- keys -------------------------------------------------------------------------------

    def turn(self, by: int) -> None:
        """Show a neighbouring page."""
        self.show_page((self.page + by) % len(PAGES))

    def _turn_to(self, page: int) -> None:
        self.page = page
        self.opener = "compare_kv" if page == BITS else "profile"  # fewer bits are an answer of their own

    def show_page(self, page: int) -> None:
        """Show a page, and ask for what it needs."""
        self._turn_to(page)
        self.control.want(*NEEDS[page])

    def measure_again(self) -> None:
        """Measure again, or stop."""
        if not self.control.job.stop():
            self.control.again(*NEEDS[self.page])


Fact = tuple[str, str]
_READABLE = 104
"""Cells of a line of sentences at most."""


def _facts(on: Canvas, facts: Sequence[Fact], width: int) -> list[Row]:
    """Facts in the page's inks, with a blank line before them."""
    text = min(width, _READABLE)
    return [[], *fact_rows(facts, text, on.ink("muted"), on.rich_style)] if facts else []


# ---- the parts of a step, and its layers --------------------------------------------------------

_FIGURES = 22
"""Cells of milliseconds and share next to a bar."""
_LEAST_ROOF = 6


def parts_page(
    on: Canvas, profiled: Profiled, roofline: RooflineMeasured | None, width: int, height: int
) -> list[Row]:
    """The parts of a step by what they do, what it read, and with room the roofline.

    Args:
        on: Knows the inks.
        profiled: The step.
        roofline: What it read and the machine's limits, None while that isn't known.
        width: Cells.
        height: Lines that are seen at once.
    """
    roles = by_role(profiled)
    top, muted = max(value for _, value in roles), on.ink("muted")
    wide = min(max(cell_len(visible(name)) for name, _ in roles), max(12, width // 3))
    room = max(4, width - wide - _FIGURES)
    rows: list[Row] = [
        [
            Segment(pad(visible(name), wide), on.rich_style), Segment(f"{value:9.3f} ms", on.ink("strong")),
            Segment(f"{value / profiled.fenced_ms:7.1%}  ", muted), Segment(bar(value / top, room), on.data(0.45)),
        ]
        for name, value in roles
    ]  # fmt: skip
    facts = _facts(on, [*_reading(roofline), ("how", profiled.how)], width)
    page = [*_against(on, profiled, width), [], *rows, *facts]
    room = min(12, height - len(page) - 2)
    return [*page, [], *_roof(on, roofline, width, room)] if roofline and room >= _LEAST_ROOF else page


def _against(on: Canvas, profiled: Profiled, width: int) -> list[Row]:
    """The whole step with fences, set against the same one without."""
    muted, strong = on.ink("muted"), on.ink("strong")
    times = profiled.fenced_ms / profiled.unfenced_ms if profiled.unfenced_ms else 0.0
    whole = [
        Segment("whole step: fenced ", muted), Segment(milliseconds(profiled.fenced_ms), strong),
        Segment("   unfenced ", muted), Segment(milliseconds(profiled.unfenced_ms), strong),
    ]  # fmt: skip
    made = f"fences make it {times:.2f} times as long"
    if sum(part.cell_length for part in whole) + len(made) + 3 <= width:
        return [[*whole, Segment(f"   {made}", muted)]]
    return [whole, [Segment(made, muted)]]


def _reading(roofline: RooflineMeasured | None) -> Iterator[Fact]:
    if roofline is None:
        return
    work = roofline.decode
    read = f"{size(work.weight_bytes)} of weights and {size(work.kv_bytes)} of KV"
    alone = f"the forward alone, best of its repeats: {milliseconds(work.ms)}"
    yield "reads", f"{read} ({alone}): {work.gbs:.3g} GB/s of the machine's {roofline.bandwidth_gbs:.3g}"
    yield (
        "computes",
        f"{amount(work.flops)} operations: {work.gflops:.3g} of {roofline.matmul_gflops:.3g} GFLOP/s",
    )
    yield from (("note", note) for note in roofline.notes)


def layers_page(on: Canvas, profiled: Profiled, width: int) -> list[Row]:
    """One line a layer: its parts by role, and all of it as a bar."""
    names, layers = by_layer(profiled)
    if not layers:
        return [[Segment("The layers of this model are not known by name.", on.ink("muted"))]]
    top, room = max(map(sum, layers.values())), max(4, width - 6 - 11 * (len(names) + 1) - 1)
    head = "layer " + "".join(f"{name:>11}" for name in (*names, "together"))
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for layer, values in layers.items():
        cells = "".join(f"{f'{value:.3f}' if value else '·':>11}" for value in values)
        rows.append(
            [
                Segment(f"{layer + 1:>5} ", on.ink("muted")), Segment(cells, on.rich_style),
                Segment(f"{sum(values):>11.3f} ", on.ink("strong")),
                Segment(bar(sum(values) / top if top else 0.0, room), on.data(0.45)),
            ]
        )  # fmt: skip
    outside = [(p.name, f"{p.ms:.3f} ms") for p in profiled.parts if p.layer is None]
    note = "ms, fenced, without the parts inside each part. Outside the layers: "
    around = ", ".join(f"{name} {value}" for name, value in outside)
    return [*rows, *_facts(on, [("", note + around)], width)]


# ---- the roofline -------------------------------------------------------------------------------

NEAR = 0.5
"""Share of the roof from which on it is what limits a forward."""


def roofline_page(on: Canvas, roofline: RooflineMeasured, width: int, height: int) -> list[Row]:
    """The machine's limits as a roof, and where prefill and decode are under it."""
    rows = max(5, min(12, height - 14))
    facts = [
        *(_work_fact(name, work, roofline) for name, work in works(roofline)),
        ("memory", f"{roofline.bandwidth_gbs:.3g} GB/s: {roofline.bandwidth_how}"),
        ("matmul", f"{roofline.matmul_gflops:.3g} GFLOP/s: {roofline.matmul_how}"),
        ("ridge", f"{roofline.ridge:.3g} operations a byte: below it memory is the limit, above it arithmetic"),
        *(("note", note) for note in roofline.notes), ("how", roofline.how),
    ]  # fmt: skip
    return [*_roof(on, roofline, width, rows), *_facts(on, facts, width)]


def _work_fact(name: str, work: Work, roofline: RooflineMeasured) -> Fact:
    tokens = f"{count(work.tokens)} token{'s' if work.tokens > 1 else ''} in {milliseconds(work.ms)}"
    spread = f"median {milliseconds(work.median_ms)}"
    rates = f"{work.intensity:.3g} operations a byte, {work.gflops:.3g} GFLOP/s"
    return (
        name,
        f"{tokens} ({spread}): {rates}, {roofline.share(work):.0%} of the roof, {_limit(work, roofline)}",
    )


def _limit(work: Work, roofline: RooflineMeasured) -> str:
    """The limit of a forward, as far as the roof shows it: near to it the side of the roof that it is under."""
    if roofline.share(work) > 1:
        return "above it: what it reads stays in the processor's caches"
    side = "memory" if work.intensity < roofline.ridge else "arithmetic"
    if roofline.share(work) >= NEAR:
        return f"limited by {side}"
    return f"under the roof of {side}, limited by neither: most of its time goes elsewhere"


def _roof(on: Canvas, roofline: RooflineMeasured, width: int, rows: int) -> list[Row]:
    """Both axes logarithmic: operations a byte to the right, operations a second upwards."""
    label = 14
    room = max(16, width - label)
    left, right = _span([roofline.ridge, *(work.intensity for _, work in works(roofline))])
    low, high = _span(
        [roofline.matmul_gflops, *(work.gflops for _, work in works(roofline)), roofline.roof(10**left)]
    )
    line = [
        math.log10(max(1e-12, roofline.roof(10 ** (left + (right - left) * n / (2 * room - 1))))) - low
        for n in range(2 * room)
    ]
    grid = [[cell.char for cell in row] for row in curves([line], room, rows, high - low)]
    inks = [[on.ink("muted")] * room for _ in range(rows)]
    for name, work in works(roofline):
        x = round((math.log10(work.intensity) - left) / (right - left) * (room - 1))
        y = rows - 1 - round((math.log10(max(1e-12, work.gflops)) - low) / (high - low) * (rows - 1))
        for at, char in enumerate(f"● {name}", start=max(0, min(x, room - len(name) - 2))):
            grid[max(0, min(rows - 1, y))][at], inks[max(0, min(rows - 1, y))][at] = char, on.ink("accent")
    marks = {0: f"{10**high:.3g} GFLOP/s", rows - 1: f"{10**low:.3g}"}
    drawn = [
        [Segment(f"{marks.get(n, ''):>{label - 1}} ", on.ink("faint")),
         *(Segment(char, ink) for char, ink in zip(grid[n], inks[n], strict=True))]
        for n in range(rows)
    ]  # fmt: skip
    first, last = f"{10**left:.3g}", f"{10**right:.3g}"
    foot = f"{first}{'operations for each byte read':^{max(0, room - len(first) - len(last))}}{last}"
    return [*drawn, [Segment(" " * label + foot, on.ink("faint"))]]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten between which values lie, with some room on both sides."""
    logs = [math.log10(max(1e-12, value)) for value in values]
    return min(logs) - 0.5, max(logs) + 0.3


# ---- quantized KV -------------------------------------------------------------------------------


def bits_page(on: Canvas, compared: KVCompared, width: int) -> list[Row]:
    """The table of one sequence in caches of several precisions."""
    measured = [cost for cost in compared.costs if not cost.refused]
    top = max((cost.used_bytes for cost in measured), default=0)
    long = f"{'':9}{'bytes':>11}{'by formula':>13}{'largest change':>17}{'mean':>9}  top token"
    short = f"{'':9}{'bytes':>8}{'formula':>9}{'largest':>9}{'mean':>9}  top"
    least = f"{'':9}{'bytes':>8}{'largest':>9}{'mean':>9}  top"
    forms = (long, (11, 13, 17)), (short, (8, 9, 9)), (least, (8, 0, 9))
    head, cells = next((form for form in forms if len(form[0]) + len(" same") <= width), forms[-1])
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    rows += [_cost(on, cost, cells, top, max(0, width - len(head) - 4)) for cost in measured]
    refused = [(f"{cost.bits} bits", cost.refused) for cost in compared.costs if cost.refused]
    notes = [("note", note) for note in sorted({cost.note for cost in measured if cost.note})]
    change = "of the logits after the path, absolute, against the model's own type"
    facts = [*refused, *notes, ("path", f"{count(compared.tokens)} tokens"), ("change", change)]
    return [*rows, *_facts(on, [*facts, ("formula", compared.formula)], width)]


def _cost(on: Canvas, cost: KVCost, cells: tuple[int, int, int], top: int, room: int) -> Row:
    own = cost.group_size is None
    changes = ("·", "·") if own else (f"{cost.largest_change:.3g}", f"{cost.mean_change:.3g}")
    same = "·" if own else "the same" if cost.same_top else "another"
    used, formula, largest = cells
    told = size(cost.formula_bytes) if formula else ""
    figures = f"{told:>{formula}}{changes[0]:>{largest}}{changes[1]:>9}  {same:<9}"
    return [
        Segment(f"{cost.bits:>3} bits ", on.rich_style), Segment(f"{size(cost.used_bytes):>{used}}", on.ink("strong")),
        Segment(figures, on.ink("warn") if not own and not cost.same_top else on.rich_style),
        Segment(f"  {bar(cost.used_bytes / top if top else 0.0, room)}" if room >= 6 else "", on.data(0.45)),
    ]  # fmt: skip
