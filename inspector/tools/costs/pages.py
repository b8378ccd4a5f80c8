"""What a step costs, a page each: its parts, its layers, the roofline, and quantized KV. Rows from records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import KVCompared, KVCost, Profiled, RooflineMeasured, Work
from inspector.display import pad, visible
from inspector.scales import amount, count, milliseconds, size
from inspector.tools.costs.tables import NAMES, ROLES, by_role, works
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.charts import bar
from inspector.widgets.curves import curves
from inspector.widgets.fact_table import fact_rows

Fact = tuple[str, str]
_READABLE = 104
"""Cells of a line of sentences at most."""
NEAR = 0.5
"""Share of the roof from which on it is what limits a forward."""
_LEAST_ROOF = 6
_FIGURES = 22
"""Cells of milliseconds and share next to a bar."""


def facts_of(on: Canvas, facts: Sequence[Fact], width: int) -> list[Row]:
    """Facts in the page's inks, with a blank line before them."""
    text = min(width, _READABLE)
    return [[], *fact_rows(facts, text, on.ink("muted"), on.rich_style)] if facts else []


# ---- the parts of a step ----------------------------------------------------------------------


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
    facts = facts_of(on, [*_reading(roofline), ("how", profiled.how)], width)
    page = [*_against(on, profiled), [], *rows, *facts]
    room = min(12, height - len(page) - 2)
    return [*page, [], *_roof(on, roofline, width, room)] if roofline and room >= _LEAST_ROOF else page


def _against(on: Canvas, profiled: Profiled) -> list[Row]:
    """The whole step with fences, set against the same one without."""
    muted, strong = on.ink("muted"), on.ink("strong")
    times = profiled.fenced_ms / profiled.unfenced_ms if profiled.unfenced_ms else 0.0
    return [
        [
            Segment("whole step: fenced ", muted), Segment(milliseconds(profiled.fenced_ms), strong),
            Segment("   unfenced ", muted), Segment(milliseconds(profiled.unfenced_ms), strong),
            Segment(f"   fences make it {times:.2f} times as long", muted),
        ]
    ]  # fmt: skip


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
    numbers = sorted({part.layer for part in profiled.parts if part.layer is not None})
    roles = [role for role in ROLES if any(p.role == role and p.layer is not None for p in profiled.parts)]
    if not numbers:
        return [[Segment("The layers of this model are not known by name.", on.ink("muted"))]]
    names = [NAMES.get(role, role).split(" ")[0] for role in roles]
    table = [
        [sum(p.ms for p in profiled.parts if p.layer == layer and p.role == role) for role in roles]
        for layer in numbers
    ]
    top, room = max(map(sum, table)), max(4, width - 6 - 11 * (len(roles) + 1) - 1)
    head = "layer " + "".join(f"{name:>11}" for name in (*names, "together"))
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for layer, values in zip(numbers, table, strict=True):
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
    return [*rows, *facts_of(on, [("", note + around)], width)]


# ---- the roofline -----------------------------------------------------------------------------


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
    return [*_roof(on, roofline, width, rows), *facts_of(on, facts, width)]


def _work_fact(name: str, work: Work, roofline: RooflineMeasured) -> Fact:
    tokens = f"{count(work.tokens)} token{'s' if work.tokens > 1 else ''} in {milliseconds(work.ms)}"
    spread = f"median {milliseconds(work.median_ms)}"
    rates = f"{work.intensity:.3g} operations a byte, {work.gflops:.3g} GFLOP/s"
    return (
        name,
        f"{tokens} ({spread}): {rates}, {roofline.share(work):.0%} of the roof, {_limit(work, roofline)}",
    )


def _limit(work: Work, roofline: RooflineMeasured) -> str:
    """What holds a forward up, as far as the roof tells: near to it the side of the roof that it is under."""
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


# ---- quantized KV -----------------------------------------------------------------------------


def bits_page(on: Canvas, compared: KVCompared, width: int) -> list[Row]:
    """The same sequence in caches of several precisions."""
    measured = [cost for cost in compared.costs if not cost.refused]
    top = max((cost.used_bytes for cost in measured), default=0)
    head = f"{'':9}{'bytes':>11}{'by formula':>13}{'largest change':>17}{'mean':>9}  top token"
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    rows += [_cost(on, cost, top, max(0, width - len(head) - 4)) for cost in measured]
    refused = [(f"{cost.bits} bits", cost.refused) for cost in compared.costs if cost.refused]
    notes = [("note", note) for note in sorted({cost.note for cost in measured if cost.note})]
    change = "of the logits after the path, absolute, against the model's own type"
    facts = [*refused, *notes, ("path", f"{count(compared.tokens)} tokens"), ("change", change)]
    return [*rows, *facts_of(on, [*facts, ("formula", compared.formula)], width)]


def _cost(on: Canvas, cost: KVCost, top: int, room: int) -> Row:
    own = cost.group_size is None
    changes = ("·", "·") if own else (f"{cost.largest_change:.3g}", f"{cost.mean_change:.3g}")
    same = "·" if own else "the same" if cost.same_top else "another"
    figures = f"{size(cost.formula_bytes):>13}{changes[0]:>17}{changes[1]:>9}  {same:<9}"
    return [
        Segment(f"{cost.bits:>3} bits ", on.rich_style), Segment(f"{size(cost.used_bytes):>11}", on.ink("strong")),
        Segment(figures, on.ink("warn") if not own and not cost.same_top else on.rich_style),
        Segment(f"  {bar(cost.used_bytes / top if top else 0.0, room)}" if room >= 6 else "", on.data(0.45)),
    ]  # fmt: skip
