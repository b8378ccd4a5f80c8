"""What the KV cache holds: tokens, bytes used and allocated, how it grew, and the bill of the last move."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.color import Color, blend_rgb
from rich.segment import Segment
from rich.style import Style
from textual.content import Content

from engine.records import KVGroup, KVReading, Moved, Prefilled, Step
from inspector import scales
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.panels.kv_facts import kv_facts, layers_of
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import Canvas, Row, centred, why_empty
from inspector.widgets.charts import FREE, axis, bar, sample, stairs
from inspector.widgets.fact_table import NAME, fact_rows
from inspector.widgets.inks import panel_css

_MOST_CHART = 6
"""Lines that the chart of the growth takes at most."""
_DEEP = (56, 15)
"""Cells and lines from which on the panel shows all that it knows."""
_LEAST_CHART = 3
_TALLEST = 20
"""Lines of a large chart at most."""
_DITHER = 0.25
"""How much of a cell `░` fills."""
_WIDEST = 4
"""Columns that a token takes at most in a large chart."""


class KVPanel(Canvas, can_focus=True):
    """The KV cache at the selected token, read off the cache objects."""

    OF_RECORDS: ClassVar[bool] = True
    DEFAULT_CSS = panel_css("KVPanel")
    NAME = "KV cache"
    HELP = f"""\
# KV cache
The keys and values that the model keeps for every token, so that a step computes one token and not the whole text.

- **used** bytes hold tokens; **allocated** ones are reserved: caches grow in strides, drawn as stairs of `░`
- the chart runs from the first token to the last one; the other shade is the prompt; its axis tells how steep it is:
  the bytes that a token adds
- one line for each kind of cache: how many layers, and of each layer the tokens held (of how many at
  most) and the bytes used / allocated
- **branches**: the KV of branches that were left, kept within a budget (`--kept-kv-mib`) so that going back costs no
  forward; the least recently used goes first
- after a move: how many tokens were **kept**, **restored** from memory, or **recomputed** by the model

