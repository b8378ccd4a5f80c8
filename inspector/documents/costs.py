"""The costs of a step: its parts, its layers, the roofline, and the KV cache at fewer bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from rich.segment import Segment

from engine.protocol import KVCompared, KVCost, Profiled, Role, RooflineMeasured, Work
from inspector.blocks.blocks import (
    GAP,
    Bar,
    Block,
    Column,
    Drawn,
    Fact,
    Facts,
    Table,
    TableRow,
    Text,
    number,
    sentence,
)
from inspector.blocks.paint import Painter
from inspector.display import visible
from inspector.scales import amount, count, milliseconds, percent, size
from inspector.widgets.charts import axis, curves
from inspector.widgets.rows import Row

ROLES: tuple[Role, ...] = (
    "embedding", "norm", "attention", "recurrence", "mlp", "residual", "head", "sampling", "detokenizing", "other",
)  # fmt: skip
NAMES: dict[str, str] = {
    "norm": "norms", "mlp": "MLP", "residual": "residual sums", "recurrence": "recurrence or convolution",
}  # fmt: skip
NEAR = 0.5
"""The share of the roof from which the roof is said to limit a forward pass."""
CACHED = "what it reads stays in the processor's caches, or other programs slowed that measurement"
BARS = Column(cells=(4, 999), priority=2)


def document(record: Profiled | RooflineMeasured | KVCompared) -> Iterator[Block]:
    """A whole measurement, for a page or a terminal."""
    match record:
        case Profiled():
            yield sentence(f"One step after {count(record.tokens)} tokens")
            yield from (*parts(record), GAP, *layers(record))
        case RooflineMeasured():
            yield sentence(f"Roofline, {amount(record.active_parameters)} parameters in a token")
            yield from roof(record, in_full=True)
        case KVCompared():
            yield sentence(f"KV cache of {count(record.tokens)} tokens")
            yield from fewer_bits(record)


# ---- the parts of a step, and its layers --------------------------------------------------------


def by_role(profiled: Profiled) -> list[tuple[str, float]]:
    """Milliseconds of each role, in the order of a step; unknown parts by their own path, the rest last."""
    rows = []
    for role in ROLES[:-1]:
        own = [part.ms for part in profiled.parts if part.role == role]
        if own:
            rows.append((NAMES.get(role, role), sum(own)))
    rows += [(part.name, part.ms) for part in profiled.parts if part.role == "other"]
    return [*rows, ("other", profiled.other_ms)]


def parts(profiled: Profiled, roofline: RooflineMeasured | None = None) -> Iterator[Block]:
    """The parts of a step by role, the bytes that it read, and the roofline if there is room."""
    added = profiled.fenced_ms / profiled.unfenced_ms - 1 if profiled.unfenced_ms else 0.0
    whole = (
        Text("whole step ", "muted"), Text(milliseconds(profiled.unfenced_ms), "strong"),
        Text("   part by part ", "muted"), Text(milliseconds(profiled.fenced_ms), "strong"),
    )  # fmt: skip
    made = Text(f"measuring adds {added:.0%}".replace("%", " %") if added > 0 else "", "muted")
    yield sentence((*whole, "   ", made), (*whole, "\n", made))
    yield GAP
    rows = [
        TableRow((visible(name), f"{ms:.3f} ms", percent(ms / profiled.fenced_ms), Bar(ms)))
        for name, ms in by_role(profiled)
    ]
    yield Table((Column(), number("", tone="strong"), number("", tone="muted"), BARS), rows, whole=True)
    yield Facts((*_reading(roofline), ("how", profiled.how)))
    if roofline is not None:
        yield Drawn(partial(_roof, roofline), (8, 14), priority=1)


def _reading(roofline: RooflineMeasured | None) -> Iterator[Fact]:
    if roofline is None:
        return
    work = roofline.decode
    alone = f"the forward pass alone, best of its repeats: {milliseconds(work.ms)}"
    speed = f"{work.gbs:.3g} GB/s of the {roofline.bandwidth_gbs:.3g} that memory gives"
    if work.gbs > roofline.bandwidth_gbs:
        speed = f"{work.gbs:.3g} GB/s, more than memory gives ({roofline.bandwidth_gbs:.3g}): {CACHED}"
    yield "reads", f"{_read(work)} ({alone}): {speed}"
    rates = f"{work.gflops:.3g} of {roofline.matmul_gflops:.3g} GFLOP/s"
    yield "computes", f"{amount(work.flops)} operations: {rates}"
    yield from (("note", note) for note in roofline.notes)


def layers(profiled: Profiled) -> Iterator[Block]:
    """A row for each layer: the time of its parts by role, and their sum."""
    own = [part for part in profiled.parts if part.layer is not None]
    roles = [role for role in ROLES if any(part.role == role for part in own)]
    if not own:
        yield sentence("The layers of this model are not known by name.", tone="muted")
        return
    rows = []
    for layer in sorted({part.layer for part in own if part.layer is not None}):
        times = [sum(part.ms for part in own if (part.layer, part.role) == (layer, role)) for role in roles]
        cells = (f"{ms:.3f}" if ms else "·" for ms in times)
        rows.append(TableRow((str(layer + 1), *cells, f"{sum(times):.3f}", Bar(sum(times)))))
    names = (number(NAMES.get(role, role).split(" ")[0]) for role in roles)
    yield Table(
        (number("layer", tone="muted"), *names, number("together", tone="strong"), BARS), rows, whole=True
    )
    outside = ", ".join(f"{part.name} {part.ms:.3f} ms" for part in profiled.parts if part.layer is None)
    note = "ms, measured one by one, without the parts inside each part. Outside the layers: "
    yield Facts((("", note + outside),))


# ---- the roofline -------------------------------------------------------------------------------


def works(roofline: RooflineMeasured) -> list[tuple[str, Work]]:
    """The measured forward passes by name."""
    return [("decode", roofline.decode), *([("prefill", roofline.prefill)] if roofline.prefill else [])]


def roof(roofline: RooflineMeasured, in_full: bool = False) -> Iterator[Block]:
    """The machine's limits as a roof, and prefill and decode below it; in full with the bytes that they read."""
    yield Drawn(partial(_roof, roofline), (7, 13))
    facts = [
        *((name, _limited(work, roofline, in_full)) for name, work in works(roofline)),
        *(("note", note) for note in roofline.notes),
        ("memory", f"{roofline.bandwidth_gbs:.3g} GB/s: {roofline.bandwidth_how}"),
        ("matmul", f"{roofline.matmul_gflops:.3g} GFLOP/s: {roofline.matmul_how}"),
        ("ridge", f"{roofline.ridge:.3g} operations a byte: below it memory is the limit, above it arithmetic"),
        ("how", roofline.how),
    ]  # fmt: skip
    yield Facts(tuple(facts))


