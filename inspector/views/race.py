"""The race: the same tokens with a KV cache and without one, side by side, as they are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Container

from engine.protocol import Race, RaceStep, Record
from inspector.display import first_fitting, truncate_start, visible
from inspector.documents.race import lane_ms, paces, progress, sums, verdict
from inspector.keys import key_for
from inspector.main.view import View, neighbor
from inspector.scales import milliseconds, size
from inspector.session.requests import failure_words
from inspector.state.measured import Measured, RaceSoFar
from inspector.widgets.actions import Action, ActionTable, Needs, back, both, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row, fact_rows
from inspector.widgets.charts import area, axis, bar, binned, round_top

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens that a race can go to; those beyond the context window are left out."""
FIRST = 16
"""Tokens before the first step."""

Read = Callable[[Sequence[RaceStep], bool], list[float]]
_TWO_FIGURES = 26
"""Cells from which a line has room for two figures."""
_BARS = 3
"""Lines from which both sums have bars."""
_ROOMY = 6
"""Lines from which a lane has all its figures and its axis."""
TWO_CHARTS = 15
"""Lines from which a lane also shows its sum."""
LEVELS = {True: 0.15, False: 0.75}
"""Colours of the lane with the cache, and of the one without."""
ABOUT = "The same tokens twice, with the KV cache and without it: the time of each step, side by side."
LANES = (
    "With the cache, a step runs one token and keeps its keys and values.",
    "Without it, a step runs the whole text again.",
)


