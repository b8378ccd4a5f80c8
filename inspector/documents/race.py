"""A race in words, characters and an export: how far it is, its table, chart and verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from xml.etree.ElementTree import Element

from rich.segment import Segment

from engine.protocol import RaceOpened, RaceStep
from inspector.blocks.blocks import GAP, Block, Drawn, Facts, Table, TableRow, number
from inspector.blocks.page import element, hint, page_table
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import count, milliseconds, ms, size
from inspector.state.measured import Measured
from inspector.widgets.charts import axis, curves, progress_bar, round_top

WINDOWS = 12
"""Maximum lines of the table."""
CHART_ROWS = 10
LEFT, RIGHT = 10, 26
"""Cells to the left and right of the chart: the scale, and what each curve is."""
LEAST_CHART, MOST_CHART = 24, 90
ROOM = 1.1
"""Height of the chart in multiples of the highest median of a window; steps beyond it are drawn at the edge."""
COLUMNS = (
    number("tokens"), number("cache"), number("no cache"), number("times"), number("cache so far"),
    number("no cache so far"), number("KV held", 3), number("KV dropped", 2),
)  # fmt: skip
RECENT = 7
"""Number of steps whose median is shown as the pace at the beginning and now, so that the figures are steady."""


def progress(opened: RaceOpened, step: RaceStep) -> str:
    """The progress of a race and the time left, assuming that the time per token stays the same."""
    total, done = opened.last - opened.first, step.tokens - opened.first
    left = opened.last - step.tokens
    passes = step.uncached_ms / step.tokens * left * (step.tokens + opened.last + 1) / 2
    rest = milliseconds(passes + left * step.cached_ms)
    return f"{progress_bar(done, total)} {step.tokens}/{opened.last} tokens, about {rest} left"


def document(opened: RaceOpened, steps: Sequence[RaceStep]) -> Iterator[Block]:
    """The table, the chart, the verdict and how it was measured; there must be at least one step."""
    yield Table(COLUMNS, [*map(_row, windows(steps))], whole=True)
    yield GAP
    yield Drawn(
        lambda on, width, height: [[Segment(line)] for line in chart(steps, width)], (CHART_ROWS + 3,) * 2
    )
    cached, uncached = milliseconds(steps[-1].cached_total_ms), milliseconds(steps[-1].uncached_total_ms)
    sums = "all steps", f"{cached} with a cache, {uncached} without"
    yield Facts((sums, *verdict(steps), ("how", opened.how)))


def windows(steps: Sequence[RaceStep], most: int = WINDOWS) -> list[Sequence[RaceStep]]:
    """The steps in windows of about equal length."""
    count = min(most, len(steps))
    edges = [n * len(steps) // count for n in range(count + 1)]
    return [steps[low:high] for low, high in pairwise(edges)]


def _row(window: Sequence[RaceStep]) -> TableRow:
    """Medians of a window of steps, and the sums at its end."""
    cached, uncached = (median_ms(window, lane) for lane in (True, False))
    end = window[-1]
    span = str(end.tokens) if len(window) == 1 else f"{window[0].tokens}-{end.tokens}"
    return TableRow((
        span, f"{ms(cached)} ms", f"{ms(uncached)} ms", f"{uncached / cached:.1f}",
        milliseconds(end.cached_total_ms), milliseconds(end.uncached_total_ms),
        size(end.kv_bytes), size(end.passed_bytes),
    ))  # fmt: skip


def chart(steps: Sequence[RaceStep], columns: int) -> list[str]:
    """The milliseconds per step of both lanes over the tokens, each curve named at its end."""
    width = max(LEAST_CHART, min(MOST_CHART, columns - LEFT - RIGHT))
    lanes = [lane_ms(steps, cached) for cached in (False, True)]
    without, cached = (median_ms(steps[-max(1, len(steps) // 12) :], lane) for lane in (False, True))
    highest = max(median_ms(each, lane) for each in windows(steps, 2 * WINDOWS) for lane in (True, False))
    top = round_top(ROOM * highest)
    lines = ["".join(cell.char for cell in line) for line in curves(lanes, width, CHART_ROWS, top)]
    names = {
        _line_of(cached, top): f" with a cache {ms(cached)} ms",
        _line_of(without, top): f" without one {ms(without)} ms",
    }
    if len(names) == 1:  # too close for two lines
        names = {_line_of(without, top): f" with {ms(cached)}, without {ms(without)} ms"}
    marks = {0: ms(top), CHART_ROWS // 2: ms(top / 2), CHART_ROWS - 1: "0"}
    rows = [
        f"{marks.get(n, ''):>{LEFT - 2}} {'┤' if n in marks else '│'}{line}{names.get(n, '')}".rstrip()
        for n, line in enumerate(lines)
    ]
    foot = axis(str(steps[0].tokens), str(steps[-1].tokens), width, "tokens")
    return ["  ms a step", *rows, " " * (LEFT - 1) + "└" + "─" * width, " " * LEFT + foot]


def _line_of(value: float, top: float) -> int:
    return CHART_ROWS - 1 - min(CHART_ROWS - 1, int(value / top * CHART_ROWS))


ROUNDED = 1.0
"""Largest difference of two logits that rounding explains, also in bfloat16."""


def lane_ms(steps: Sequence[RaceStep], cached: bool) -> list[float]:
    """Milliseconds of each step, in one lane."""
    return [step.cached_ms if cached else step.uncached_ms for step in steps]


def sums(steps: Sequence[RaceStep], cached: bool) -> list[float]:
    """Milliseconds of all steps so far, in one lane."""
    return [step.cached_total_ms if cached else step.uncached_total_ms for step in steps]


def median_ms(steps: Sequence[RaceStep], cached: bool) -> float:
    """Median milliseconds of some steps, in one lane."""
    return statistics.median(lane_ms(steps, cached))


def paces(steps: Sequence[RaceStep], cached: bool) -> tuple[float, float]:
    """Milliseconds of a step at the beginning and now: the medians of the first and the last few."""
    return median_ms(steps[:RECENT], cached), median_ms(steps[-RECENT:], cached)


def verdict(steps: Sequence[RaceStep]) -> list[tuple[str, str]]:
    """The result of the race, as names and sentences."""
    last, largest = steps[-1], max(step.largest_difference for step in steps)
    whole = last.uncached_total_ms / last.cached_total_ms if last.cached_total_ms else 0.0
    lanes = {"with": paces(steps, True), "without": paces(steps, False)}
    now = lanes["without"][1] / max(1e-9, lanes["with"][1])
    changes = ", ".join(f"{ms(begin)} → {ms(end)} ms {name}" for name, (begin, end) in lanes.items())
    logits = f"the logits differ by {largest:.2g} at most" if largest else "and the logits bit for bit"
    if largest > ROUNDED:
        logits += ", more than by rounding: the cache is quantized, or has dropped tokens"
    unequal = [step.tokens for step in steps if not step.equal]
    same = f"all {len(steps)} the same, {logits}"
    if unequal:
        same = f"{len(unequal)} of {len(steps)} differ, first after {unequal[0]} tokens; {logits}"
    return [
        ("the cache", f"{whole:.1f} times faster in all, {now:.1f} at {last.tokens} tokens"),
        ("growth", f"medians of {min(RECENT, len(steps))} steps: {changes}"),
        ("tokens", same),
    ]


def _both(steps: Sequence[RaceStep]) -> Iterator[Element]:
    """Both lanes of a race: each step's time as a line, and the first and the last steps."""
    if not steps:
        return
    lanes = {"uncached": lane_ms(steps, False), "cached": lane_ms(steps, True)}
    most, across = max(map(max, lanes.values())) or 1.0, max(1, len(steps) - 1)
    lines = (
        element("path", class_=name, d="M" + "L".join(
            f"{100 * place / across:.2f} {49 - 48 * value / most:.2f}" for place, value in enumerate(values)))
        for name, values in lanes.items()
    )  # fmt: skip
    yield element("svg", *lines, viewBox="0 0 100 50", preserveAspectRatio="none", class_="race",
                  aria_hidden="true")  # fmt: skip
    yield hint("Time of a step as the text grows: dashed without the cache, solid with it.")
    rows = [
        TableRow((
            count(each.tokens), milliseconds(each.cached_ms), milliseconds(each.uncached_ms), size(each.kv_bytes),
        ))
        for each in (steps[place] for place in sorted({0, len(steps) // 2, len(steps) - 1}))
    ]  # fmt: skip
    columns = number("tokens"), number("with cache"), number("without"), number("KV")
    yield page_table(Table(columns, rows), "plain", "Both lanes")
    last, equal = steps[-1], all(each.equal for each in steps)
    same = "The same tokens in both lanes" if equal else "The lanes took other tokens"
    yield hint(f"All steps: {milliseconds(last.cached_total_ms)} with the cache, "
               f"{milliseconds(last.uncached_total_ms)} without. {same}.")  # fmt: skip


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    if (race := of.timeline.of(Measured).race) is not None and race.steps:
        yield Exhibit("race", "With the KV cache and without", partial(_both, race.steps))


RACE_PART = ExportPart(
    "race",
    _exhibits,
    beat=lambda timeline, since, beat: _both([each for each in since if isinstance(each, RaceStep)]),
)