def _limited(work: Work, roofline: RooflineMeasured, in_full: bool) -> str:
    """The speed of a forward pass and its limit; the limit is known only near the roof."""
    tokens = f"{count(work.tokens)} token{'s' if work.tokens > 1 else ''} in {milliseconds(work.ms)}"
    rates = f"{work.intensity:.3g} operations a byte, {work.gflops:.3g} GFLOP/s"
    side = "memory" if work.intensity < roofline.ridge else "arithmetic"
    limit = f"under the roof of {side}, limited by neither: most of its time goes elsewhere"
    if roofline.share(work) >= NEAR:
        limit = f"limited by {side}"
    share = f"{100 * roofline.share(work):.0f} % of the roof, {limit}"
    if roofline.share(work) > 1:
        share = f"{roofline.share(work):.1f} times the roof: {CACHED}"
    read = f"; {_read(work)} at {work.gbs:.3g} GB/s, {amount(work.flops)} operations" if in_full else ""
    return f"{tokens} (median {milliseconds(work.median_ms)}): {rates}, {share}{read}"


def _read(work: Work) -> str:
    return f"{size(work.weight_bytes)} of weights and {size(work.kv_bytes)} of KV"


def _roof(roofline: RooflineMeasured, painter: Painter, width: int, height: int) -> list[Row]:
    """Both axes are logarithmic: operations a byte to the right, operations a second upwards."""
    on, label, rows = painter.on, 14, max(5, height - 1)
    room = max(16, width - label)
    left, right = _span([roofline.ridge, *(work.intensity for _, work in works(roofline))])
    low, high = _span(
        [roofline.matmul_gflops, *(work.gflops for _, work in works(roofline)), roofline.roof(10**left)]
    )
    line = [
        math.log10(max(1e-12, roofline.roof(10 ** (left + (right - left) * n / (2 * room - 1))))) - low
        for n in range(2 * room)
    ]
    drawn = curves([line], room, rows, high - low)
    grid = [[Segment(cell.char, on.ink("muted")) for cell in row] for row in drawn]
    for name, work in works(roofline):
        x = round((math.log10(work.intensity) - left) / (right - left) * (room - 1))
        y = rows - 1 - round((math.log10(max(1e-12, work.gflops)) - low) / (high - low) * (rows - 1))
        for at, char in enumerate(f"● {name}", start=max(0, min(x, room - len(name) - 2))):
            grid[max(0, min(rows - 1, y))][at] = Segment(char, on.ink("accent"))
    marks = {0: f"{10**high:.3g} GFLOP/s", rows - 1: f"{10**low:.3g}"}
    for n, row in enumerate(grid):
        row.insert(0, Segment(f"{marks.get(n, ''):>{label - 1}} ", on.ink("faint")))
    foot = axis(f"{10**left:.3g}", f"{10**right:.3g}", room, "operations for each byte read")
    return [*grid, [Segment(" " * label + foot, on.ink("faint"))]]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten between which values lie, with some room on both sides."""
    logs = [math.log10(max(1e-12, value)) for value in values]
    return min(logs) - 0.5, max(logs) + 0.3


# ---- quantized KV -------------------------------------------------------------------------------

COLUMNS = (
    number(""), number("group", 1), number("bytes", tone="strong"), number("by formula", 3, short="formula"),
    number("allocated", 1), number("largest change", short="largest"), number("mean"),
    Column("top token", short="top"), Column(cells=(6, 999), priority=2),
)  # fmt: skip


def fewer_bits(compared: KVCompared) -> Iterator[Block]:
    """One sequence in caches of several precisions."""
    measured = [cost for cost in compared.costs if not cost.refused]
    yield Table(COLUMNS, [*map(_cost, measured)], whole=True)
    refused = [(f"{cost.bits} bits", cost.refused) for cost in compared.costs if cost.refused]
    notes = [("note", note) for note in sorted({cost.note for cost in measured if cost.note})]
    change = f"of the logits after {count(compared.tokens)} tokens, absolute, against the model's own type"
    facts = [*refused, *notes, ("change", change)]
    yield Facts((*facts, ("formula", compared.formula)))


def _cost(cost: KVCost) -> TableRow:
    figures = size(cost.used_bytes), size(cost.formula_bytes), size(cost.allocated_bytes)
    if cost.group_size is None:
        return TableRow((f"{cost.bits} bits", "·", *figures, "·", "·", "·", Bar(cost.used_bytes)))
    changes = f"{cost.largest_change:.3g}", f"{cost.mean_change:.3g}"
    same = "the same" if cost.same_top else "different"
    cells = (f"{cost.bits} bits", str(cost.group_size), *figures, *changes, same, Bar(cost.used_bytes))
    return TableRow(cells, "" if cost.same_top else "warn")
