"""The costs of a step, in words and as tables of characters: for the command line, and in part for the pages."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import KVCompared, KVCost, Profiled, Role, RooflineMeasured, Work
from inspector.scales import amount, ms, size
from inspector.widgets.charts import bar

BAR = 24
ROLES: tuple[Role, ...] = (
    "embedding", "norm", "attention", "recurrence", "mlp", "residual", "head", "sampling", "detokenizing", "other",
)  # fmt: skip
NAMES: dict[str, str] = {
    "norm": "norms", "mlp": "MLP", "residual": "residual sums", "recurrence": "recurrence or convolution",
}  # fmt: skip


def by_role(profiled: Profiled) -> list[tuple[str, float]]:
    """Milliseconds of each role, in the order of a step; parts that are not known by their own path, the rest last."""
    rows = []
    for role in ROLES[:-1]:
        own = [part.ms for part in profiled.parts if part.role == role]
        if own:
            rows.append((NAMES.get(role, role), sum(own)))
    rows += [(part.name, part.ms) for part in profiled.parts if part.role == "other"]
    return [*rows, ("other", profiled.other_ms)]


def profile_table(profiled: Profiled) -> list[str]:
    """The time of each kind of part, then of each layer."""
    roles, total = by_role(profiled), profiled.fenced_ms
    wide = max(len(name) for name, _ in roles)
    without = f"One step after {profiled.tokens} tokens: {ms(profiled.unfenced_ms)} ms"
    rows = [
        f"  {name:<{wide}}  {value:8.3f} ms  {value / total:6.1%}  {bar(value / total, BAR)}".rstrip()
        for name, value in roles
    ]
    return [f"{without}; {ms(total)} ms with fences", *rows, *_layers(profiled)]


def by_layer(profiled: Profiled) -> tuple[list[str], dict[int, list[float]]]:
    """The names of the roles that layers have, and for each layer, from 0, the milliseconds of each of them."""
    own = [part for part in profiled.parts if part.layer is not None]
    roles = [role for role in ROLES if any(part.role == role for part in own)]
    return [NAMES.get(role, role).split(" ")[0] for role in roles], {
        layer: [sum(part.ms for part in own if part.layer == layer and part.role == role) for role in roles]
        for layer in sorted({part.layer for part in own if part.layer is not None})
    }


def _layers(profiled: Profiled) -> list[str]:
    """One line a layer: its parts by role."""
    names, layers = by_layer(profiled)
    if not layers:
        return []
    rows = [("layer", *names, "together")]
    for layer, own in layers.items():
        rows.append((str(layer + 1), *(f"{value:.3f}" if value else "·" for value in own), f"{sum(own):.3f}"))
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  " + "  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def roofline_table(roofline: RooflineMeasured) -> list[str]:
    """Both forwards, and the machine's limits."""
    rows: list[tuple[str, ...]] = [
        ("", "tokens", "ms", "weights", "KV", "operations", "op/byte", "GB/s", "GFLOP/s", "of the roof")
    ]
    rows += [_work(name, work, roofline) for name, work in works(roofline)]
    machine = [
        f"  memory  {roofline.bandwidth_gbs:.3g} GB/s: {roofline.bandwidth_how}",
        f"  matmul  {roofline.matmul_gflops:.3g} GFLOP/s: {roofline.matmul_how}",
        f"  ridge   {roofline.ridge:.3g} operations a byte: below it memory is the limit, above it arithmetic",
    ]
    head = f"Roofline, {amount(roofline.active_parameters)} parameters in a token"
    return [head, *_aligned(rows), *machine, *(f"  note    {note}" for note in roofline.notes)]


def works(roofline: RooflineMeasured) -> list[tuple[str, Work]]:
    """Both forwards by name."""
    return [("decode", roofline.decode), *([("prefill", roofline.prefill)] if roofline.prefill else [])]


def _work(name: str, work: Work, roofline: RooflineMeasured) -> tuple[str, ...]:
    return (
        name, str(work.tokens), ms(work.ms), size(work.weight_bytes), size(work.kv_bytes), amount(work.flops),
        f"{work.intensity:.3g}", f"{work.gbs:.3g}", f"{work.gflops:.3g}", f"{roofline.share(work):.0%}",
    )  # fmt: skip


def kv_table(compared: KVCompared) -> list[str]:
    """Bytes and change of the logits at each precision, or why there is none."""
    head = (
        "bits", "group", "by formula", "measured", "allocated", "largest change", "mean change", "top token",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [head, *(_cost(cost) for cost in compared.costs if not cost.refused)]
    refused = [f"  {cost.bits} bits: {cost.refused}" for cost in compared.costs if cost.refused]
    notes = sorted({f"  {cost.note}" for cost in compared.costs if cost.note})
    return [f"KV cache of {compared.tokens} tokens", *_aligned(rows), *refused, *notes]


def _cost(cost: KVCost) -> tuple[str, ...]:
    group = str(cost.group_size) if cost.group_size else "·"
    change = (f"{cost.largest_change:.3g}", f"{cost.mean_change:.3g}") if cost.group_size else ("·", "·")
    same = "the same" if cost.same_top else "another"
    return (
        str(cost.bits), group, f"{cost.formula_bytes:,} B", f"{cost.used_bytes:,} B", size(cost.allocated_bytes),
        *change, same if cost.group_size else "·",
    )  # fmt: skip
