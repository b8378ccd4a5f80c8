"""The screen that sets the current path against another branch, token for token."""

from __future__ import annotations

from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from inspector.display import quoted, token_label, visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.scales import METRIC, bits
from inspector.state.conditions import in_short, made_with
from inspector.state.timeline import Timeline
from inspector.tools.compare import COMPARE_SCREEN, ComparedPlace
from inspector.tools.compare.comparison import (
    LEFT,
    RIGHT,
    Comparison,
    TokenChange,
    apart,
    by_size,
    change_words,
    changes,
    compare,
    lead,
    nearest,
    others,
    tokens_words,
)
from inspector.tools.compare.panels import CompareTable, GapChart, TotalsPanel
from inspector.widgets.actions import ActionTable

LOW, LOW_LED = 16, 21
"""Rows of the answer below which the figures are left out: without and with words above the table."""
SLIM = 56
"""Cells of the answer below which the chart beside the figures has too few columns to be read."""
NARROW = 80
"""Cells below which the status has no divergence of a token."""
LOOK_SECONDS = 0.5
"""Seconds between two checks whether the tree has grown; a comparison of thousands of tokens takes some 30 ms."""


class CompareScreen(ToolScreen[ComparedPlace]):
    """Compares the current path, on the left, with one other branch.

    Args:
        host: The main screen; its timeline has a branch besides the current path.
        other: Last node of the branch that is shown first.
    """

    TOOL: ClassVar[str] = "compare"
    ACTIONS: ClassVar[ActionTable] = COMPARE_SCREEN
    AUTO_FOCUS = "#compare-table"

    lead = getters.query_one("#compare-lead", Static)
    table = getters.query_one("#compare-table", CompareTable)
    gap = getters.query_one("#compare-gap", GapChart)
    totals = getters.query_one("#compare-totals", TotalsPanel)

    def __init__(self, host: Host, other: int) -> None:
        super().__init__(host)
        self.other = other
        self.comparison: Comparison
        self.changes: tuple[TokenChange, ...] = ()
        """Changes of the tokens that both have though they were made twice."""
        self._others: list[int] = []
        self._seen: tuple[int, ...] = ()

    @property
    def timeline(self) -> Timeline:
        """The one shown; another model brings another."""
        return self.host.controller.timeline

    def body(self) -> ComposeResult:
        yield Static(id="compare-lead")
        yield CompareTable(id="compare-table")
        with Horizontal(id="compare-figures"):
            yield GapChart(id="compare-gap")
            yield TotalsPanel(id="compare-totals")

    def begin(self) -> None:
        """Begin where they part; look now and then whether the tree has grown."""
        self._compare()
        self.after_paint(self._begin)
        self.set_interval(LOOK_SECONDS, self._look)

    def _fit(self) -> None:
        """Leave the figures out if they would leave the table no room, and the chart if it would have none."""
        self.set_class(self.area.height < (LOW_LED if self.lead.display else LOW), "-low")
        self.set_class(self.area.width < SLIM, "-slim")

    # ---- the branches -----------------------------------------------------------------------

    def _look(self) -> None:
        """Compare again if the tree has changed; leave if there is nothing to compare any more."""
        if not self.screen.is_current or self._stamp() == self._seen:
            return
        if self.other not in others(self.timeline):
            other = nearest(self.timeline)
            if other is None:
                self.dismiss(None)
                return
            self.other = other
        self._compare()

    def _stamp(self) -> tuple[int, ...]:
        timeline = self.timeline
        return (
            id(timeline),
            timeline.generation,
            len(timeline.items),
            len(timeline.tree.nodes),
            timeline.tree.marks.version,
        )

    def _compare(self) -> None:
        self._seen = self._stamp()
        self._others = others(self.timeline) or [self.other]
        self.comparison = compare(list(self.timeline.items), self.timeline.tree.path(self.other))
        self.changes = changes(self.comparison)
        words = lead(self.comparison, self.changes, apart(self.timeline.tree, self.comparison))
        self.lead.update(Content(words))
        self.lead.display = bool(words)
        self._fit()
        self.table.show(self.comparison, self._names(), self.changes)
        self.totals.put(self.comparison)
        self._pointed()

    def _names(self) -> tuple[str, str]:
        """The name of each side, the conditions of its own tokens if there are any, and its number of tokens."""
        of, texts = self.comparison, []
        place = self._others.index(self.other) + 1 if self.other in self._others else 1
        which = f"other {place} of {len(self._others)}" if len(self._others) > 1 else "the other"
        first = of.right[of.shared : of.shared + 1]
        name = self.timeline.tree.marks.at(first[0].node).name if first else ""
        whose = "this path", f"{visible(name)} · {which}" if name else which
        for words, side, totals in zip(whose, (of.left, of.right), of.totals, strict=True):
            made = in_short(made_with(self.timeline.tree, side[of.shared :]))
            count = tokens_words(totals.tokens + of.shared)
            texts.append(" · ".join(filter(None, (words, made, count))))
        return texts[LEFT], texts[RIGHT]

    def _begin(self) -> None:
        """The first token after the parting, on the side that has one."""
        right = self.comparison.totals[RIGHT].tokens > 0
        self.table.point(self.comparison.shared, RIGHT if right else LEFT)
        self.table.centre()
        self._pointed()

    # ---- the cursor -------------------------------------------------------------------------

    def _point(self, cursor: int, side: int | None = None) -> None:
        self.table.point(cursor, self.table.side if side is None else side)
        self._pointed()

    def _pointed(self) -> None:
        """Describe the pair under the cursor, and mark it in the chart."""
        if (pair := self.table.pair) is None:
            return
        place = pair.on(self.table.side)
        self.gap.put(self.comparison, 0 if place is None else max(0, place - self.comparison.shared + 1))
        self.say()

    def show(self) -> None:
        """Show the status."""
        self._fit()
        self.write()

    def situation(self) -> str:
        """The token under the cursor, and what enter does with it."""
        if (pair := self.table.pair) is None:
            return ""
        item = self.comparison.items(pair)[self.table.side]
        if item is None:
            return f"There is no token on this side. {key_for('compare.other_side')} goes to the other one"
        label = quoted(token_label(item.text, item.raw))
        goes, path = ("looks at", "this path") if self.table.side == LEFT else ("goes to", "this branch")
        change = next((each for each in self.changes if each.place == self.table.cursor), None)
        if change is not None:
            before, after = (METRIC["surprisal"].value(each) for each in (change.left, change.right))
            surprisal = (
                f"{bits(before)} → {bits(after)} bits" if before is not None and after is not None else ""
            )
            figures = f"{label}: {change_words(change, self.app.size.width >= NARROW)}, {surprisal}. "
            return f"{figures}⏎ {goes} it"
        return f"⏎ {goes} {label}, token {item.position + 1} of {path}"

    def walk(self, by: int) -> None:
        """Walk up or down."""
        self._point(self.table.cursor + by)

    def go_to_parting(self) -> None:
        """Go to the first token after the parting; from there to the first of all."""
        shared = self.comparison.shared
        self._point(0 if self.table.cursor == shared else shared)

    def go_to_side(self, side: int | None = None) -> None:
        """Go to a side, or to the other one."""
        self._point(self.table.cursor, 1 - self.table.side if side is None else side)

    def go_to_meeting(self, by: int) -> None:
        """Go to where they meet or part next, or did before."""
        here = self.table.cursor
        ahead = [place for place in self.comparison.turns if (place > here if by > 0 else place < here)]
        if ahead:
            self._point(ahead[0] if by > 0 else ahead[-1])
            self.table.centre()
        else:
            self.say(f"The branches neither meet nor part {'after' if by > 0 else 'before'} this.")

    @property
    def differing(self) -> list[TokenChange]:
        """The tokens whose probabilities differ, the largest difference first."""
        return by_size(self.changes)

    def go_to_largest(self) -> None:
        """Go to the largest difference of a probability; from there to the next largest, and round."""
        places = [each.place for each in self.differing]
        if not places:
            self.say("There are no tokens that both have after the same ones with other probabilities.")
            return
        here = places.index(self.table.cursor) + 1 if self.table.cursor in places else 0
        self._point(places[here % len(places)])
        self.table.centre()

    @on(CompareTable.PairClicked)
    def _clicked(self, message: CompareTable.PairClicked) -> None:
        self._point(message.place, message.side)

    # ---- branches ---------------------------------------------------------------------------

    def compare_with(self, by: int) -> None:
        """Compare with a neighbouring branch."""
        ends = others(self.timeline)
        if len(ends) < 2:
            self.say("There is no third branch to compare with.")
            return
        place = ends.index(self.other) + by if self.other in ends else 0
        self.other = ends[place % len(ends)]
        self._compare()
        self._begin()

    def go(self) -> None:
        """Leave for the token under the cursor."""
        pair, side = self.table.pair, self.table.side
        slot = None if pair is None else pair.on(side)
        if slot is None:
            self.say(
                f"There is no token on this side here. {key_for('compare.other_side')} goes to the other one"
            )
        else:
            self.dismiss((None if side == LEFT else self.other, slot))
