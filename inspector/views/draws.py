"""Many draws after one text: how often each token came, its stated probability, and a tree of the continuations."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Container

from engine.protocol import DrawMany, Step
from inspector.blocks.paint import Painter
from inspector.documents.draws import frequencies, tree_lines
from inspector.keys import key_for
from inspector.main.view import View, neighbor
from inspector.session.requests import failure_words
from inspector.state.batch import Batches, drawn_tree
from inspector.state.branches import ROOT
from inspector.state.session_tree import numbered, quoted_label
from inspector.widgets.actions import Action, ActionTable, Needs, back, both, screen_table
from inspector.widgets.canvas import Canvas, DrawnPanel, Row

COUNTS = (10, 40, 200, 1000, 2000, 10_000)
LENGTHS = (1, 2, 4, 8, 16, 32)
ABOUT = "Does each token come up as often as its probability says?"
SEEDED = "Draws are seeded, so running this again gives the same result."
LOW = 20
"""Rows below which one panel is shown at a time."""
LEAST = 10
"""Rows up to which the line above the panels is left out."""

DRAWS_KEYS = screen_table(
    "In many draws",
    Action("draws.go", "Draw", "Draw; again to stop.", lambda own: own.toggle(), Needs.ENGINE,
           hint=lambda own: "stop" if own.job.running else "draw", worth=9),
    *both(("draws.fewer", "draws.more"), ("Fewer", "More"), "Fewer draws, or more.",
          lambda own, by: own.change_count(by), needs=Needs.ENGINE, hint="number", worth=6),
    *both(("draws.longer", "draws.shorter"), ("Longer", "Shorter"),
          "Longer continuations, or shorter ones; from two tokens on they are shown as a tree.",
          lambda own, by: own.lengthen(by), by=(1, -1), needs=Needs.ENGINE, hint="length", worth=6),
    Action("draws.turn", "Next panel", "Where there is room for one panel, show the other.", lambda own: own.turn(),
           hint=lambda own: "panel" if own.turns else "", worth=3),
    back("draws.leave", "Go back."),
    text="`expected` is the sampler's probability, `observed` the share of the draws, and `95 % interval` Wilson's "
    "interval of that share; `!` marks an expected probability outside of it, if five draws or more were expected (one "
    "in twenty is, by chance). Chi-square tests all of them at once.",
)  # fmt: skip


class DrawsView(View):
    """Draws many times; the session stays as it is. The timeline has the last count and its continuations."""

    TOOL: ClassVar[str] = "draws"
    ACTIONS: ClassVar[ActionTable] = DRAWS_KEYS
    MEASURES: ClassVar[str] = "A count of draws"
    STARTS = (DrawMany,)
    TELLING = Batches.changing()

    draws, tokens = 200, 1
    _second: bool = False
    """True if the tree is shown when there is room for one panel only."""

    def body(self) -> ComposeResult:
        with Container(id="draws-panels"):
            yield DrawnPanel(id="draws-table")
            yield DrawnPanel(id="draws-tree")

    # ---- showing ----------------------------------------------------------------------------

    @property
    def batches(self) -> Batches:
        """The last count and the continuations of its draws, live or recorded."""
        return self.timeline.of(Batches)

    @property
    def turns(self) -> bool:
        """True if there are two panels, but room for one only."""
        return self.batches.continued is not None and self.room < LOW

    def show(self) -> None:
        table, tree = self.query_one("#draws-table", DrawnPanel), self.query_one("#draws-tree", DrawnPanel)
        second = self.turns and self._second
        table.display = not second
        tree.display = self.batches.continued is not None and (second or not self.turns)
        table.put(f"First tokens{self._where}", self._first_tokens)
        tree.put("Continuations", self._came)
        self.write(self._asked if self.room > LEAST else "")

    def _first_tokens(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The frequencies of the first tokens, and the chi-square test."""
        if (drawn := self.batches.drawn) is not None:
            return Painter(on).draw(frequencies(drawn), width, height)
        return self.empty(on, width, height, ABOUT, SEEDED)

    def _came(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The tree of the continuations."""
        continued = self.batches.continued
        lines = [*tree_lines(drawn_tree(continued.lanes), max(20, width))] if continued else []
        return [[Segment(line, on.rich_style)] for line in lines[:height]]

    @property
    def _where(self) -> str:
        """The step of the last count; empty without one."""
        drawn, tree = self.batches.drawn, self.timeline.tree
        if drawn is None or (drawn.node != ROOT and drawn.node not in tree.nodes):
            return ""
        return f" · step {sum(isinstance(item, Step) for item in tree.path(drawn.node)) + 1:,}"

    @property
    def _asked(self) -> str:
        """The place, the number and the length of the next draws."""
        length = f", {self.tokens} tokens each" if self.tokens > 1 else ""
        if self.recorded:
            return "Recorded draws"
        times = f"{self.draws:,} times{length}"
        if (item := self.timeline.selected) is None:
            return f"Draw the next token {times}"
        setup = self.controller.setup
        present = (
            ""
            if self.controller.queries.used(self.timeline) == setup.settings
            else ", with the present settings"
        )
        return f"Redraw {numbered(item)} ({quoted_label(item)}) {times}{present}"

    def situation(self) -> str:
        """The state of the draws, and what to do about it."""
        if self.recorded:
            return self.needs_model
        if (failure := self.job.failure) is not None:
            return failure_words(failure)
        if self.job.running:
            if (continued := self.batches.continued) is None:
                return "Drawing …"
            done = sum(lane.ended is not None for lane in continued.lanes)
            return f"Drawing, {done} of {self.draws:,} done"
        if self.controller.setup.settings.temp == 0:
            return f"Greedy always takes the same token: esc, then {key_for('sampling')} for a temperature above 0"
        return f"{key_for('draws.go').capitalize()} draws; ← → number of draws, ↑ ↓ length of each"

    # ---- keys -------------------------------------------------------------------------------

    def toggle(self) -> None:
        """Draw in place of the selected token, or after the last one; or stop."""
        if not self.job.stop():
            node = self.timeline.tip if self.timeline.following else self.timeline.before
            self.job.start(DrawMany(self.draws, node, self.tokens))

    def change_count(self, by: int) -> None:
        self.draws = neighbor(COUNTS, self.draws, by)

    def lengthen(self, by: int) -> None:
        self.tokens = neighbor(LENGTHS, self.tokens, by)

    def turn(self) -> None:
        """Show the other panel, if there is room for one only."""
        self._second = not self._second
