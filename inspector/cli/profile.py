"""`inspector profile`: one step taken apart, the roofline and quantized KV, as tables or as JSON lines."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from engine import commands, records
from engine.records import KVCompared, KVCost, Profiled, RooflineMeasured, Work
from inspector.cli import arguments
from inspector.cli.arguments import Request
from inspector.cli.exit import concluded, output
from inspector.cli.generate import Writer
from inspector.cli.jsonl import JsonLines
from inspector.cli.plain import PlainText, figures
from inspector.cli.summary import Summary
from inspector.display import visible
from inspector.scales import amount, ms, size
from inspector.widgets.charts import bar

BAR = 24
FIGURES = ("model",)
ROLES: tuple[records.Role, ...] = (
    "embedding", "norm", "attention", "recurrence", "mlp", "residual", "head", "sampling", "detokenizing", "other",
)  # fmt: skip
NAMES: dict[str, str] = {
    "norm": "norms", "mlp": "MLP", "residual": "residual sums", "recurrence": "recurrence or convolution",
}  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run `inspector profile`; without a prompt it is the screen's.

    Raises:
        EngineError: A value is out of range, or the prompt can't be read.
    """
    from inspector.cli import generate as headless

    request = arguments.request(args, headless=False)
    asked = [
        commands.Run(), commands.Profile(args.repeats), commands.MeasureRoofline(), commands.CompareKV(),
    ]  # fmt: skip
    return concluded(headless.generate(request, writer(request, output(), sys.stderr), last=asked))


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return ProfileLines(out, request) if request.jsonl else ProfileTables(out, err, request)


# ---- JSON lines -------------------------------------------------------------------------------


class ProfileLines(JsonLines):
    """Writes the events of a profile: `model`, `prefill`, `prompt`, `profile`, `roofline`, `kv_costs`."""

    def take(self, record: records.Record, text: str) -> None:
        """Write the event of a record, if it has one; the steps before are not told."""
        match record:
            case Profiled():
                self._write({"event": "profile", **asdict(record), "other_ms": record.other_ms})
            case RooflineMeasured():
                self._write({"event": "roofline", **asdict(record), "ridge": record.ridge})
            case KVCompared(last=True):
                self._write({"event": "kv_costs", **asdict(record)})
            case records.Step():
                pass
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Nothing: each measurement is an event of its own."""


# ---- tables -----------------------------------------------------------------------------------


class ProfileTables(PlainText):
    """Writes each measurement as it comes."""

    def take(self, record: records.Record, text: str) -> None:
        """Take in one record, and show how far the measuring is."""
        match record:
            case records.Measuring():
                self._show(f"{record.command}: {record.detail} {record.done}/{record.total}")
            case records.Step():
                self._show(f"decoding: {record.index + 1} tokens")
            case Profiled():
                self._tell(profile_table(record), record.how)
            case RooflineMeasured():
                self._tell(roofline_table(record), record.how)
            case KVCompared(last=True):
                self._tell(kv_table(record), f"By formula: {record.formula}.")
            case _:
                super().take(record, "")

    def end(self, summary: Summary) -> None:
        """Write what the model is, and the notes."""
        self._show("")
        lines = [line for line in figures(summary, self._request) if line[0] in FIGURES]
        lines += [("note", note) for note in self._notes]
        self._say("".join(f"{name:<12}{visible(value)}\n" for name, value in lines))

    def _tell(self, lines: Sequence[str], how: str) -> None:
        self._show("")
        width = max(40, min(100, shutil.get_terminal_size().columns - 2))
        below = textwrap.wrap(how, width, initial_indent="  ", subsequent_indent="  ")
        self._out.write("\n".join([*map(visible, lines), *below, "", ""]))
        self._out.flush()


def by_role(profiled: Profiled) -> list[tuple[str, float]]:
    """Milliseconds of each role, in the order of a step; parts that are not known by their own path, the rest last."""
    found = []
    for role in ROLES[:-1]:
        own = [part.ms for part in profiled.parts if part.role == role]
        if own:
            found.append((NAMES.get(role, role), sum(own)))
    found += [(part.name, part.ms) for part in profiled.parts if part.role == "other"]
    return [*found, ("other", profiled.other_ms)]


def profile_table(profiled: Profiled) -> list[str]:
    """What each kind of part takes, then each layer."""
    roles, total = by_role(profiled), profiled.fenced_ms
    wide = max(len(name) for name, _ in roles)
    head = (
        f"One step after {profiled.tokens} tokens: {ms(profiled.unfenced_ms)} ms; {ms(total)} ms with fences"
    )
    rows = [
        f"  {name:<{wide}}  {value:8.3f} ms  {value / total:6.1%}  {bar(value / total, BAR)}".rstrip()
        for name, value in roles
    ]
    return [head, *rows, *_layers(profiled)]


def _layers(profiled: Profiled) -> list[str]:
    """One line a layer: its parts by role."""
    numbers = sorted({part.layer for part in profiled.parts if part.layer is not None})
    roles = [role for role in ROLES if any(p.role == role and p.layer is not None for p in profiled.parts)]
    if not numbers:
        return []
    head = ("layer", *(NAMES.get(role, role).split(" ")[0] for role in roles), "together")
    rows = [head]
    for layer in numbers:
        own = [
            sum(part.ms for part in profiled.parts if part.layer == layer and part.role == role)
            for role in roles
        ]
        rows.append((str(layer), *(f"{value:.3f}" if value else "·" for value in own), f"{sum(own):.3f}"))
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  " + "  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]


def roofline_table(found: RooflineMeasured) -> list[str]:
    """Both forwards, and the machine's limits."""
    rows: list[tuple[str, ...]] = [
        ("", "tokens", "ms", "weights", "KV", "operations", "op/byte", "GB/s", "GFLOP/s", "of the roof")
    ]
    rows += [_work(name, work, found) for name, work in _works(found)]
    machine = [
        f"  memory  {found.bandwidth_gbs:.3g} GB/s: {found.bandwidth_how}",
        f"  matmul  {found.matmul_gflops:.3g} GFLOP/s: {found.matmul_how}",
        f"  ridge   {found.ridge:.3g} operations a byte: below it memory is the limit, above it arithmetic",
    ]
    head = f"Roofline, {amount(found.active_parameters)} parameters in a token"
    return [head, *_aligned(rows), *machine, *(f"  note    {note}" for note in found.notes)]


def _works(found: RooflineMeasured) -> list[tuple[str, Work]]:
    return [("decode", found.decode), *([("prefill", found.prefill)] if found.prefill else [])]


def _work(name: str, work: Work, found: RooflineMeasured) -> tuple[str, ...]:
    roof = min(found.matmul_gflops, found.bandwidth_gbs * work.intensity)
    return (
        name, str(work.tokens), ms(work.ms), size(work.weight_bytes), size(work.kv_bytes), amount(work.flops),
        f"{work.intensity:.3g}", f"{work.gbs:.3g}", f"{work.gflops:.3g}", f"{work.gflops / roof:.0%}" if roof else "",
    )  # fmt: skip


def kv_table(compared: KVCompared) -> list[str]:
    """Bytes and change of the logits at each precision, or why there is none."""
    names = (
        "bits",
        "group",
        "by formula",
        "measured",
        "allocated",
        "largest change",
        "mean change",
        "top token",
    )
    rows: list[tuple[str, ...]] = [names, *(_cost(cost) for cost in compared.costs if not cost.refused)]
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
