"""The time to the first token, for each token after it, and inside the selected step."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import fields
from rich.segment import Segment

from engine.protocol import Memory, Step, StepTimes
from inspector import scales
from inspector.display import first_fitting
from inspector.keys import key_for
from inspector.main.panels.kv import DEEP, LEAST_CHART, LEAST_SIDE, MOST_CHART, WIDEST, Fact
from inspector.main.panels.steps import MOST, StepFigures, step_shown
from inspector.scales import COLD, count, milliseconds, size
from inspector.state.timeline import Timeline
from inspector.widgets.canvas import PanelCanvas, Row, fact_rows, side_by_side, why_empty
from inspector.widgets.charts import area, axis, shares, window

TIMES = 2.0
"""Multiple of the median time above which a step is slow."""
SHARE = 0.3
"""Share of the time beyond the median above which a part is named as the cause."""


def slow_steps(timeline: Timeline, figures: StepFigures, median: float, most: int = MOST) -> Iterator[Fact]:
    """The number of slow steps, and the slowest of them; reads only those steps, not the whole path.

    Args:
        timeline: The timeline on show.
        figures: Statistics of its steps.
        median: Median milliseconds of a step; infinite if it is not known.
        most: Maximum number of slow steps that are listed.
    """
    if not figures.ms:
        return
    limit = TIMES * median
    slow, edge, steps = figures.beyond(limit), f"more than {TIMES:g} times the median", len(figures.ms)
    if not slow:
        yield "slow steps", f"none of {count(steps)} took {edge}"
        return
    end = ":" if slow <= most else f"; the {most} slowest:" if most > 1 else "; the slowest:"
    yield "slow steps", f"{count(slow)} of {count(steps)} took {edge}{end if most else ''}"
    for place in sorted([place for place in figures.slowest if figures.ms[place] > limit][:most]):
        number, ms = _step(timeline, place).index + 1, figures.ms[place]
        times = f"{milliseconds(ms)}, {ms / median:.1f} times"
        yield f"  step {number}", f"{times}: {cause(timeline, place, median)}"


def _step(timeline: Timeline, place: int) -> Step:
    step = timeline.items[timeline.step_slots[place]]
    assert isinstance(step, Step)
    return step


def cause(timeline: Timeline, place: int, median: float) -> str:
    """The cause of a slow step.

    Args:
        timeline: The timeline on show.
        place: Place of the step among those of the path, from 0.
        median: Median milliseconds of a step.
    """
    step, prefilled = _step(timeline, place), timeline.prompts.prefilled
    before = _step(timeline, place - 1).kv if place else prefilled.kv if prefilled else None
    grown = step.kv.allocated_bytes - (before.allocated_bytes if before else 0)
    beyond = SHARE * (step.ms.total - median)
    known: list[str] = []
    if step.ms.cold:
        known.append("warm-up: the model's first step since it was loaded")
    if grown > 0 and not step.kv.passed_tokens:
        known.append(f"the KV cache grew by {size(grown)}")
    if step.ms.collecting > beyond:
        known.append(f"garbage collection, {milliseconds(step.ms.collecting)}")
    if step.ms.drawing > beyond:
        known.append(f"the screen was drawn at the same time, {milliseconds(step.ms.drawing)}")
    if known:
        return " and ".join(known)
    parts = dict(zip(("the model", "the sampler", "the readings"), _parts(step.ms), strict=False))
    return f"cause not known; most of it in {max(parts, key=parts.__getitem__)}"


def _parts(ms: StepTimes) -> tuple[float, float, float, float]:
    """The parts that add up to a step's time, as in `PARTS`; the readings of a pipelined step add nothing."""
    inspect = 0.0 if ms.pipelined else ms.inspect
    return ms.forward, ms.sample, inspect, max(0.0, ms.total - ms.forward - ms.sample - inspect)


