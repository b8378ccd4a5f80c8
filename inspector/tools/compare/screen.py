"""The screen that sets the current path against another branch, token for token."""

from __future__ import annotations

from collections.abc import Sequence
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
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.tools.compare import COMPARE_SCREEN, ComparedPlace
from inspector.tools.compare.changes import TokenChange, apart, by_size, change_words, changes, lead
from inspector.tools.compare.comparison import LEFT, RIGHT, Comparison, compare, nearest, others
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
        other: Where the branch ends that is shown first.
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
        self.comparison: Comparison | None = None
        self.changes: tuple[TokenChange, ...] = ()
        """Of the tokens that both have though they were made twice."""
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

    def on_mount(self) -> None:
        """Begin where they part; go on looking whether the tree grows."""
        self._compare()
        self.after_paint(self._begin)
        self.set_interval(LOOK_SECONDS, self._look)

    def _fit(self) -> None:
        """Leave the figures out where they would leave the table no room, and the chart where it would have none."""
        self.set_class(self.area.height < (LOW_LED if self.lead.display else LOW), "-low")
        self.set_class(self.area.width < SLIM, "-slim")

    # ---- what is compared -------------------------------------------------------------------

    def _look(self) -> None:
        """Compare again where the tree has changed; leave where there is nothing to compare any more."""
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
        self.table.show(self.comparison, self._names(self.comparison), self.changes)
        self.totals.put(self.comparison)
        self._pointed()

    def _names(self, comparison: Comparison) -> tuple[str, str]:
        left, right = (_tokens(of.tokens + comparison.shared) for of in comparison.totals)
        made = [self._made(side[comparison.shared :]) for side in (comparison.left, comparison.right)]
        return f"this path{made[0]} · {left}", f"{self._other_name(comparison)}{made[1]} · {right}"

    def _made(self, own: Sequence[Item]) -> str:
        """The conditions of a side's own tokens; empty where that is the model and its sampler alone."""
        words = in_short(made_with(self.timeline.tree, own))
        return f" · {words}" if words else ""

    def _other_name(self, comparison: Comparison) -> str:
        place = self._others.index(self.other) + 1 if self.other in self._others else 1
        first = comparison.right[comparison.shared : comparison.shared + 1]
        name = self.timeline.tree.marks.at(first[0].node).name if first else ""
        which = f"other {place} of {len(self._others)}" if len(self._others) > 1 else "the other"
        return f"{visible(name)} · {which}" if name else which

    def _begin(self) -> None:
        """The first token after the parting, on the side that has one."""
        assert self.comparison is not None
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
        comparison, pair = self.comparison, self.table.pair
        if comparison is None or pair is None:
            return
        place = pair.left if self.table.side == LEFT else pair.right
        self.gap.put(comparison, 0 if place is None else max(0, place - comparison.shared + 1))
        self.say()

    def show(self) -> None:
        """Show the status."""
        self._fit()
        self.write()

    def situation(self) -> str:
        """The token under the cursor, and what enter does with it."""
        comparison, pair = self.comparison, self.table.pair
        if comparison is None or pair is None:
            return ""
        item = comparison.items(pair)[self.table.side]
        if item is None:
            return f"There is no token on this side. {key_for('compare.other_side')} goes to the other one"
        label = quoted(token_label(item.text, item.raw))
        change = next((each for each in self.changes if each.place == self.table.cursor), None)
        if change is not None:
            before, after = (METRIC["surprisal"].value(each) for each in (change.left, change.right))
            surprisal = (
                f"{bits(before)} → {bits(after)} bits" if before is not None and after is not None else ""
            )
            figures = f"{label}: {change_words(change, self.app.size.width >= NARROW)}, {surprisal}. "
            return f"{figures}⏎ {'looks at' if self.table.side == LEFT else 'goes to'} it"
        if self.table.side == LEFT:
            return f"⏎ looks at {label}, token {item.position + 1} of this path"
        return f"⏎ goes to {label}, token {item.position + 1} of this branch"

    def walk(self, by: int) -> None:
        """Walk up or down."""
        self._point(self.table.cursor + by)

    def go_to_parting(self) -> None:
        """Go to the first token after the parting; from there to the first of all."""
        shared = self.comparison.shared if self.comparison else 0
        self._point(0 if self.table.cursor == shared else shared)

    def go_to_side(self, side: int | None = None) -> None:
        """Go to a side, or to the other one."""
        self._point(self.table.cursor, 1 - self.table.side if side is None else side)

    def go_to_meeting(self, by: int) -> None:
        """Go to where they meet or part next, or did before."""
        turns = self.comparison.turns if self.comparison else ()
        here = self.table.cursor
        ahead = [place for place in turns if (place > here if by > 0 else place < here)]
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
        comparison, pair, side = self.comparison, self.table.pair, self.table.side
        slot = None if pair is None else pair.left if side == LEFT else pair.right
        if comparison is None or slot is None:
            self.say(
                f"There is no token on this side here. {key_for('compare.other_side')} goes to the other one"
            )
        else:
            self.dismiss(ComparedPlace(None if side == LEFT else self.other, slot))


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"
