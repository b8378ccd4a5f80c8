"""The screen of what one step costs, a page each: its parts, its layers, the roofline, and quantized KV."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.content import Content

from engine import protocol
from engine.protocol import CompareKV, Measure, MeasureRoofline, Profile
from inspector.blocks.paint import Painter
from inspector.display import visible
from inspector.documents.costs import fewer_bits, layers, parts, roof
from inspector.keys import key_for
from inspector.main.view import View
from inspector.tools.costs.control import BITS, COST_SCREEN, LAYERS, PARTS, CostControl
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, PageView, Row, centred
from inspector.widgets.charts import bar

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

PAGES = ("Parts of a step", "Layers", "Roofline", "KV cache at fewer bits")
SHORT = ("Parts", "Layers", "Roofline", "Bits")
NEEDS: tuple[tuple[type[Measure], ...], ...] = (
    (Profile, MeasureRoofline),
    (Profile,),
    (MeasureRoofline,),
    (CompareKV,),
)
"""The measurements of each page; it can't be drawn without the first."""
BAR = 16


class ProfileScreen(View[None]):
    """Measures the step to come, on copies: the session stays as it is.

    Args:
        host: The main screen.
        control: Asks the engine and keeps what was measured.
        page: The one to begin with.
    """

    TOOL: ClassVar[str] = "costs"
    ACTIONS: ClassVar[ActionTable] = COST_SCREEN
    MEASURES: ClassVar[str] = "A profile"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (
        protocol.Profiled,
        protocol.RooflineMeasured,
        protocol.KVCompared,
    )
    AUTO_FOCUS = "#cost-view"

    view = getters.query_one("#cost-view", PageView)

    def __init__(self, host: MainScreen, control: CostControl, page: int = PARTS) -> None:
        super().__init__(host, control.job)
        self.control = control
        self._turn_to(page)

    def body(self) -> ComposeResult:
        yield PageView(id="cost-view")

    def on_mount(self) -> None:
        """Ask for what the page needs."""
        self.control.enter()
        self.control.want(*NEEDS[self.page])

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.view.put(PAGES[self.page], self._draw)
        self.write(self._tabs(), self._failure is not None)

    def _tabs(self) -> Content:
        """The pages, the present one reversed."""
        names = PAGES if self.area.width >= 72 else SHORT
        parts = [
            Content.styled(f" {name} ", "reverse bold" if n == self.page else "")
            for n, name in enumerate(names)
        ]
        return Content(" ").join(parts)

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        control = self.control
        match self.page:
            case 0 if control.profiled is not None:
                blocks = parts(control.profiled, control.roofline)
            case 1 if control.profiled is not None:
                blocks = layers(control.profiled)
            case 2 if control.roofline is not None:
                blocks = roof(control.roofline)
            case 3 if control.compared is not None:
                blocks = fewer_bits(control.compared)
            case _:
                return self._empty(on, width, height)
        return Painter(on).draw(blocks, width, height)

    def _empty(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The reason why there is nothing yet."""
        failure = self._failure
        if self.recorded:
            texts = [("Not recorded up to here.", on.rich_style), (f"{self.needs_model}.", on.ink("muted"))]
        elif failure is not None:
            texts = [(visible(failure.message), on.ink("bad")), (visible(failure.hint), on.ink("muted"))]
        elif self.control.job.running:
            texts = [("Being measured, on a copy of the KV cache.", on.rich_style)]
        else:
            texts = [
                ("Nothing was measured.", on.rich_style),
                (f"Press {key_for('costs.again')} to measure.", on.ink("muted")),
            ]
        return centred(texts, width, height)

    @property
    def _failure(self) -> protocol.Failure | None:
        return self.control.job.failures.get(NEEDS[self.page][0].kind)

    def situation(self) -> str:
        """The state of the measurements."""
        control, again = self.control, f"Press {key_for('costs.again')} to measure again"
        if self.recorded:
            return self._recorded()
        if control.job.running:
            now = control.job.progress
            if now is None:
                return "Getting ready"
            filled = bar(now.done / now.total if now.total else 0.0, BAR).replace(" ", "·")
            return f"{filled} {visible(now.detail)} {now.done}/{now.total}"
        if self._failure is not None:
            return visible(self._failure.message)
        if self.page in (PARTS, LAYERS) and control.profiled is not None:
            done = control.profiled
            return f"The step after {done.tokens:,} tokens, {done.repeats} times. {again}"
        return again

    def _recorded(self) -> str:
        """After how many tokens what is shown was measured."""
        control = self.control
        found = (control.profiled, control.profiled, control.roofline, control.compared)[self.page]
        if found is None:
            return self.needs_model
        tokens = found.decode.context - 1 if isinstance(found, protocol.RooflineMeasured) else found.tokens
        return f"Recorded after {tokens:,} tokens. {self.needs_model}"

    # ---- keys -------------------------------------------------------------------------------

    def turn(self, by: int) -> None:
        """Show a neighbouring page."""
        self.show_page((self.page + by) % len(PAGES))

    def _turn_to(self, page: int) -> None:
        self.page = page
        self.opener = "compare_kv" if page == BITS else "profile"  # fewer bits are an answer of their own

    def show_page(self, page: int) -> None:
        """Show a page, and ask for what it needs."""
        self._turn_to(page)
        self.control.want(*NEEDS[page])

    def measure_again(self) -> None:
        """Measure again, or stop."""
        if not self.control.job.stop():
            self.control.again(*NEEDS[self.page])
