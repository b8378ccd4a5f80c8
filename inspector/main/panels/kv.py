"""The KV cache: its tokens, bytes used and allocated, how it grew, and the cost of the last move.

The chart is scaled to the used bytes: a session's first tokens take a hundredth of the block that is allocated for
them. The allocated bytes are a line above it, with a mark where a block was added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import KVGroup, KVReading, ModelFacts, Moved, Prefilled, Step
from inspector.display import first_fitting, visible
from inspector.keys import key_for
from inspector.scales import FREE, amount, count, counted, milliseconds, percent, size
from inspector.state.measured import Measured
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import FACT_NAME, PanelCanvas, Row, fact_rows, side_by_side, why_empty
from inspector.widgets.charts import OPENS, area, axis, bar, held_values, sample

Fact = tuple[str, str]
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
GROWING = ("plain", "rotating", "chunked", "list")
"""Kinds of caches that keep the keys and values of single tokens in the model's own dtype."""


def kv_facts(timeline: Timeline, kv: KVReading) -> Iterator[Fact]:
    """Facts about the KV cache, the most important first.

    Args:
        timeline: The timeline on show, with the model's facts.
        kv: The reading on show.
    """
    if (facts := timeline.facts) is None:
        return
    yield from _a_token(facts, kv)
    for group in kv.groups:
        if group.limit is not None and group.kind != "recurrent":
            gone = max(0, kv.offset - group.held)
            dropped = f"{count(gone)} dropped" if gone else "none dropped yet"
            yield "window", f"{layers_of(group)}: {count(group.limit)} tokens at most; {dropped}"
    for group in kv.groups:
        if group.kind == "recurrent":
            each, all_of_them = size(group.used_bytes), size(len(group.layers) * group.used_bytes)
            yield "state", f"{layers_of(group)}: {each} each, whatever the length; {all_of_them} in all"
    if (window := facts.context_window) and kv.offset:
        full = projected(kv, window)
        share = f"{percent(full / facts.weight_bytes)} of what the weights take" if facts.weight_bytes else ""
        yield "full window", f"{size(full)} at {count(window)} tokens; {share}"
    per_token, spare = facts.kv_bytes_per_token, facts.free_bytes
    if per_token and spare is not None:
        there = f"{size(spare)} {FREE[facts.memory_of]} once the weights were loaded"
        yield "memory", f"{there}: room for about {amount(spare // per_token)} tokens"
    # the tokens that branches have in common went through the model once
    branches = timeline.tree.branches
    ends = [branches.depth(branch.last) for branch in branches if not branch.children]
    if len(ends) > 1:
        branch = branches.root
        while len(branch.children) == 1:
            branch = branch.children[0]
        apart, together = sum(ends), len(branches)
        saved = f", {size((apart - together) * per_token)} less" if per_token else ""
        common = (
            f"{count(len(ends))} ends, the first {count(branches.depth(branch.last))} tokens common to all"
        )
        yield "branches", f"{common}; as a tree {count(together)} tokens stand for {count(apart)}{saved}"


# ---- a token ----------------------------------------------------------------------------------


def _a_token(facts: ModelFacts, kv: KVReading) -> Iterator[Fact]:
    per_token = facts.kv_bytes_per_token
    if not per_token:
        return
    if (layers := layers_counted(facts)) is None:
        quantized = any(group.kind == "quantized" for group in kv.groups)
        why = f"{'quantized' if quantized else 'not all layers alike'}: no single product of sizes gives it"
        yield "a token", f"{size(per_token)}, read off the arrays ({why})"
        return
    heads = counted(facts.kv_heads or 0, "KV head")
    product = f"{counted(layers, 'layer')} × {heads} × {facts.head_size} × {BYTES[facts.dtype]} B"
    rest = ""
    if (others := facts.layers - layers) > 0:
        alone = len(facts.cache_kinds) == layers
        do = "share these, or keep nothing" if alone else "don't grow without end"
        rest = f"; {others} of {facts.layers} layers {do}"
    yield "a token", f"2 (key and value) × {product} = {size(per_token)}{rest}"
    if facts.heads and facts.kv_heads and facts.heads > facts.kv_heads:
        full = per_token * facts.heads // facts.kv_heads
        more = f"full heads would take {size(full)}, {full / per_token:.3g} times as much"
        yield "grouped", f"{facts.heads} query heads share {heads}: {more}"


