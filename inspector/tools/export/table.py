"""A path as CSV: one token a row, for a spreadsheet or a script.

Columns of numbers have numbers alone; those of text are guarded against being run as formulas.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from engine.protocol import Distribution, PromptToken, Step
from inspector.display import guarded
from inspector.scales import METRIC
from inspector.state.branches import ROOT, made
from inspector.state.conditions import by_token
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.export.recording import Recording

Cell = str | int | float | None
COLUMNS = (
    "step", "position", "node", "parent", "id", "text", "bytes", "special", "made",
    "prob", "sampler_prob", "logprob", "rank", "surprisal_bits", "entropy_bits", "sampler_entropy_bits",
    "draw", "draw_from", "draw_to", "reroll", "first_id", "first_text", "first_prob",
    "ms", "forward_ms", "sample_ms", "inspect_ms", "pipelined",
    "kv_tokens", "kv_used_bytes", "kv_allocated_bytes", "memory_active_bytes", "memory_peak_bytes",
    "name", "bookmarked", "note", "caption", "cold", "made_with",
)  # fmt: skip


def rows(recording: Recording) -> str:
    """The table, with a line of names: `step` counts from 1 and is empty in the prompt, `bytes` are hexadecimal.

    Args:
        recording: Its path is exported.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    parent, timeline = ROOT, recording.timeline
    for item, found in zip(recording.items, by_token(timeline.tree, recording.items), strict=True):
        cells = (*_row(timeline, item, parent), guarded("; ".join(each.short for each in found)))
        writer.writerow([_written(cell) for cell in cells])
        parent = item.node
    return out.getvalue()


def _written(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    if isinstance(cell, float):
        return (
            repr(cell) if math.isfinite(cell) else "" if math.isnan(cell) else ("-inf" if cell < 0 else "inf")
        )
    return str(cell)


def _row(timeline: Timeline, item: Item, parent: int) -> Sequence[Cell]:
    step = item if isinstance(item, Step) else None
    mark = timeline.tree.marks.at(item.node)
    return (
        step.index + 1 if step else None, item.position, item.node, parent, item.id, guarded(item.text),
        item.raw.hex(), item.special, made(item),
        item.prob, step.sampler_prob if step else None, item.logprob, item.rank,
        METRIC["surprisal"].value(item), METRIC["entropy"].value(item),
        step.choice.sampler_entropy_bits if step else None, *_draw(step.choice if step else None),
        *_first(item), *_costs(step),
        guarded(mark.name), mark.bookmarked, guarded(mark.note), guarded(mark.caption),
        step.ms.cold if step else None,
    )  # fmt: skip


def _draw(choice: Distribution | None) -> Sequence[Cell]:
    if choice is None:
        return (None,) * 4
    return choice.draw, choice.draw_from, choice.draw_to, choice.reroll


def _first(item: Item) -> Sequence[Cell]:
    """The most probable candidate."""
    candidates = item.candidates if isinstance(item, PromptToken) else item.choice.candidates
    if not candidates:
        return (None,) * 3
    return candidates[0].id, guarded(candidates[0].text), candidates[0].prob


def _costs(step: Step | None) -> Sequence[Cell]:
    if step is None:
        return (None,) * 10
    ms, kv, memory = step.ms, step.kv, step.memory
    return (
        ms.total, ms.forward, ms.sample, ms.inspect, ms.pipelined, kv.offset, kv.used_bytes, kv.allocated_bytes,
        memory.active_bytes, memory.peak_bytes,
    )  # fmt: skip
