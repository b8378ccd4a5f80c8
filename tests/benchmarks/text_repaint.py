"""What it takes to repaint the text after one more token, for a short text and for a long one.

    python -m tests.benchmarks.text_repaint [--count TOKENS]

`--count` is of the tokens of each; the last line is the ratio of long to short, which the project
holds at 1.5 or less. Each round appends one token and waits until the frame is composed: `show`, the compositor's
update, and the segments of the lines that changed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from textual.app import App, ComposeResult

from inspector.main.panels.text import TextPanel
from inspector.state.timeline import Timeline
from tests.benchmarks.vocabularies import Asked, Figures, by_command
from tests.inspector.fakes import long_timeline, next_step

SHORT, LONG = 100, 20_000
ROUNDS, WARM = 400, 40
LIMIT = 1.5


class Bench(App[None]):
    """The text panel alone, as large as the left half of a wide screen and more."""

    CSS = "TextPanel { height: 1fr; }"

    def compose(self) -> ComposeResult:
        yield TextPanel()


def repaint(app: Bench, panel: TextPanel, timeline: Timeline) -> None:
    """Draw the token that was just appended."""
    panel.show(timeline)
    screen = app.screen
    if screen._layout_required:
        screen._layout_required = False
        screen._refresh_layout()
    screen._compositor.update_widgets(set(screen._dirty_widgets) | {panel})
    screen._dirty_widgets.clear()
    update = screen._compositor.render_update()
    if update is not None:
        update.render_segments(app.console)  # type: ignore[union-attr]


async def measure(tokens: int, rounds: int) -> list[float]:
    """Milliseconds of each round, for a text that begins with so many tokens."""
    timeline = long_timeline(tokens)
    pattern = timeline.steps[:40]
    app = Bench()
    spent: list[float] = []
    async with app.run_test(size=(120, 40)) as pilot:
        panel = app.query_one(TextPanel)
        panel.show(timeline)
        await pilot.pause()
        for number in range(rounds + WARM):
            timeline.apply(next_step(timeline, pattern[number % len(pattern)]))
            began = time.perf_counter()
            repaint(app, panel, timeline)
            spent.append((time.perf_counter() - began) * 1000)
    return spent[WARM:]


def report(name: str, spent: Sequence[float]) -> float:
    """Print the figures of one length and return the median, in milliseconds."""
    median = statistics.median(spent)
    late = sorted(spent)[int(len(spent) * 0.95)]
    print(
        f"{name:>7} tokens: median {median:.3f} ms, p95 {late:.3f} ms, mean {statistics.fmean(spent):.3f} ms"
    )
    return median


def main(asked: Asked) -> Figures:
    """Measure both, twice in turns so that a busy machine slows both, and print."""
    short: list[float] = []
    long: list[float] = []
    for _ in range(2):
        short += asyncio.run(measure(SHORT, asked.times(ROUNDS)))
        long += asyncio.run(measure(LONG, asked.times(ROUNDS)))
    ratio = report(f"{LONG:,}", long) / report(f"{SHORT:,}", short)
    print(f"ratio {ratio:.2f} (at most {LIMIT})")
    return {"ratio": ratio}


if __name__ == "__main__":
    by_command(main, __doc__)
