"""Pages of time and cache: one step's parts, its layers and the roofline; the KV cache at other bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.content import Content

from engine import protocol
from engine.protocol import (
    CompareKV,
    KVCompared,
    Measure,
    MeasureRoofline,
    Profile,
    Profiled,
    RooflineMeasured,
)
from inspector.blocks.paint import Painter
from inspector.display import visible
from inspector.documents.costs import fewer_bits, layers, parts, roof
from inspector.keys import key_for
from inspector.main.view import View
from inspector.state.measured import Measured
from inspector.widgets.actions import Action, ActionTable, Needs, back, both, note, screen_table
from inspector.widgets.canvas import Canvas, PageView, Row, centred
from inspector.widgets.charts import progress_bar

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

PARTS, LAYERS, ROOFLINE, BITS = range(4)
"""The pages."""
PAGES = ("Parts of a step", "Layers", "Roofline", "Other KV bits")
SHORT = ("Parts", "Layers", "Roofline", "Other KV bits")
NEEDS: tuple[tuple[type[Measure], ...], ...] = (
    (Profile, MeasureRoofline),
    (Profile,),
    (MeasureRoofline,),
    (CompareKV,),
)
"""The measurements of each page; it can't be drawn without the first."""

COST_KEYS = screen_table(
    "While a step is taken apart",
    *both(("costs.next_page", "costs.page_before"), ("Next page", "Previous page"),
          "Show the next page, or the previous one.", lambda own, by: own.turn(by), by=(1, -1), one=True,
          hint=lambda own: "page" if len(own.pages) > 1 else "", worth=9, place=-2),
    Action("costs.again", "Again", "Measure again; while that runs, stop it.", lambda own: own.measure_again(),
           Needs.ENGINE, hint=lambda own: "stop" if own.job.running else "again", worth=6),
    note("up down", "Scroll the page.", "scroll", 5, place=-1),
    note("pageup pagedown", "Scroll the page."),
    back("costs.leave", "Go back; a measurement stops."),
)  # fmt: skip


class CostsView(View):
    """Measures the next step, on copies: the session stays as it is. The timeline has the results."""

    TOOL: ClassVar[str] = "costs"
    ACTIONS: ClassVar[ActionTable] = COST_KEYS
    MEASURES: ClassVar[str] = "A profile"
    STARTS = (Profile, MeasureRoofline, CompareKV)
    TELLING = (Profiled, RooflineMeasured, KVCompared)
    AUTO_FOCUS = "#cost-view"

    view = getters.query_one("#cost-view", PageView)

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.page = PARTS
        self.pages: tuple[int, ...] = (PARTS, LAYERS, ROOFLINE)
        self._node: int | None = None
        """The token after which the last measurements were made."""

    def body(self) -> ComposeResult:
        yield PageView(id="cost-view")

    def begin(self) -> None:
        """Show the page of the key that was pressed and measure what it needs; drop results from another token."""
        measured = self.measured
        if not self.recorded and self._node != self.timeline.tip:
            self._node = self.timeline.tip
            measured.profiled = measured.roofline = measured.compared = None
            self.job.failures.clear()
        first = ROOFLINE if self.recorded and measured.profiled is None else PARTS
        of_cache = self.opener == "compare_kv"
        self.pages = (BITS,) if of_cache else (PARTS, LAYERS, ROOFLINE)
        self.host.go_to(self.host.table.on_row(self.opener))  # where esc goes back to
        self.show_page(BITS if of_cache else first)

    # ---- measuring --------------------------------------------------------------------------

    @property
    def measured(self) -> Measured:
        """The measurements, live or recorded."""
        return self.timeline.of(Measured)

    def result(self, kind: type[Measure]) -> Profiled | RooflineMeasured | KVCompared | None:
        """The result of a kind of measurement so far."""
        found = self.measured
        return {Profile: found.profiled, MeasureRoofline: found.roofline, CompareKV: found.compared}[kind]

    def show_page(self, page: int) -> None:
        """Show a page, and start those of its measurements that are neither known, failed nor under way."""
        self.page = page
        if self.recorded:
            return
        asked = {type(command) for command in self.job.commands}
        for kind in NEEDS[page]:
            found = self.result(kind)
            known = found is not None and (not isinstance(found, KVCompared) or found.last)
            if not (known or kind in asked or kind.kind in self.job.failures):
                self.job.start(kind())

    def turn(self, by: int) -> None:
        if len(self.pages) == 1:
            self.say(f"There is one page. {key_for('profile')} takes a step apart")
        else:
            self.show_page(self.pages[(self.pages.index(self.page) + by) % len(self.pages)])

    def measure_again(self) -> None:
        """Measure again, or stop."""
        if not self.job.stop():
            self.job.start(*(kind() for kind in NEEDS[self.page]))

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        self.view.put(PAGES[self.page], self._draw)
        names = PAGES if self.area.width >= 72 else SHORT
        tabs = (
            Content.styled(f" {names[page]} ", "reverse bold" if page == self.page else "")
            for page in self.pages
        )
        self.write(Content(" ").join(tabs), self._failure is not None)

    @property
    def _shown(self) -> Profiled | RooflineMeasured | KVCompared | None:
        """The result that the page is drawn from."""
        return self.result(NEEDS[self.page][0])

    @property
    def _failure(self) -> protocol.Failure | None:
        return self.job.failures.get(NEEDS[self.page][0].kind)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        match shown := self._shown:
            case Profiled():
                blocks = layers(shown) if self.page == LAYERS else parts(shown, self.measured.roofline)
            case RooflineMeasured():
                blocks = roof(shown)
            case KVCompared():
                blocks = fewer_bits(shown)
            case None:
                return self._empty(on, width, height)
        return Painter(on).draw(blocks, width, height)

    def _empty(self, on: Canvas, width: int, height: int) -> list[Row]:
        """Why there is no result yet."""
        failure = self._failure
        said = ("Nothing measured yet.", f"Press {key_for('costs.again')} to measure.")
        if self.recorded:
            said = "Not recorded up to here.", f"{self.needs_model}."
        elif failure is not None:
            said = visible(failure.message), visible(failure.hint)
        elif self.job.running:
            said = "Measuring, on a copy of the KV cache.", ""
        inks = on.rich_style if failure is None else on.ink("bad"), on.ink("muted")
        return centred([(text, ink) for text, ink in zip(said, inks, strict=True) if text], width, height)

    def situation(self) -> str:
        shown, again = self._shown, f"Press {key_for('costs.again')} to measure again"
        if self.recorded:
            if shown is None:
                return self.needs_model
            tokens = shown.decode.context - 1 if isinstance(shown, RooflineMeasured) else shown.tokens
            return f"Recorded after {tokens:,} tokens. {self.needs_model}"
        if self.job.running:
            if (now := self.job.progress) is None:
                return "Getting ready"
            return f"{progress_bar(now.done, now.total)} {visible(now.detail)} {now.done}/{now.total}"
        if self._failure is not None:
            return visible(self._failure.message)
        if isinstance(shown, Profiled):
            return f"The step after {shown.tokens:,} tokens, {shown.repeats} times. {again}"
        return again
