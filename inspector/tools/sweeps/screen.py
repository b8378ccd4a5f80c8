"""The screen of the sweeps: what speed and memory depend on, measured point by point."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from engine import protocol
from engine.sweep_settings import SWEEPS
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import time_left
from inspector.tools.sweeps.control import SweepControl
from inspector.tools.sweeps.page import sweeps_page
from inspector.tools.sweeps.tool import NAMES, SWEEP_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine
from inspector.widgets.canvas import Canvas, PageView, Row, centred
from inspector.widgets.charts import bar

BAR = 16


class SweepScreen(ToolScreen[None]):
    """Measures the model; the session stays as it is.

    Args:
        host: The main screen.
        control: Knows the engine, and what came of the last sweeps.
    """

    TOOL: ClassVar[str] = "sweeps"
    ACTIONS: ClassVar[ActionTable] = SWEEP_SCREEN
    MEASURES: ClassVar[str] = "A sweep"
    TELLING: ClassVar[tuple[type[protocol.Record], ...]] = (protocol.Swept,)
    AUTO_FOCUS = "#sweep-view"

    view = getters.query_one("#sweep-view", PageView)

    def __init__(self, host: Host, control: SweepControl) -> None:
        super().__init__(host, control.job)
        self.control = control

    def compose(self) -> ComposeResult:
        yield Static(id="sweep-place")
        yield PageView(id="sweep-view")
        yield Static(id="sweep-status")
        yield KeyLine(id="sweep-keys")

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        self.view.put("Sweeps", self._draw)
        self.write("sweep", self._selection())

    def _selection(self) -> Content:
        """The selected sweeps: each with its key and a mark, in words where there is room."""
        if self.recorded:
            swept = self.control.swept
            return Content(f"Sweeps · recorded · {visible(swept.model)}" if swept else "Sweeps · recorded")
        control, short = self.control, self.size.width < 128
        parts = [
            Content.styled(
                f"{place + 1} {'◉' if name in control.chosen else '○'} {name if short else NAMES[name]}",
                "bold" if name in control.chosen else "$ink-muted",
            )
            for place, name in enumerate(SWEEPS)
        ]
        return Content("  ").join([*parts, Content(f"to {control.settings.longest:,} tokens")])

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        control = self.control
        if control.job.failure is not None and not self.recorded:
            failed = control.job.failure
            texts = [(visible(failed.message), on.ink("bad")), (visible(failed.hint), on.ink("muted"))]
            return centred(texts, width, height)
        if control.swept is not None:
            return sweeps_page(on, control.swept, width)
        if self.recorded:
            texts = [
                ("No sweep was recorded up to here.", on.rich_style),
                (f"{self.needs_model}.", on.ink("muted")),
            ]
            return centred(texts, width, height)
        about = [
            ("What speed and memory depend on, measured point by point.", on.rich_style),
            ("", on.rich_style),
            *((f"{place + 1}  {NAMES[name]}", on.ink("muted")) for place, name in enumerate(SWEEPS)),
        ]
        return centred(about, width, height)

    def situation(self) -> str:
        """What is going on, and what to do about it."""
        control = self.control
        if self.recorded:
            more = ", more was measured" if control.swept is not None and not control.swept.last else ""
            return f"Recorded{more}. {self.needs_model}"
        if control.job.running:
            now = control.job.progress
            if now is None:
                return "Getting ready"
            filled = bar(now.done / now.total if now.total else 0.0, BAR).replace(" ", "·")
            return f"{filled} {now.done}/{now.total} {visible(now.detail)}{time_left(now.left_ms)}"
        if control.job.failure is not None:
            return visible(control.job.failure.message)
        partly = control.swept is not None and not control.swept.last
        stopped = "the figures are of the rounds until then" if partly else "nothing was measured to the end"
        stopped = f"Stopped: {stopped}. " if control.job.cancelled else ""
        return f"{stopped}Press {key_for('sweeps.go')} to measure; {control.settings.rounds} rounds after a warm-up"

    # ---- keys -------------------------------------------------------------------------------

    def turn(self, place: int) -> None:
        """Ask for a sweep, or no longer."""
        if not self.control.job.running:
            self.control.turn(place)

    def lengthen(self, by: int) -> None:
        """Go to longer or shorter prompts and contexts."""
        if not self.control.job.running:
            self.control.lengthen(by)