def memory_facts(timeline: Timeline, memory: Memory | None, kept_bytes: int | None) -> Iterator[Fact]:
    """The memory of the framework, of the process and of the inspector's own records, and its bounds.

    Args:
        timeline: The timeline on show.
        memory: The memory at the selected step.
        kept_bytes: Maximum bytes of kept logits; None if it is not known.
    """
    if memory is not None:
        ready = f" · {size(memory.cache_bytes)} kept ready" if memory.cache_bytes else ""
        used = f"{size(memory.active_bytes)} in use{ready}"
        yield "framework", f"{used} · {size(memory.peak_bytes)} at its peak"
        if memory.rss_bytes:
            most = " at most so far" if sys.platform == "darwin" else ""
            resident = f"{size(memory.rss_bytes)} resident{most}"
            yield "process", f"{resident}, the program and its libraries included"
    if not timeline.step_slots:
        return
    taken = timeline.tree.taken
    total = taken * footprint(_step(timeline, -1))
    yield "records", f"about {size(total)}: {count(taken)} steps of {size(total // taken)} each, none dropped"
    if kept_bytes is not None and timeline.facts is not None:
        rows = min((taken + 1) * timeline.facts.vocabulary * 4, kept_bytes)
        yield "kept logits", f"about {size(rows)} of at most {size(kept_bytes)}; the oldest go first"


def footprint(step: Step) -> int:
    """Bytes of a step's record and its contents, without `choice`, which belongs to the step before."""
    return _sizes(step, skip="choice")


def _sizes(value: object, skip: str = "") -> int:
    total = sys.getsizeof(value)
    if isinstance(value, Struct):
        return total + sum(_sizes(getattr(value, f.name)) for f in fields(value) if f.name != skip)
    if isinstance(value, tuple):
        return total + sum(map(_sizes, value))
    return total


PARTS = (("forward", "━", 0.45), ("sample", "╍", 0.95), ("inspect", "┅", 0.0), ("other", "┄", 0.7))
"""The parts of a step: name, character and color level."""
_TALLEST = 16
"""Maximum lines of a large chart."""
_LABEL = 9
"""Cells next to the chart for the time of its highest column."""
SLOW = "▲"
GAP = 2
"""Cells after a number."""


