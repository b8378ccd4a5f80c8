"""What a step and a key press cost while the tree is on screen, for a small tree and for a large one.

    python -m tests.benchmarks.tree_panel [--count ROUNDS]

 the last line is the largest of the ratios of large to small for a step and
for a cursor key, which is to stay at 2 or less. Each round applies a record or moves the cursor, and waits until the
frame is composed. A fork and a fold make all rows anew, so that they may cost with the number of branches.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable

from msgspec.structs import replace
from textual.app import App, ComposeResult

from inspector.state.timeline import Timeline
from inspector.views.tree import TreePanel
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.inspector.fakes import next_step, session

SMALL, LARGE = (100, 40), (20_000, 500)
"""Nodes and branches; the small one fills the screen too."""
ROUNDS, WARM = 300, 30
LIMIT = 2.0


class Bench(App[None]):
    """The tree panel alone."""

    CSS = "TreePanel { height: 1fr; }"

    def compose(self) -> ComposeResult:
        yield TreePanel()


class Grower:
    """A timeline that grows by steps and forks."""

    def __init__(self, nodes: int, branches: int) -> None:
        self.timeline = session(40).timeline()
        self.pattern = self.timeline.steps
        self.random = random.Random(3)
        self.top = self.timeline.tip
        each = max(1, (nodes - len(self.timeline.tree.nodes)) // max(1, branches // 2))
        while self.timeline.tree.branches.count < branches - 1:
            self.fork()
            for _ in range(min(each, nodes - len(self.timeline.tree.nodes)) - 1):
                self.step()
        while len(self.timeline.tree.nodes) < nodes:
            self.step()

    def step(self) -> None:
        """One token more at the tip."""
        self.top += 1
        like = self.pattern[self.top % len(self.pattern)]
        self.timeline.apply(replace(next_step(self.timeline, like), node=self.top))

    def fork(self) -> None:
        """Another child of a node in the middle of the path."""
        steps = self.timeline.steps
        at = steps[self.random.randrange(len(steps))]
        self.top += 1
        self.timeline.apply(replace(at, node=self.top, origin="chosen"))


def repaint(app: Bench, panel: TreePanel, timeline: Timeline) -> None:
    """Draw what changed."""
    panel.show(timeline)
    screen = app.screen
    if screen._layout_required:
        screen._layout_required = False
        screen._refresh_layout()
    screen._compositor.update_widgets(set(screen._dirty_widgets) | {panel._table})
    screen._dirty_widgets.clear()
    update = screen._compositor.render_update()
    if update is not None:
        update.render_segments(app.console)  # type: ignore[union-attr]


async def measure(nodes: int, branches: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each round, by what was done."""
    grower, app = Grower(nodes, branches), Bench()
    spent: dict[str, list[float]] = {}
    async with app.run_test(size=(120, 40)) as pilot:
        panel = app.query_one(TreePanel)
        panel.show(grower.timeline)
        await pilot.pause()
        doings: dict[str, Callable[[int], None]] = {
            "step": lambda _: grower.step(),
            "key": lambda number: panel.view.move(1 if number % 60 < 30 else -1),
            "fold": lambda number: panel.view.fold() if number % 2 else panel.view.fold(away=False),
            "fork": lambda _: grower.fork(),
        }
        for name, do in doings.items():
            taken = []
            for number in range(rounds + WARM if name in ("step", "key") else WARM):
                began = time.perf_counter()
                do(number)
                repaint(app, panel, grower.timeline)
                taken.append((time.perf_counter() - began) * 1000)
            spent[name] = taken[WARM:] or taken
    return spent


def main(asked: Asked) -> Figures:
    """Measure both, twice in turns so that a busy machine slows both, and print the ratios."""
    found: dict[tuple[int, int], dict[str, list[float]]] = {SMALL: {}, LARGE: {}}
    for _ in range(2):
        for size, spent in found.items():
            for name, taken in asyncio.run(measure(*size, asked.times(ROUNDS))).items():
                spent.setdefault(name, []).extend(taken)
    ratios = {}
    for name in found[SMALL]:
        small, large = (statistics.median(found[size][name]) for size in (SMALL, LARGE))
        ratios[name] = large / small
        figures = (
            f"{SMALL[0]:,} nodes {small:.3f} ms, {LARGE[0]:,} nodes in {LARGE[1]} branches {large:.3f} ms"
        )
        print(f"{name:>5}: {figures}, ratio {ratios[name]:.2f}")
    worst = max(ratios["step"], ratios["key"])
    print(f"ratio {worst:.2f} (at most {LIMIT})")
    return {"step": ratios["step"], "step ms": statistics.median(found[LARGE]["step"])}


if __name__ == "__main__":
    by_command(main, __doc__)