def layers_counted(facts: ModelFacts) -> int | None:
    """The number of layers in the formula for bytes per token; None if it doesn't give the measured bytes."""
    width = BYTES.get(facts.dtype)
    if width is None or not facts.kv_heads or not facts.head_size:
        return None
    one = 2 * facts.kv_heads * facts.head_size * width
    for kinds in (("plain",), GROWING):
        layers = sum(kind in kinds for kind in facts.cache_kinds)
        if layers and layers * one == facts.kv_bytes_per_token:
            return layers
    return None


# ---- layers, and their bytes at other lengths ----------------------------------------------------


def layers_of(group: KVGroup) -> str:
    """The layers of a group, counted from 1, in runs: `layers 1-5, 7`."""
    runs: list[list[int]] = []
    for layer in group.layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    names = [f"{run[0] + 1}" if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs]
    shown = ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} runs more"
    return f"layer{'s' if len(group.layers) > 1 else ''} {shown}"


def _held(group: KVGroup) -> str:
    """The contents of each layer of a group."""
    if group.kind == "recurrent":
        return "one state"
    return (
        f"{count(group.held)} of {count(group.limit)} tokens" if group.limit else counted(group.held, "token")
    )


def projected(kv: KVReading, tokens: int) -> int:
    """Bytes that the cache would use at `tokens` tokens, if each group grows as before."""
    total = 0
    for group in kv.groups:
        held = min(tokens, group.limit) if group.limit else tokens
        each = group.used_bytes * held // group.held if group.held else group.used_bytes
        total += len(group.layers) * each
    return total


MOST_CHART = 6
"""Maximum lines of the growth chart."""
DEEP = (56, 15)
"""Cells and lines from which the panel shows everything."""
LEAST_CHART = 3
_LEAST_DEEP = 5
"""Minimum lines of the chart above the facts: facts that would leave it fewer are left out."""
_LEAST_MARKED = 3
"""Lines of a chart from which one of them shows the allocated bytes."""
LEAST_SIDE = 8
"""Minimum columns of a chart at the end of a row."""
_GROUP_BARS = (72, 12, 4)
"""Cells of the panel from which a group's bar is long; cells of a long bar, and of a short one."""
_TALLEST = 20
"""Maximum lines of a large chart."""
WIDEST = 4
"""Maximum columns of a token, or a step, in a large chart."""


