"""The screen of the ranks that compute a model together."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.widgets import Static

from engine.protocol import Ended, Failure, MeasureRanks, RanksLoaded, RanksMeasured, Record
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.session.requests import Job
from inspector.state.measured import Measured
from inspector.tools.ranks.page import page
from inspector.tools.ranks.tool import RANKS_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine
from inspector.widgets.canvas import Canvas, PageView, Row, centred


class RanksScreen(ToolScreen[None]):
    """Shows what each rank holds, and measures a step on all of them; the session stays as it is.

    Args:
        host: The main screen.
        job: Measures.
    """

    TOOL: ClassVar[str] = "ranks"
    ACTIONS: ClassVar[ActionTable] = RANKS_SCREEN
    MEASURES: ClassVar[str] = "A step on ranks"
    TELLING: ClassVar[tuple[type[Record], ...]] = (RanksLoaded, RanksMeasured)
    AUTO_FOCUS = "#ranks-view"

    view = getters.query_one("#ranks-view", PageView)

    def __init__(self, host: Host, job: Job) -> None:
        super().__init__(host, job)
        self.measuring = job

    def compose(self) -> ComposeResult:
        yield Static(id="ranks-place")
        yield PageView(id="ranks-view")
        yield Static(id="ranks-status")
        yield KeyLine(id="ranks-keys")

    @property
    def measured(self) -> Measured:
        """What is known, live or recorded."""
        return self.host.controller.timeline.of(Measured)

    def receive(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, RanksMeasured | Ended | Failure):
            self.said = ""
        self.changed()

    def show(self) -> None:
        """Show everything, now."""
        facts = self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        parts = ("Ranks", "recorded" if self.recorded else "", name)
        told = self.measured.ranks or self.measured.loaded
        count = len(told.ranks) if told is not None else 1
        self.view.put(f"{count} ranks" if count > 1 else "One process", self._draw)
        self.write("ranks", " · ".join(filter(None, parts)))

    def _draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        if self.measured.ranks is None and self.measured.loaded is None:
            alone = (
                "One process computes this model."
                if not self.recorded
                else "No ranks were recorded up to here."
            )
            advice = "Start with --ranks 2, or --hostfile FILE, to have several compute it together."
            return centred([(alone, on.rich_style), (advice, on.ink("muted"))], width, height)
        return page(on, self.measured.loaded, self.measured.ranks, width)

    def situation(self) -> str:
        """What is going on, and what to do."""
        if self.recorded:
            return self.needs_model
        if (failure := self.measuring.failure) is not None:
            return visible(f"{failure.message} {failure.hint}".strip())
        if self.measuring.running:
            now = self.measuring.progress
            return (
                f"A step on all ranks, round {now.done + 1} of {now.total}"
                if now is not None
                else "Getting ready"
            )
        if self.measured.loaded is None:
            return ""
        again = " again" if self.measured.ranks is not None else ""
        return f"Press {key_for('ranks.measure')} to measure a step on all ranks{again}"

    # ---- keys -------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure, or stop."""
        if self.measured.loaded is None:
            self.say("One process computes this model: start with --ranks 2")
        elif not self.measuring.stop():
            self.measuring.start(MeasureRanks())
