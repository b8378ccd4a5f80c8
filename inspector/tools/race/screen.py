"""The screen of the race: the same tokens with a KV cache and without one, side by side, as they are measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import getters
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content

from engine.protocol import RaceStep, Record
from inspector.display import truncate_start, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import milliseconds, ms, size
from inspector.tools.race.control import RACE_SCREEN, RaceControl
from inspector.tools.race.report import progress
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import PanelCanvas, Row, centred, fact_rows
from inspector.widgets.charts import area, axis, bar, binned, round_top

Read = Callable[[Sequence[RaceStep], bool], list[float]]
RECENT = 7
"""Steps whose median is shown as the present pace, so that the figure can be read."""
_TWO_FIGURES = 26
"""Cells from which on a line holds two figures."""
_BARS = 3
"""Lines from which on both sums have bars."""
TWO_CHARTS = 15
"""Lines from which on a lane shows its sum too."""
ABOUT = {
    True: ("Keeps the keys and values of all tokens.", "A step runs one token."),
    False: ("Keeps nothing.", "A step runs the whole sequence again."),
}


# ---- figures ------------------------------------------------------------------------------------


def lane_ms(steps: Sequence[RaceStep], cached: bool) -> list[float]:
    """Milliseconds of each step, in one lane."""
    return [step.cached_ms if cached else step.uncached_ms for step in steps]


def sums(steps: Sequence[RaceStep], cached: bool) -> list[float]:
    """Milliseconds of all steps so far, in one lane."""
    return [step.cached_total_ms if cached else step.uncached_total_ms for step in steps]


def pace(steps: Sequence[RaceStep], cached: bool) -> float:
    """Milliseconds of a step now: the median of the last few."""
    return statistics.median(lane_ms(steps[-RECENT:], cached))


def columns(values: Sequence[float], total: int, width: int) -> list[float]:
    """As many columns as belong to the steps so far; the last step is always in the last column.

    Args:
        values: One for each step so far, at least one.
        total: Steps of the whole race.
        width: Columns of the whole race.
    """
    return binned(values, max(1, min(width, len(values) * width // max(1, total))))


def verdict(steps: Sequence[RaceStep]) -> list[tuple[str, str]]:
    """The result of the race, as names and sentences."""
    last, largest = steps[-1], max(step.largest_difference for step in steps)
    whole = last.uncached_total_ms / last.cached_total_ms if last.cached_total_ms else 0.0
    now = pace(steps, False) / max(1e-9, pace(steps, True))
    logits = f"the logits differ by {largest:.2g} at most" if largest else "and the logits bit for bit"
    unequal = [step.tokens for step in steps if not step.equal]
    same = f"all {len(steps)} the same, {logits}"
    if unequal:
        same = f"{len(unequal)} of {len(steps)} differ, first after {unequal[0]} tokens; {logits}"
    return [
        (
            "the cache",
            f"{whole:.1f} times faster in all, {now:.1f} at {last.tokens} tokens",
        ),
        ("growth", _growth(steps)),
        ("tokens", same),
    ]


def _growth(steps: Sequence[RaceStep]) -> str:
    """The growth of the time of a step in each lane."""
    begin, end = steps[: 2 * RECENT], steps[-2 * RECENT :]
    changes = [
        f"{ms(statistics.median(lane_ms(begin, cached)))} → {ms(statistics.median(lane_ms(end, cached)))} ms {name}"
        for cached, name in ((True, "with"), (False, "without"))
    ]
    return "a step went from " + ", ".join(changes)


# ---- the lanes and what they come to ------------------------------------------------------------


class RaceLane(PanelCanvas):
    """One lane.

    Args:
        cached: Whether it is the one with the cache.
        id: Of the widget.
    """

    def __init__(self, cached: bool, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cached = cached
        self.steps: Sequence[RaceStep] = ()
        self.first, self.last = 0, 0

    def put(self, steps: Sequence[RaceStep], first: int, last: int) -> None:
        """Show the steps so far.

        Args:
            steps: Of both lanes, so that both have one scale.
            first: Tokens before the first step.
            last: Tokens that the race goes to.
        """
        self.steps, self.first, self.last = steps, first, last
        cache = "" if 0 < self.size.width < _TWO_FIGURES else " a KV cache" if self.cached else " a cache"
        self.title(Content(f"With{cache}" if self.cached else f"Without{cache}"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if not self.steps:
            reason, more = ABOUT[self.cached]
            return centred([(reason, self.rich_style), (more, self.ink("muted"))], width, height)
        room = height - 3
        both = room >= TWO_CHARTS
        upper = room * 3 // 5 if both else room
        rows = [*self._figures(width), *self._chart("ms a step", lane_ms, upper - 1, width)]
        rows += self._chart("sum", sums, room - upper - 1, width) if both else []
        return [*rows, self._foot(width)]

    def _figures(self, width: int) -> list[Row]:
        last, muted, strong = self.steps[-1], self.ink("muted"), self.ink("strong")
        total = last.cached_total_ms if self.cached else last.uncached_total_ms
        wide = width >= 34
        work = "1 token" if self.cached else f"{last.tokens} tokens"
        kept = f", {size(last.kv_bytes)} kept" if self.cached else f", {size(last.passed_bytes)} dropped"
        per_step = [
            Segment(milliseconds(pace(self.steps, self.cached)), strong),
            Segment(" a step   " if wide else " each" if width < _TWO_FIGURES else " · ", muted),
        ]
        whole = [Segment(milliseconds(total), strong), Segment(" so far" if wide else " in all", muted)]
        if width < _TWO_FIGURES:
            return [per_step, whole]
        return [[*per_step, *whole], [Segment(f"{work} a step{kept}" if wide else f"{work}{kept}", muted)]]

    def _chart(self, name: str, read: Read, height: int, width: int) -> list[Row]:
        """One quantity over the tokens, in the scale of the slower lane."""
        total = self.last - self.first
        own, other = (
            columns(read(self.steps, cached), total, width) for cached in (self.cached, not self.cached)
        )
        top = round_top(max((*own, *other)))
        ink = self.data(0.15 if self.cached else 0.75)
        upto = f"up to {milliseconds(top)}"
        named = f"{name}, " if len(name) + 2 + len(upto) <= width else ""
        head = [Segment(named, self.ink("muted")), Segment(upto, self.ink("faint"))]
        return [head, *([Segment(line, ink)] for line in area(own, height, top))]

    def _foot(self, width: int) -> Row:
        return [Segment(axis(str(self.first), str(self.last), width, "tokens"), self.ink("faint"))]


class RaceTotals(PanelCanvas):
    """Both sums as bars, the factor, whether the tokens are the same, and the text."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.steps: Sequence[RaceStep] = ()
        self.how = ""

    def put(self, steps: Sequence[RaceStep], how: str) -> None:
        """Show what the steps so far come to, and how it was measured."""
        self.steps, self.how = steps, how
        self.title(Content("Together"))
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        if self.steps and height < _BARS:
            facts = verdict(self.steps)
            return fact_rows(facts, width, self.ink("muted"), self.rich_style, height)
        if not self.steps:
            words = (
                "The same prompt and the same tokens in both lanes, one step of each in turn, both measured."
            )
            return centred([(words, self.ink("muted"))], width, height)
        facts = [*verdict(self.steps), ("text", self._tail(width)), ("how", self.how)]
        bars = self._bars(width)
        return [*bars, *fact_rows(facts, width, self.ink("muted"), self.rich_style, height - len(bars))]

    def _bars(self, width: int) -> list[Row]:
        last = self.steps[-1]
        both = (("with", last.cached_total_ms, 0.15), ("without", last.uncached_total_ms, 0.75))
        top = max(total for _, total, _ in both)
        room = max(4, width - 13 - 9)
        rows: list[Row] = []
        for name, total, level in both:
            drawn = bar(total / top if top else 0.0, room).rstrip()
            number = Segment(f" {milliseconds(total)}", self.ink("strong"))
            rows.append(
                [Segment(name.ljust(13), self.ink("muted")), Segment(drawn, self.data(level)), number]
            )
        return rows

    def _tail(self, width: int) -> str:
        """The end of the text that both go through, on one line."""
        text = visible("".join(step.text for step in self.steps[-width:]))
        room = max(8, width - 15)
        return truncate_start(text, room)