class TimingPanel(PanelCanvas, can_focus=True):
    """TTFT, TPOT, throughput, and the split of the selected step."""

    NAME = "Time"

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._figures = StepFigures()
        self.kept_bytes: int | None = None
        """Maximum bytes of kept logits; None if it is not known."""

    def draw(self, width: int, height: int) -> list[Row]:
        timeline = self.timeline
        if timeline is None or (timeline.facts is not None and not timeline.facts.ran):
            self.title(self.NAME)
            return self._empty(timeline, width, height)
        step, prompts = timeline.step, timeline.prompts
        memory = step.memory if step else timeline.memory
        # the numbers in the panel don't include the time for the prompt's probabilities
        extra = f" · prompt probabilities took {milliseconds(prompts.readings_ms)} extra"
        title = first_fitting(width, self.NAME + extra * bool(prompts.readings_ms), self.NAME)
        taken = f"memory {size(memory.active_bytes)} · peak {size(memory.peak_bytes)}" if memory else ""
        self.title(title, taken)
        if not (prompts.chunks or prompts.prefilled):
            return self._empty(timeline, width, height)
        self._figures.update(timeline)
        if width >= DEEP[0] and height >= DEEP[1]:
            return self._deep(timeline, step, width, height)
        if self.frameless or height == 1:
            above = [self._line(timeline, step, width, alone=height == 1)]
        else:
            above = self._rates(timeline, width)
        below = self._split(step, width) if step and height > 1 else []
        if 1 < height < 5:
            above, below = above[: height - 1], below[1:]
        chart = max(0, min(MOST_CHART, height - len(above) - len(below)))
        return [*above, *self._chart(timeline, width, chart), *below]

    def _empty(self, timeline: Timeline | None, width: int, height: int) -> list[Row]:
        """The reason that there are no times, or none yet."""
        if timeline is not None and timeline.facts is not None and not timeline.facts.ran:
            said = ("A server's reply says nothing of the time of its steps.",)
            return self.empty(said, "not known of a server's reply", width, height)
        reason = why_empty(timeline, "Time to first token, and for each token, appear here.")
        return self.empty(reason, "no step yet", width, height)

    def _deep(self, timeline: Timeline, step: Step | None, width: int, height: int) -> list[Row]:
        """All rows: the rates, a chart in the remaining room, the step's parts, the slow steps, and the memory."""
        muted, tpot = self.ink("muted"), self._figures.tpot()
        median = tpot.p50 if tpot and tpot.p50 > 0 else math.inf
        slow = self._figures.beyond(TIMES * median) > 0
        above = [*self._rates(timeline, width, deep=True), []]
        parts: list[Row] = [*(self._split(step, width) if step else []), []]
        more = fact_rows([("", f"{key_for('profile')} takes one step apart")], width, muted, muted)
        memory = [*memory_facts(timeline, step.memory if step else timeline.memory, self.kept_bytes)]
        below = [*self.facts(memory, width), *more]
        room = height - 2 - slow - len(above) - len(parts) - len(below)
        for most in range(MOST, -1, -1):  # fewer slow steps if not all of it has room
            facts = self.facts(slow_steps(timeline, self._figures, median, most), width)
            if len(facts) <= room - LEAST_CHART:
                break
        chart = max(LEAST_CHART, min(_TALLEST, room - len(facts)))
        marked = self._chart(timeline, width, chart, WIDEST, TIMES * median if slow else math.inf)
        rows = [*above, *marked, *parts, *facts]
        rows += fact_rows(memory, width, muted, self.ink("base"), height - len(rows))
        return [*rows, *more][:height]

    def _line(self, timeline: Timeline, step: Step | None, width: int, alone: bool) -> Row:
        """The line of a low panel: the selected step, the rate, and the time to the first token.

        Args:
            timeline: The timeline on show.
            step: The selected step.
            width: Cells.
            alone: Whether nothing is drawn below it: then the steps are drawn at its end, if there is room.
        """
        prefilled, tpot = timeline.prompts.prefilled, self._figures.tpot()
        pieces: list[Row] = []
        if step is not None:
            took = self._pair(f"step {count(step.index + 1)}:", milliseconds(step.ms.total))
            pieces.append([*took, *[Segment(f" ({COLD})", self.ink("warn"))] * step.ms.cold])
        if prefilled is None:
            pieces += [self._prefilling(timeline), *self._prompt_rate(timeline.prompts.tps)]
        else:
            pieces += [self._pair("mean", scales.rate(tpot.tps))] if tpot else []
            pieces += [self._pair("first token", milliseconds(prefilled.ttft_ms))]
            pieces += self._prompt_rate(prefilled.prompt_tps) if step is None else []
        first, *rest = pieces
        row = side_by_side([self.named(first) if self.frameless else first, *rest], width)
        left = width - Segment.get_line_length(row) - GAP
        if not alone or left < _LABEL + LEAST_SIDE or not self._figures.ms:
            return row
        return [*row, Segment(" " * GAP), *self._chart(timeline, left, 1)[0]]

    def _prefilling(self, timeline: Timeline) -> Row:
        done, total = timeline.held, len(timeline.items)
        spent = sum(chunk.ms for chunk in timeline.prompts.chunks)
        return self._pair("prefill", f"{milliseconds(spent)} for {count(done)} of {count(total)} tokens")

    def _rates(self, timeline: Timeline, width: int, deep: bool = False) -> list[Row]:
        """Time to the first token and for each after it, and tokens per second of both.

        Args:
            timeline: The timeline on show.
            width: Cells; if there are few, some of the numbers are left out.
            deep: Whether the 99th percentile is shown.
        """
        prefilled, tpot = timeline.prompts.prefilled, self._figures.tpot()
        if prefilled is None:
            return [self._prefilling(timeline), *self._prompt_rate(timeline.prompts.tps)]
        prompt = self._prompt_rate(prefilled.prompt_tps)
        ttft = "first token", milliseconds(prefilled.ttft_ms)
        first = self._pairs(ttft, mark=f"({COLD})" if prefilled.cold else "")
        if tpot is None:  # no step, or a cold start alone
            cold = [("then", milliseconds(ms)) for ms in self._figures.ms[:1]]
            row = [*first, *self._pairs(*cold, mark=f"({COLD})" if cold else "")]
            if cold and prefilled.cold and Segment.get_line_length(row) > width + GAP:
                row = self._pairs(ttft, *cold, mark=f"(both {COLD})")
            return [row, *prompt]
        slow = scales.ms(tpot.p95)
        then = {"each token": milliseconds(tpot.mean), "p50": scales.ms(tpot.p50), "p95": slow}
        if deep:
            then["p99"] = scales.ms(tpot.p99)
        for drop in ("", "p50", "p99", "p95", "each token"):
            then.pop(drop, None)
            row = [*first, *self._pairs(*then.items())]
            if Segment.get_line_length(row) <= width + GAP:
                break
        below = [*prompt, self._pair("generation", scales.rate(tpot.tps))]
        below += [self._pair("p95", slow)] if "p95" not in then else []
        return [row, side_by_side(below, width)]

    def _prompt_rate(self, tokens_a_second: float) -> list[Row]:
        """The throughput of the prefill; empty if all of it was warm-up."""
        return [self._pair("prompt", scales.prompt_rate(tokens_a_second))] if tokens_a_second else []

    def _pairs(self, *pairs: tuple[str, str], mark: str = "") -> Row:
        """Names in grey and numbers in bold, side by side, with an optional mark after them."""
        muted, strong = self.ink("muted"), self.ink("strong")
        row: Row = []
        for name, value in pairs:
            row += [Segment(f"{name} ", muted), Segment(value, strong), Segment(" " * GAP)]
        if mark:
            row.append(Segment(mark + " " * GAP, self.ink("warn")))
        return row

    def _pair(self, name: str, value: str) -> Row:
        """One name and its number, without blanks after it."""
        return self._pairs((name, value))[:-1]

    # ---- steps ------------------------------------------------------------------------------

    def _chart(
        self, timeline: Timeline, width: int, height: int, widest: int = 1, slow: float = math.inf
    ) -> list[Row]:
        """A chart of the last steps' milliseconds, scaled to the slowest step that is no cold start; the selected one
        has the accent colour.

        Args:
            timeline: The timeline on show.
            width: Cells.
            height: Lines.
            widest: Maximum columns of a step; above 1, the step numbers are drawn under the chart.
            slow: Milliseconds above which steps are marked on a further line; infinite for no such line.
        """
        values = self._figures.ms
        bound = "≤ " if height == 1 else ""  # the time may stand at the end of a line of figures
        room = max(1, width - _LABEL - len(bound))
        wide = max(1, min(widest, room // max(1, len(values))))
        seen = window(len(values), room, timeline.steps_before(timeline.slot))
        current, plain, chosen = step_shown(timeline), self.data(0.2), self.ink("accent")
        part = [values[index] for index in seen for _ in range(wide)]
        inks = [chosen if index == current else plain for index in seen for _ in range(wide)]
        top = max((ms for ms in part if ms not in self._figures.cold), default=max(part, default=0.0))
        rows: list[Row] = []
        for line in area(part, height, top):
            row = list(map(Segment, line, inks))
            if part and not rows:
                label = f"{bound}{scales.ms(top)} ms"
                gap = max(1, width - len(label) - len(part))
                row += [Segment(" " * gap), Segment(label, self.ink("faint"))]
            rows.append(row)
        if slow < math.inf:
            marks = "".join((SLOW if values[index] > slow else " ").center(wide) for index in seen)
            rows.append([Segment(marks, self.ink("warn"))])
        if widest > 1 and (line := axis(str(seen.start + 1), str(seen.stop), len(part), "steps")):
            rows.append([Segment(line, self.ink("faint"))])
        return rows

    def _split(self, step: Step, width: int) -> list[Row]:
        """The parts of one step as a bar, and in numbers."""
        ms, muted = step.ms, self.ink("muted")
        parts = _parts(ms)
        bar: Row = []
        numbers: Row = []
        for (name, fill, level), value, cells in zip(PARTS, parts, shares(parts, width), strict=True):
            ink = self.data(level)
            bar += [Segment(fill * cells, ink)] * bool(cells)
            if name == "inspect" and ms.pipelined:
                continue
            numbers += [Segment(f"{fill} ", ink), Segment(f"{name} ", muted)]
            numbers.append(Segment(f"{scales.ms(value)} "))
        if ms.pipelined:  # the next forward pass runs meanwhile
            numbers += [
                Segment("+ ", muted),
                Segment("inspect ", muted),
                Segment(f"{scales.ms(ms.inspect)} meanwhile "),
            ]
        while Segment.get_line_length(numbers) > width + 1 and len(numbers) > 3:
            del numbers[-3:]
        numbers[-1] = Segment(numbers[-1].text.rstrip())
        return [bar, numbers]