def columns(values: Sequence[float], total: int, width: int) -> list[float]:
    """Values binned into the columns of the steps so far; the last step is always in the last of these.

    Args:
        values: One for each step so far, at least one.
        total: Steps of the whole race.
        width: Columns of the whole race.
    """
    return binned(values, max(1, min(width, len(values) * width // max(1, total))))


# ---- the view ---------------------------------------------------------------------------------


RACE_KEYS = screen_table(
    "In a race",
    Action("race.go", "Start", "Start, pause or continue.", lambda own: own.toggle(), Needs.ENGINE,
           hint=lambda own: "pause" if own.job.running else "continue" if own.steps and not own.over else "start",
           worth=9),
    *both(("race.shorter", "race.longer"), ("Shorter", "Longer"), "Race to fewer tokens, or to more.",
          lambda own, by: own.lengthen(by), needs=Needs.ENGINE, worth=6,
          hint=lambda own: "" if own.job.running else "length"),
    Action("race.again", "Again", "Start the race again.", lambda own: own.forget(), Needs.ENGINE, worth=4,
           hint=lambda own: "start over" if own.steps and not own.job.running else ""),
    back("race.leave", "Go back; a race under way pauses."),
)  # fmt: skip


class RaceView(View):
    """Runs races; the session and its cache stay as they are. The timeline has the results of the last race."""

    TOOL: ClassVar[str] = "race"
    WHOLE: ClassVar[bool] = True
    ACTIONS: ClassVar[ActionTable] = RACE_KEYS
    MEASURES: ClassVar[str] = "A race"
    STARTS = (Race,)
    TELLING = (RaceStep,)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._asked = 128
        self._stepping = False
        """True once the work before the first step is done."""

    def body(self) -> ComposeResult:
        with Container(id="race-lanes"):
            yield DrawnPanel(id="race-cached")
            yield DrawnPanel(id="race-uncached")
        yield DrawnPanel(id="race-totals")

    def begin(self) -> None:
        """Forget a race over another text; keep the length within the window."""
        if self.recorded:
            return
        if self.race is not None and self.race.opened.node != self.timeline.tip:
            self.forget()
        if self._asked not in self.lengths:
            self._asked = max((each for each in self.lengths if each <= self._asked), default=self.lengths[0])

    # ---- the race ---------------------------------------------------------------------------

    @property
    def race(self) -> RaceSoFar | None:
        """The last race, live or recorded up to the replay's present place."""
        return self.timeline.of(Measured).race

    @property
    def steps(self) -> list[RaceStep]:
        """The race's steps so far."""
        return self.race.steps if self.race else []

    @property
    def last(self) -> int:
        """Tokens to race to; in a replay, the recorded number."""
        return self.race.opened.last if self.recorded and self.race else self._asked

    @property
    def first(self) -> int:
        """Tokens before the first step."""
        return self.race.opened.first if self.race else FIRST

    @property
    def tokens(self) -> int:
        """Tokens of the sequence so far."""
        return self.steps[-1].tokens if self.steps else FIRST

    @property
    def over(self) -> bool:
        """True if the race reached its length."""
        return bool(self.steps) and self.tokens >= self.last

    @property
    def lengths(self) -> list[int]:
        """The lengths within this model's context window."""
        facts = self.timeline.facts
        window = facts.context_window if facts else None
        return [each for each in LENGTHS if window is None or each <= window] or [window or LENGTHS[0]]

    def forget(self) -> None:
        """Begin again from the first step."""
        self.job.stop()
        self.timeline.of(Measured).race = None
        self.job.failures.clear()

    def lengthen(self, by: int) -> None:
        """Race to another length; not during a race, and not to a length that was passed already."""
        if self.job.running:
            return
        allowed = [each for each in self.lengths if each >= self.tokens] or [self._asked]
        self._asked = neighbor(allowed, self._asked if self._asked in allowed else allowed[0], by)

    def toggle(self) -> None:
        """Start, pause or continue; a race that is over starts again."""
        if self.job.stop():
            return
        if self.over:
            self.forget()
        self._stepping = False
        self.job.start(Race(self.tokens, self._asked), each=self._raced)

    def _raced(self, record: Record) -> None:
        self._stepping = isinstance(record, RaceStep)

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        self.set_class(not self.steps, "-empty")
        for cached, id in ((True, "#race-cached"), (False, "#race-uncached")):
            lane = self.query_one(id, DrawnPanel)
            cache = "" if 0 < lane.size.width < _TWO_FIGURES else " a KV cache" if cached else " a cache"
            lane.put(f"With{cache}" if cached else f"Without{cache}", partial(self._lane, cached))
        title = "Together" if self.steps else "With and without a KV cache"
        self.query_one("#race-totals", DrawnPanel).put(title, self._together)
        name, span = self.model_name, f"{self.first} to {self.last} tokens"
        what = "recorded" if self.recorded else "the same tokens with and without a KV cache"
        forms = f"Race · {what} · {name} · {span}", f"Race · {name} · {span}", f"Race · {span}"
        self.write(first_fitting(self.area.width - 2, *forms))

    def _lane(self, cached: bool, on: Canvas, width: int, height: int) -> list[Row]:
        """One lane: its figures, and its times over the tokens."""
        if not self.steps:
            return []
        rows = _figures(on, self.steps, cached, width)
        ends = [[Segment(axis(str(self.first), str(self.last), width, "tokens"), on.ink("faint"))]]
        if height < _ROOMY:  # the times come first
            rows, ends = rows[: 1 if width >= _TWO_FIGURES else 2], ends if height > 3 else []
        room = height - len(rows) - len(ends)
        upper = room * 3 // 5 if room >= TWO_CHARTS else room
        rows += self._chart(on, cached, "ms a step", lane_ms, upper - 1, width)
        if upper < room:
            rows += self._chart(on, cached, "sum", sums, room - upper - 1, width)
        return [*rows, *ends]

    def _chart(self, on: Canvas, cached: bool, name: str, read: Read, height: int, width: int) -> list[Row]:
        """One quantity over the tokens, in the scale of the slower lane."""
        total = self.last - self.first
        own, other = (columns(read(self.steps, lane), total, width) for lane in (cached, not cached))
        top = round_top(max((*own, *other)))
        ink, upto = on.data(LEVELS[cached]), f"up to {milliseconds(top)}"
        named = f"{name}, " if len(name) + 2 + len(upto) <= width else ""
        head = [Segment(named, on.ink("muted")), Segment(upto, on.ink("faint"))]
        return [head, *([Segment(line, ink)] for line in area(own, height, top))]

    def _together(self, on: Canvas, width: int, height: int) -> list[Row]:
        """Both sums as bars, the factor, whether the tokens are the same, and the text."""
        muted, steps, race = on.ink("muted"), self.steps, self.race
        if race is None or not steps:
            return self.empty(on, width, height, ABOUT, *LANES)
        facts, bars = verdict(steps), list[Row]()
        if height >= _BARS:
            text = visible("".join(step.text for step in steps[-width:]))
            facts += [("text", truncate_start(text, max(8, width - 15))), ("how", race.opened.how)]
            totals = ((True, steps[-1].cached_total_ms), (False, steps[-1].uncached_total_ms))
            top, room = max(total for _, total in totals), max(4, width - 22)
            bars = [
                [
                    Segment(("with" if cached else "without").ljust(13), muted),
                    Segment(bar(total / top if top else 0.0, room).rstrip(), on.data(LEVELS[cached])),
                    Segment(f" {milliseconds(total)}", on.ink("strong")),
                ]
                for cached, total in totals
            ]
        return [*bars, *fact_rows(facts, width, muted, on.rich_style, height - len(bars))]

    def situation(self) -> str:
        """The state of the race, and the keys that matter now."""
        go = key_for("race.go")
        if self.recorded:
            if not self.steps:
                return f"No race was recorded up to here. {self.needs_model}"
            return f"Recorded, {self.tokens} of {self.last} tokens. {self.needs_model}"
        if (failure := self.job.failure) is not None:
            return failure_words(failure)
        if self.job.running:
            if (waiting := self.job.progress) is not None and not self._stepping:
                return f"Getting ready: {visible(waiting.detail)} {waiting.done}/{waiting.total}"
            race, steps = self.race, self.steps
            return progress(race.opened, steps[-1]) if race and steps else "Getting ready"
        if not self.steps:
            return f"Press {go} to race this text to {self.last} tokens, ← → for another length"
        if self.over:
            longer = ", after → to more" if self.last < self.lengths[-1] else ""
            return f"{self.tokens} tokens reached. Press {go} to race again{longer}"
        paused = f"Paused at {self.tokens} of {self.last} tokens"
        return f"{paused}. Press {go} to continue, {key_for('race.again')} to start again"


def _figures(on: Canvas, steps: Sequence[RaceStep], cached: bool, width: int) -> list[Row]:
    last, muted, strong, wide = steps[-1], on.ink("muted"), on.ink("strong"), width >= 34
    total = last.cached_total_ms if cached else last.uncached_total_ms
    per_step = [
        Segment(milliseconds(paces(steps, cached)[1]), strong),
        Segment(" a step   " if wide else " each" if width < _TWO_FIGURES else " · ", muted),
    ]
    whole = [Segment(milliseconds(total), strong), Segment(" so far" if wide else " in all", muted)]
    if width < _TWO_FIGURES:
        return [per_step, whole]
    work = "1 token" if cached else f"{last.tokens} tokens"
    kept = f"{size(last.kv_bytes)} kept" if cached else f"{size(last.passed_bytes)} dropped"
    return [[*per_step, *whole], [Segment(f"{work}{' a step' if wide else ''}, {kept}", muted)]]
