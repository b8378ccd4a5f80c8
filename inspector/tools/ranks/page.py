"""The rows of the ranks: what each holds, and its time in compute and in communication."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from engine.protocol import RankFacts, RanksLoaded, RanksMeasured, RankTime
from inspector.display import pad, truncate, visible
from inspector.scales import milliseconds, size
from inspector.widgets.canvas import Canvas, Row, fact_rows
from inspector.widgets.charts import bar

Cells = dict[str, str]
WIDTHS = {
    "rank": 6,
    "host": 14,
    "layers": 9,
    "weights": 10,
    "KV": 10,
    "memory": 10,
    "compute": 10,
    "comm.": 10,
}
"""Cells of the columns, their right gap included."""
GIVES_WAY = ("host", "memory", "weights", "KV", "layers")
"""The columns that are left out where there is no room, the first one first."""
LEAST_BAR = 10
WAITED = "▒"


def page(on: Canvas, loaded: RanksLoaded | None, measured: RanksMeasured | None, width: int) -> list[Row]:
    """All that is known of the ranks.

    Args:
        on: Has the inks.
        loaded: How the model was divided; None in a recording that has the measurement alone.
        measured: The last measurement; None before there is one.
        width: Cells of a line.
    """
    told = measured or loaded
    assert told is not None
    times = {time.rank: time for time in measured.times} if measured is not None else {}
    longest = max((time.compute_ms + time.communication_ms for time in times.values()), default=0.0)
    columns = fitting(width, bool(times))
    muted = on.ink("muted")
    rows: list[Row] = [[Segment(_line({each: each for each in columns}), muted)]]
    left = width - sum(WIDTHS[each] for each in columns)
    for rank in told.ranks:
        time = times.get(rank.rank)
        slow = measured is not None and measured.slowest == rank.rank and len(told.ranks) > 1
        cells = _cells(rank, time)
        rows.append([
            Segment(_line({each: cells[each] for each in columns}), on.ink("strong") if slow else on.rich_style),
            *(_bars(on, time, longest, left) if left >= LEAST_BAR else []),
        ])  # fmt: skip
    return [*rows, [], *fact_rows(facts(loaded, measured), width, muted, on.rich_style)]


def fitting(width: int, timed: bool) -> tuple[str, ...]:
    """The columns that there is room for."""
    left = [each for each in WIDTHS if timed or each not in ("compute", "comm.")]
    for name in GIVES_WAY:
        if sum(WIDTHS[each] for each in left) <= width:
            break
        left.remove(name)
    return tuple(left)


def _line(cells: Cells) -> str:
    return "".join(
        pad(truncate(text, WIDTHS[name] - 1), WIDTHS[name] - 1, right=name not in ("rank", "host")) + " "
        for name, text in cells.items()
    )


def _cells(rank: RankFacts, time: RankTime | None) -> Cells:
    last = rank.first_layer + rank.layers - 1
    return {
        "rank": str(rank.rank),
        "host": visible(rank.host),
        "layers": f"{rank.first_layer + 1}-{last + 1}" if rank.layers else "none",
        "weights": size(rank.weight_bytes),
        "KV": size(rank.kv_used_bytes) if time else "?",
        "memory": size(rank.memory_bytes) if rank.memory_bytes else "?",
        "compute": milliseconds(time.compute_ms) if time else "?",
        "comm.": milliseconds(time.communication_ms) if time else "?",
    }


def _bars(on: Canvas, time: RankTime | None, longest: float, room: int) -> list[Segment]:
    """Compute, and behind it communication."""
    if time is None or not longest:
        return []
    compute = bar(time.compute_ms / longest, room).rstrip()
    waited = min(room - len(compute), round(time.communication_ms / longest * room))
    return [Segment(compute, on.data()), Segment(WAITED * waited, on.ink("muted"))]


def facts(loaded: RanksLoaded | None, measured: RanksMeasured | None) -> list[tuple[str, str]]:
    """What all ranks come to, as names and sentences; not yet printable."""
    told = measured or loaded
    assert told is not None
    return [
        ("divided", divided(told)),
        ("weights", weights(told.ranks)),
        *(_measured(measured) if measured else []),
    ]


def divided(told: RanksLoaded | RanksMeasured) -> str:
    """How the model is divided, in a sentence."""
    count = len(told.ranks)
    if told.sharding == "tensor":
        return f"tensor: each of {count} ranks has a part of every layer, and all add up what they computed in each"
    return f"pipeline: each of {count} ranks has some layers, and hands what they computed to the next"


def weights(ranks: Sequence[RankFacts]) -> str:
    """Bytes of all ranks."""
    whole = size(sum(rank.weight_bytes for rank in ranks))
    return f"{whole} on all ranks together; what each has whole (embedding, norms, head) counts on each"


def _measured(measured: RanksMeasured) -> list[tuple[str, str]]:
    used = size(sum(rank.kv_used_bytes for rank in measured.ranks))
    allocated = size(sum(rank.kv_allocated_bytes for rank in measured.ranks))
    spread = milliseconds(measured.step_spread_ms)
    step = f"{milliseconds(measured.step_ms)} without fences, the best of {measured.rounds} (they differ by {spread})"
    found = [
        ("KV", f"{used} used of {allocated} allocated on all ranks, after {measured.tokens:,} tokens"),
        ("a step", step),
    ]
    slow = next((time for time in measured.times if time.rank == measured.slowest), None)
    others = [time.compute_ms for time in measured.times if time.rank != measured.slowest]
    if slow is not None and others:
        computes, beside = milliseconds(slow.compute_ms), milliseconds(max(others))
        found.append(
            (
                "slowest",
                f"rank {slow.rank} computes {computes}, the next one {beside}: the others wait for it",
            )
        )
    return [*found, ("the bars", "compute █ and communication ▒, waiting included, with a fence around each")]