# ---- the screen ---------------------------------------------------------------------------------


class RaceScreen(ToolScreen[None]):
    """Races; the session and its cache stay as they are.

    Args:
        host: The main screen.
        control: Knows the engine and the state of the race.
    """

    TOOL: ClassVar[str] = "race"
    ACTIONS: ClassVar[ActionTable] = RACE_SCREEN
    MEASURES: ClassVar[str] = "A race"
    TELLING: ClassVar[tuple[type[Record], ...]] = (RaceStep,)
    AUTO_FOCUS = ""

    cached = getters.query_one("#race-cached", RaceLane)
    uncached = getters.query_one("#race-uncached", RaceLane)
    totals = getters.query_one("#race-totals", RaceTotals)

    def __init__(self, host: Host, control: RaceControl) -> None:
        super().__init__(host, control.job)
        self.control = control

    def body(self) -> ComposeResult:
        with Container(id="race-lanes"):
            yield RaceLane(True, id="race-cached")
            yield RaceLane(False, id="race-uncached")
        yield RaceTotals(id="race-totals")

    def on_mount(self) -> None:
        """Forget a race over another text."""
        self.control.enter()

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        control = self.control
        for lane in (self.cached, self.uncached):
            lane.put(control.steps, control.first, control.last)
        self.totals.put(control.steps, control.opened.how if control.opened else "")
        self._write()

    def _write(self) -> None:
        """The lines around the lanes."""
        facts = self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        span = f"{self.control.first} to {self.control.last} tokens"
        what = "recorded" if self.recorded else "the same tokens with and without a KV cache"
        places = (f"Race · {what} · {name} · {span}", f"Race · {name} · {span}", f"Race · {span}")
        self.write(next((each for each in places if cell_len(each) <= self.area.width - 2), places[-1]))

    def situation(self) -> str:
        """The state of the race, and the keys that matter now."""
        control = self.control
        if self.recorded:
            return self._recorded()
        if control.job.failure is not None:
            return visible(f"{control.job.failure.message} {control.job.failure.hint}".strip())
        if not control.job.running:
            return self._idle()
        if control.progress is not None or not control.steps or control.opened is None:
            waiting = control.progress
            return (
                f"Getting ready: {visible(waiting.detail)} {waiting.done}/{waiting.total}"
                if waiting
                else "Getting ready"
            )
        return progress(control.opened, control.steps[-1])

    def _recorded(self) -> str:
        """The progress of the recorded race at this place."""
        control = self.control
        if not control.steps:
            return f"No race was recorded up to here. {self.needs_model}"
        return f"Recorded, {control.tokens} of {control.last} tokens. {self.needs_model}"

    def _idle(self) -> str:
        control, go = self.control, key_for("race.go")
        if not control.steps:
            return f"Press {go} to race to {control.last} tokens, ← → for another length"
        if control.over:
            longer = f", → and {go} continues to more" if control.last < control.lengths[-1] else ""
            return f"{control.tokens} tokens reached. Press {go} to race again{longer}"
        paused = f"Paused at {control.tokens} of {control.last} tokens"
        return f"{paused}. Press {go} to continue, {key_for('race.again')} to start again"

    @property
    def doing(self) -> str:
        """The word for the key that starts."""
        control = self.control
        return "pause" if control.job.running else "go on" if control.steps and not control.over else "start"

    # ---- keys -------------------------------------------------------------------------------

    def lengthen(self, by: int) -> None:
        """Race to another length."""
        if not self.control.job.running:
            self.control.lengthen(by)