class KVPanel(PanelCanvas, can_focus=True):
    """The KV cache at the selected token, read off the cache objects."""

    NAME = "KV cache"
    CONCEALED_BY = ("text",)  # it counts the tokens

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        kv = reading_of(timeline, timeline.slot) if timeline is not None else None
        if timeline is None or kv is None or not kv.offset:
            return self._empty(timeline, kv, width, height)
        window = timeline.facts.context_window if timeline.facts else None
        loaded = timeline.of(Measured).loaded
        ranks = f"over {len(loaded.ranks)} ranks" if loaded is not None and len(loaded.ranks) > 1 else ""
        held = max((group.held for group in kv.groups if group.kind != "recurrent"), default=kv.offset)
        whole = kv.offset if held < kv.offset else window  # the windows of all layers dropped tokens
        self.title(f"{self.NAME} · {count(held)}{f' of {count(whole)}' if whole else ''} tokens", ranks)
        if width >= DEEP[0] and height >= DEEP[1]:
            return self._deep(timeline, kv, width, height)
        below = self._below(timeline, kv, width, height)
        chart = max(0, min(MOST_CHART, height - 1 - len(below)))
        with_axis = chart > LEAST_CHART  # which has the bytes of a token, too
        drawn = self._chart(timeline, width, chart, with_axis)
        if self.frameless:
            return [self._line(timeline, kv, width, alone=height == 1), *drawn, *below]
        return [self._summary(timeline, kv, width, not with_axis), *drawn, *below]

    def _empty(self, timeline: Timeline | None, kv: KVReading | None, width: int, height: int) -> list[Row]:
        """The reason that there is no KV cache, or none yet."""
        self.title(self.NAME)
        if timeline is not None and timeline.facts is not None and not timeline.facts.ran:
            brief = "not known of a server's reply"
            reason = "A server's reply says nothing of its KV cache."
            advice = "With its model it is computed again."
        elif kv is not None and kv.passed_tokens:
            ran, dropped = f"{count(kv.passed_tokens)} tokens", size(kv.passed_bytes)
            brief = f"off · last step: {ran} run, {dropped} dropped"
            reason = "The KV cache is off: 0 tokens are held."
            advice = f"The last step ran {ran} and dropped {dropped}."
        else:
            brief = "no tokens yet"
            reason, advice = why_empty(timeline, "Tokens, bytes and their growth appear here.")
        return self.empty((reason, advice), brief, width, height)

    def _summary(self, timeline: Timeline, kv: KVReading, width: int, per_token: bool = True) -> Row:
        """Used and allocated bytes with their signs in the chart, and how full the allocation is: the chart has no
        common scale for both.

        Args:
            timeline: The timeline on show.
            kv: The reading.
            width: Cells; the percentage is left out first, then the bytes of a token.
            per_token: Whether to show the bytes of a token by the model's shape.
        """
        muted, strong = self.ink("muted"), self.ink("strong")
        full = f"  {_full(kv)}" if kv.allocated_bytes else ""
        row = [
            Segment("█ ", self.data()), Segment(size(kv.used_bytes), strong), Segment(" used  ", muted),
            Segment(f"{OPENS} ", muted), Segment(size(kv.allocated_bytes), strong), Segment(" allocated", muted),
        ]  # fmt: skip
        of_model = timeline.facts.kv_bytes_per_token if timeline.facts and per_token else None
        each = f"  {size(of_model)} a token" if of_model else ""
        left = width - Segment.get_line_length(row)
        return [*row, Segment(first_fitting(left, full + each, each, ""), muted)]

    def _line(self, timeline: Timeline, kv: KVReading, width: int, alone: bool) -> Row:
        """The line of a panel without a frame: used of allocated, and the bytes that a token added.

        Args:
            timeline: The timeline on show.
            kv: The reading.
            width: Cells.
            alone: Whether nothing is drawn below it: then the growth is drawn at its end, if there is room.
        """
        muted, strong = self.ink("muted"), self.ink("strong")
        used, allocated = size(kv.used_bytes), size(kv.allocated_bytes)
        sizes = self.named([Segment(used, strong), Segment(" used of ", muted), Segment(allocated, strong)])
        grown = []
        if (steep := slope(timeline)) is not None:
            grown = [Segment(f"  +{size(round(steep))}", strong), Segment(" a token", muted)]
        forms = ([*sizes, Segment(" allocated", muted), *grown], [*sizes, *grown], sizes)
        row = next((form for form in forms if Segment.get_line_length(form) <= width), sizes)
        more = [[Segment(count(kv.offset), strong), Segment(" token" + "s" * (kv.offset != 1), muted)]]
        more += [[Segment(_full(kv), muted)]] * bool(kv.allocated_bytes)
        row = side_by_side([row, *more], width - alone * (LEAST_SIDE + 2))
        left = width - Segment.get_line_length(row) - 2
        if not alone or left < LEAST_SIDE:
            return row
        return [*row, Segment("  "), *self._chart(timeline, left, 1)[0]]

    # ---- with room --------------------------------------------------------------------------

    def _deep(self, timeline: Timeline, kv: KVReading, width: int, height: int) -> list[Row]:
        """All rows: the sizes, a chart in the remaining room, the groups, and the facts."""
        muted = self.ink("muted")
        groups = [row for group in kv.groups for row in self._group_in_depth(group, width)]
        bill = self._bill(timeline, width) if timeline.following else []
        kept = [self._kept(kv, width, FACT_NAME)] if kv.kept_bytes else []
        below: list[Row] = [[], *groups, *kept, *bill, []]
        facts = [self.facts([fact], width) for fact in kv_facts(timeline, kv)]
        more = f"{key_for('compare_kv')} compares other KV bits · {key_for('race')} races against no cache"
        for rows in (*facts, fact_rows([("", more)], width, muted, muted)):
            if len(below) + len(rows) > height - 2 - _LEAST_DEEP:
                break
            below += rows
        chart = max(_LEAST_DEEP, min(_TALLEST, height - 2 - len(below)))
        drawn = self._chart(timeline, width, chart + 1, with_axis=True)
        return [self._summary(timeline, kv, width, per_token=False), *drawn, *below]

    def _group_in_depth(self, group: KVGroup, width: int) -> list[Row]:
        """The rows of a group: its kind, the bytes of a layer and of all its layers, and what each contains."""
        layers, (wide, long, short) = len(group.layers), _GROUP_BARS
        cells = long if width >= wide else short
        muted, share = self.ink("muted"), group.used_bytes / max(1, group.allocated_bytes)
        per_layer = f"{size(group.used_bytes)} of {size(group.allocated_bytes)}"
        every = f" × {layers} = {size(layers * group.used_bytes)}" if layers > 1 else ""
        rows: list[Row] = [
            [
                Segment(group.kind.ljust(FACT_NAME)), Segment(bar(share, cells), self.ink("track") + self.data()),
                Segment(f"  {per_layer}{every}", self.ink("base")),
            ]
        ]  # fmt: skip
        for words in (_held(group), layers_of(group)):
            if Segment.get_line_length(rows[-1]) + 2 + len(words) > width:
                rows.append([Segment(" " * (FACT_NAME - 2))])
            rows[-1].append(Segment(f"  {words}", muted))
        return rows

    # ---- growth -----------------------------------------------------------------------------

    def _chart(self, timeline: Timeline, width: int, height: int, with_axis: bool = False) -> list[Row]:
        """A chart of the used bytes over the tokens of the path; with three lines or more, the first shows where the
        allocated bytes changed.

        Args:
            timeline: The timeline on show.
            width: Cells.
            height: Lines.
            with_axis: Whether the last line is an axis, with the number of tokens and the bytes that the selected one
                added.
        """
        held = min(len(timeline.items), timeline.kv.offset if timeline.kv else 0)
        wide = max(1, min(WIDEST, width // max(1, held)))
        prompt, decoded, muted = self.data(0.0), self.data(0.5), self.ink("muted")
        slots: list[int] = []
        used: list[int] = []
        allocated: list[int] = []
        inks: list[Style] = []
        for slot in sample(held, width):
            if (reading := reading_of(timeline, slot)) is not None:
                slots += [slot] * wide
                used += [reading.used_bytes] * wide
                allocated += [reading.allocated_bytes] * wide
                inks += [decoded if isinstance(timeline.items[slot], Step) else prompt] * wide
        if not timeline.following and slots:
            at = min(bisect_left(slots, timeline.slot), len(slots) - 1)
            inks[at : at + wide] = [self.ink("accent")] * min(wide, len(inks) - at)
        rows: list[Row] = []
        lines = height - with_axis
        if lines >= _LEAST_MARKED:
            rows.append([Segment(held_values(allocated, size), muted)])
        filled = area(used, lines - len(rows), max(used, default=0))
        rows += [list(map(Segment, line, inks)) for line in filled]
        if with_axis:
            steep = slope(timeline)
            name = "tokens" if steep is None else f"+{size(round(steep))} a token"
            line = axis("1", count(held), len(slots), name)
            after = "" if name in line else f"  {name}"  # a short chart has no room for it between its ends
            rows.append([Segment(line + after, muted)])
        return rows

    # ---- groups, and the cost of a move -----------------------------------------------------

    def _below(self, timeline: Timeline, kv: KVReading, width: int, height: int) -> list[Row]:
        """The lines under the chart: the groups, the KV of other branches, and the last move's cost, which has
        priority.

        They leave two lines for the chart, or one if there are fewer than four in all. If a plain cache is the only
        group, it gets a line only if the chart has its maximum height.
        """
        room = max(0, height - 1 - (2 if height > 3 else 1))
        bill = self._bill(timeline, width)[:room] if timeline.following else []
        room -= len(bill)
        groups: list[Row] = []
        plain = len(kv.groups) == 1 and kv.groups[0].kind == "plain"
        if len(kv.groups) > room:
            sizes = (f"{group.kind} {size(len(group.layers) * group.used_bytes)}" for group in kv.groups)
            groups = [[Segment(" · ".join(sizes), self.ink("muted"))]] if room else []
        elif not plain or height - 2 - len(bill) >= MOST_CHART:
            groups = [self._group(group, width) for group in kv.groups]
        kept = [self._kept(kv, width)] if kv.kept_bytes and len(groups) < room else []
        return [*groups, *kept, *bill]

    def _group(self, group: KVGroup, width: int) -> Row:
        held = f"{counted(len(group.layers), 'layer')} × {_held(group)}"
        sizes = f"{size(group.used_bytes)} / {size(group.allocated_bytes)}"
        forms = [f"{held:<24}  {sizes}", f"{held}  {sizes}", f"{held}  {size(group.used_bytes)}"]
        return [
            Segment(group.kind.ljust(10)),
            Segment(first_fitting(width - 10, *forms, held), self.ink("muted")),
        ]

    def _kept(self, kv: KVReading, width: int, wide: int = 10) -> Row:
        """The row of the KV that is kept for other branches, and its budget."""
        text = f"{size(kv.kept_bytes)} of {size(kv.kept_budget)}"
        long = f"{text} kept for going back"
        text = long if wide + len(long) <= width else f"{text} kept"
        return [Segment("branches".ljust(wide)), Segment(text, self.ink("muted"))]

    def _bill(self, timeline: Timeline, width: int) -> list[Row]:
        """The cost of the last move, or of the prompt that was just read, and its reason."""
        prefilled = timeline.prompts.prefilled
        paid: Moved | Prefilled | None = None
        if (moved := timeline.moved) is not None:
            name, ran, ms, paid = "moved  ", moved.recomputed, moved.ms, moved
        elif prefilled is not None and prefilled.next is timeline.next:
            again = len(timeline.items) - prefilled.kept - prefilled.restored
            name, ran, ms, paid = "prompt ", again, prefilled.ttft_ms, prefilled
        if paid is None or not (paid is moved or paid.kept + paid.restored):
            return []
        kept = f"kept {count(paid.kept)}" + f" · restored {count(paid.restored)}" * bool(paid.restored)
        came = f"{'recomputed' if paid is moved else 'read'} {count(ran)} · {milliseconds(ms)}"
        sized = f" ({size(paid.restored_bytes)})" if paid.restored_bytes else ""
        text = f"{kept}{sized} · {came}"
        if cell_len(name + text) > width:
            text = f"{kept} · {came}"
        row = [Segment(name, self.ink("warn" if ran and paid is moved else "good")), Segment(text)]
        if not paid.note:
            return [row]
        note = Segment(visible(paid.note), self.ink("muted"))
        together = Segment.get_line_length(row) + 3 + note.cell_length <= width
        return [[*row, Segment(" · "), note]] if together else [row, [Segment("       "), note]]


def _full(kv: KVReading) -> str:
    return f"{percent(kv.used_bytes / kv.allocated_bytes)} full"


def reading_of(timeline: Timeline, slot: int) -> KVReading | None:
    """The reading of the cache after the token of a slot: after its step, or after its chunk of the prompt. For the
    slot of the next token, the current reading."""
    if slot == len(timeline.items):
        return timeline.kv
    item = timeline.items[slot]
    return item.kv if isinstance(item, Step) else timeline.prompts.kv.get(item.node)


def slope(timeline: Timeline) -> float | None:
    """Used bytes that the selected token added, as read off the cache; for a token of the prompt, the mean of its
    chunk. None if the bytes decreased, as when a cache is quantized."""
    slot = len(timeline.items) - 1 if timeline.following else timeline.slot
    now = reading_of(timeline, slot) if 0 <= slot < len(timeline.items) else None
    if now is None:
        return None
    if isinstance(timeline.items[slot], Step):
        before = reading_of(timeline, slot - 1) if slot else None
    else:
        chunks = timeline.prompts.chunks
        chunk = bisect_left(chunks, slot + 1, key=lambda chunk: chunk.done)
        before = chunks[chunk - 1].kv if 0 < chunk <= len(chunks) else None
    tokens = now.offset - (before.offset if before else 0)
    added = now.used_bytes - (before.used_bytes if before else 0)
    return added / tokens if tokens > 0 and added >= 0 else None