With room (`{key_for("enlarge")}`) it tells more: the bytes of a token as a formula, what grouped heads save, what
fell out of a window,
how large the cache is when the context window is full, and what branches share. `{key_for("compare_kv")}` compares
it with quantized ones,
`{key_for("race")}` races with it against without.
"""

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        kv = reading_at(timeline) if timeline is not None else None
        self._entitle(timeline, kv)
        if timeline is None or kv is None or not kv.offset:
            reason, advice = _without(kv) or why_empty(
                timeline, "Tokens, bytes and their growth appear here."
            )
            return centred([(reason, self.rich_style), (advice, self.ink("muted"))], width, height)
        if width >= _DEEP[0] and height >= _DEEP[1]:
            return self._deep(timeline, kv, width, height)
        below = self._below(timeline, kv, width, height)
        chart = max(0, min(_MOST_CHART, height - 1 - len(below)))
        told = chart > _LEAST_CHART  # then an axis has room, and tells what a token takes
        drawn = self._chart(timeline, width, chart - told, _WIDEST)
        axis = [self._axis(timeline, drawn, slope(timeline))] if told else []
        return [self._summary(timeline, kv, not told), *drawn, *axis, *below]

    def _entitle(self, timeline: Timeline | None, kv: KVReading | None) -> None:
        if timeline is None or kv is None or not kv.offset:
            self.title(Content("KV cache"))
            return
        window = timeline.facts.context_window if timeline.facts else None
        of = f"{scales.percent(kv.offset / window)} of the window of {scales.count(window)}" if window else ""
        over = f"over {timeline.measured.rank_count} ranks" if timeline.measured.rank_count > 1 else ""
        ends = " · ".join(filter(None, (over, of)))
        self.title(Content(f"KV cache · {scales.count(kv.offset)} tokens"), Content(ends))

    def _summary(self, timeline: Timeline, kv: KVReading, per_token: bool = True) -> Row:
        """Used and allocated, each in the colour it has in the chart; and what a token takes by the model's shape."""
        muted = self.ink("muted")
        row = [
            Segment("█ ", self.data()), Segment(scales.size(kv.used_bytes), self.ink("strong")),
            Segment(" used  ", muted), Segment(f"{FREE} ", muted),
            Segment(scales.size(kv.allocated_bytes), self.ink("strong")), Segment(" allocated", muted),
        ]  # fmt: skip
        of_model = timeline.facts.kv_bytes_per_token if timeline.facts and per_token else None
        return [*row, Segment(f"  {scales.size(of_model)} a token", muted)] if of_model else row

    # ---- with room --------------------------------------------------------------------------

    def _deep(self, timeline: Timeline, kv: KVReading, width: int, height: int) -> list[Row]:
        """Everything: a chart with what room is left, the groups, and the facts."""
        muted = self.ink("muted")
        groups = [row for group in kv.groups for row in self._group_in_depth(group, width)]
        bill = self._bill(timeline, width) if timeline.following else []
        facts = fact_rows(kv_facts(timeline, kv), width, muted, self.rich_style)
        more = fact_rows(
            [
                (
                    "",
                    f"{key_for('compare_kv')} compares 16, 8 and 4 bits · {key_for('race')} races against no cache",
                )
            ],
            width,
            muted,
            muted,
        )
        below: list[Row] = [[], *groups, *self._kept(kv, NAME), *bill, [], *facts, *more]
        chart = max(_LEAST_CHART, min(_TALLEST, height - 2 - len(below)))
        drawn = self._chart(timeline, width, chart, _WIDEST)
        axis = self._axis(timeline, drawn, slope(timeline))
        return [self._summary(timeline, kv), *drawn, axis, *below][:height]

    def _axis(self, timeline: Timeline, drawn: Sequence[Row], slope: float | None) -> Row:
        """The tokens that the chart goes over, and how steep it is at the token that is looked at."""
        held = min(len(timeline.items), timeline.kv.offset if timeline.kv else 0)
        cells = Segment.get_line_length(drawn[0]) if drawn else 0
        steep = f"+{scales.size(round(slope))} a token" if slope is not None else "tokens"
        line = axis("1", scales.count(held), cells, steep)
        after = "" if steep in line else f"  {steep}"  # a short chart has no room for it between its ends
        return [Segment(line + after, self.ink("muted"))]

    def _group_in_depth(self, group: KVGroup, width: int) -> list[Row]:
        """A kind with its layers, how full each of them is, and all of them together."""
        layers = len(group.layers)
        muted, share = self.ink("muted"), group.used_bytes / max(1, group.allocated_bytes)
        per_layer = f"{scales.size(group.used_bytes)} of {scales.size(group.allocated_bytes)}"
        every = f" × {layers} = {scales.size(layers * group.used_bytes)}" if layers > 1 else ""
        row = [
            Segment(group.kind.ljust(NAME)), Segment(bar(share, 12), self.ink("track") + self.data()),
            Segment(f"  {per_layer}{every}", self.rich_style), Segment(f"  {self._held(group)}", muted),
        ]  # fmt: skip
        names = Segment(layers_of(group), muted)
        if Segment.get_line_length(row) + 2 + names.cell_length <= width:
            return [[*row, Segment("  "), names]]
        return [row, [Segment(" " * NAME), names]]

    def _held(self, group: KVGroup) -> str:
        if group.kind == "recurrent":
            return "one state"
        return f"{scales.count(group.held)}{f' of {scales.count(group.limit)}' if group.limit else ''} tokens"

    # ---- growth -----------------------------------------------------------------------------

    def _chart(self, timeline: Timeline, width: int, height: int, widest: int = 1) -> list[Row]:
        """Used bytes over the tokens of the path, on the stairs of what was allocated.

        Args:
            timeline: What is shown.
            width: Cells.
            height: Lines.
            widest: Columns that a token takes at most, where there is room.
        """
        held = min(len(timeline.items), timeline.kv.offset if timeline.kv else 0)
        wide = max(1, min(widest, width // max(1, held)))
        slots = [slot for slot in sample(held, width) for _ in range(wide)]
        read = [(slot, reading) for slot in slots if (reading := reading_of(timeline, slot))]
        slots = [slot for slot, _ in read]
        used = [float(reading.used_bytes) for _, reading in read]
        allocated = [float(reading.allocated_bytes) for _, reading in read]
        prompt, decoded = self.data(0.0), self.data(0.5)
        inks = [decoded if isinstance(timeline.items[slot], Step) else prompt for slot in slots]
        if not timeline.following and slots:
            at = min(bisect_left(slots, timeline.slot), len(slots) - 1)
            inks[at : at + wide] = [self.ink("accent")] * min(wide, len(inks) - at)
        free = self.ink("track")
        return [_coloured(line, inks, free) for line in stairs(used, allocated, height)]

    # ---- kinds and bill ---------------------------------------------------------------------

    def _below(self, timeline: Timeline, kv: KVReading, width: int, height: int) -> list[Row]:
        """The lines under the chart, as many as leave it one line."""
        bill = [*self._kept(kv), *(self._bill(timeline, width) if timeline.following else [])]
        room = max(0, height - 2 - len(bill))
        groups = [self._group(group) for group in kv.groups]
        if len(groups) > room > 0:
            groups = [
                *groups[: room - 1],
                [Segment(f"and {len(groups) - room + 1} more kinds", self.ink("muted"))],
            ]
        return groups[:room] + bill

    def _group(self, group: KVGroup) -> Row:
        layers = f"{len(group.layers)} layer" + ("s" if len(group.layers) != 1 else "")
        held = f"{layers} × {self._held(group)}"
        sizes = f"{scales.size(group.used_bytes)} / {scales.size(group.allocated_bytes)}"
        return [Segment(group.kind.ljust(10)), Segment(f"{held:<24}  {sizes}", self.ink("muted"))]

    def _kept(self, kv: KVReading, wide: int = 10) -> list[Row]:
        """The KV of branches that were left, and the budget that it is kept within."""
        if not kv.kept_bytes:
            return []
        text = f"{scales.size(kv.kept_bytes)} of {scales.size(kv.kept_budget)}"
        return [[Segment("branches".ljust(wide)), Segment(f"{text} kept for going back", self.ink("muted"))]]

    def _bill(self, timeline: Timeline, width: int) -> list[Row]:
        """What the last move cost, or the prompt that was just read, and why."""
        prefilled = timeline.prompts.prefilled
        paid: Moved | Prefilled
        if (moved := timeline.moved) is not None:
            name, ran, ms, paid = "moved  ", moved.recomputed, moved.ms, moved
        elif (
            prefilled is not None and prefilled.next is timeline.next and prefilled.kept + prefilled.restored
        ):
            again = len(timeline.items) - prefilled.kept - prefilled.restored
            name, ran, ms, paid = "prompt ", again, prefilled.ttft_ms, prefilled
        else:
            return []
        parts = [f"kept {scales.count(paid.kept)}"]
        parts += [f"restored {scales.count(paid.restored)}"] if paid.restored else []
        came = f"{'recomputed' if paid is moved else 'read'} {scales.count(ran)} · {scales.milliseconds(ms)}"
        sized = f" ({scales.size(paid.restored_bytes)})" if paid.restored_bytes else ""
        kept = " · ".join(parts)
        text = f"{kept}{sized} · {came}"
        if cell_len(name + text) > width:
            text = f"{kept} · {came}"
        row = [Segment(name, self.ink("warn" if ran and paid is moved else "good")), Segment(text)]
        if not paid.note:
            return [row]
        note = Segment(visible(paid.note), self.ink("muted"))
        together = Segment.get_line_length(row) + 3 + note.cell_length <= width
        return [[*row, Segment(" · "), note]] if together else [row, [Segment("       "), note]]


def reading_of(timeline: Timeline, slot: int) -> KVReading | None:
    """The cache after the token of a slot: after its step, or after its chunk of the prompt."""
    item = timeline.items[slot]
    if isinstance(item, Step):
        return item.kv
    return timeline.prompts.kv.get(item.node)


def slope(timeline: Timeline) -> float | None:
    """Bytes that a token added to what is used, as read off the cache: those of the token that is looked at, in the
    prompt the mean of its chunk. None where they became fewer, as when a cache is quantized."""
    slot = len(timeline.items) - 1 if timeline.following else timeline.slot
    now = reading_of(timeline, slot) if 0 <= slot < len(timeline.items) else None
    if now is None:
        return None
    before = _reading_before(timeline, slot)
    tokens = now.offset - (before.offset if before else 0)
    added = now.used_bytes - (before.used_bytes if before else 0)
    return added / tokens if tokens > 0 and added >= 0 else None


def _reading_before(timeline: Timeline, slot: int) -> KVReading | None:
    """The cache before the token of a slot, or before its chunk."""
    if isinstance(timeline.items[slot], Step):
        return reading_of(timeline, slot - 1) if slot else None
    chunk = bisect_left(timeline.prompts.chunks, slot + 1, key=lambda chunk: chunk.done)
    return timeline.prompts.chunks[chunk - 1].kv if 0 < chunk <= len(timeline.prompts.chunks) else None


def reading_at(timeline: Timeline) -> KVReading | None:
    """The cache at the selected token, at the tip while following."""
    return timeline.kv if timeline.following else reading_of(timeline, timeline.slot)


def _coloured(line: str, inks: Sequence[Style], free: Style) -> Row:
    """One line of the chart: what is used in the ink of its column, what is free in its own.

    A cell that is used in part shows what is free above it as its background.
    """
    above = Style(bgcolor=_dithered(free))
    return [
        Segment(char, free if char == FREE else ink if char in " █" else ink + above)
        for char, ink in zip(line, inks, strict=True)
    ]


def _dithered(free: Style) -> Color | None:
    """The even colour that looks like `░` does."""
    if (
        free.color is None
        or free.bgcolor is None
        or free.color.triplet is None
        or free.bgcolor.triplet is None
    ):
        return free.bgcolor
    return Color.from_triplet(blend_rgb(free.bgcolor.triplet, free.color.triplet, _DITHER))


def _without(kv: KVReading | None) -> tuple[str, str] | None:
    """What to show where the session keeps no KV cache; None where it keeps one."""
    if kv is None or not kv.passed_tokens:
        return None
    passed = f"The last step ran {scales.count(kv.passed_tokens)} tokens and dropped {scales.size(kv.passed_bytes)}."
    return "The KV cache is off: 0 tokens are held.", passed
