"""A recorded session of 100,000 steps, or of 1,000 branches, opened on the screen: how soon, and how each key feels.

    python -m tests.benchmarks.long_keys [FILE [live]]

Without a file one of 100,000 steps is made. `live` goes on with it, as `--resume` does. Milliseconds from a key to the
last frame that it brings, the median and the 95th percentile, and the most of the screen's thread that one took: the
bar is 100 ms at the 95th percentile.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.events import Key

from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector import app
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.session.playback import Opening
from tests.benchmarks.memory import resident
from tests.benchmarks.trace import long, recorded

STEPS = 100_000
LOOK, LOOKS = 0.007, 11
"""Seconds between two looks, and how many must see no new frame until a key has been answered: two ticks and more."""
BAR = 100

NAMED = {
    " ": "space",
    ",": "comma",
    ".": "full_stop",
    "<": "less_than_sign",
    ">": "greater_than_sign",
}
WALKS: dict[str, tuple[str, ...]] = {
    "one back and on": ("left", "left", "left", "right"),
    "ten back and on": ("pageup", "pageup", "pagedown", "pageup"),
    "first and tip": ("home", "home", "end"),
    "candidates": ("down", "up"),
    "colour": ("m", "m", "m", "m", "m"),
    "tokens, ids, bytes": ("e", "e", "e", "e"),
    "surprises": (",", ",", "."),
    "fork points": ("<", "<", ">"),
    "tabs": ("2", "5", "6", "1"),
    "enlarge": ("f", "f"),
}
IN_THE_TREE: dict[str, tuple[str, ...]] = {
    "tree: up and down": ("up", "up", "down", "up"),
    "tree: pages": ("pageup", "pageup", "pagedown"),
    "tree: first and tip": ("home", "end"),
    "tree: fold and unfold": ("home", "left", "right", "end"),
    "marks": ("left_curly_bracket", "left_curly_bracket", "right_curly_bracket"),
}


class Watched(InspectorApp):
    """The application, which knows when it last drew."""

    CSS_PATH = str(Path(app.__file__).with_name(InspectorApp.CSS_PATH))
    drawn = 0.0

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.drawn = time.perf_counter()


class Hand:
    """Presses keys, and knows how long each took.

    Args:
        on: It runs.
    """

    def __init__(self, on: Watched) -> None:
        self.app = on

    async def press(self, key: str) -> tuple[float, float]:
        """Milliseconds from a key to its last frame, and of this thread until then."""
        begun, own = time.perf_counter(), time.thread_time()
        self.app.post_message(Key(NAMED.get(key, key), key if len(key) == 1 else None))
        looks, drawn = 0, self.app.drawn
        while looks < LOOKS:  # counted, not timed: one of them may be held up by what the key does
            await asyncio.sleep(LOOK)
            looks = 0 if self.app.drawn != drawn else looks + 1
            drawn = self.app.drawn
        own = time.thread_time() - own
        return max(0.0, self.app.drawn - begun) * 1000, own * 1000

    async def walk(self, name: str, keys: Sequence[str], rounds: int = 8) -> float:
        """Press some keys over and over, and print; returns the 95th percentile."""
        found = [await self.press(key) for _ in range(rounds) for key in keys]
        return tell(name, found)


def tell(name: str, found: Sequence[tuple[float, float]]) -> float:
    """Print what some keys took; returns the 95th percentile."""
    painted = sorted(each for each, _ in found)
    late = painted[int(len(painted) * 0.95)]
    over = "  OVER" if late > BAR else ""
    print(
        f"{name:24} {len(found):3} x p50 {statistics.median(painted):6.1f} ms, p95 {late:6.1f}; of the thread "
        f"p50 {statistics.median(own for _, own in found):6.1f}, most {max(own for _, own in found):6.1f}{over}",
        flush=True,
    )
    return late


async def all_keys(on: Watched) -> None:
    """Walk, search, select, colour, and look at the tree."""
    hand, timeline = Hand(on), on.controller.timeline
    await asyncio.sleep(0.5)
    for name, keys in WALKS.items():
        await hand.walk(name, keys)
    await hand.press("end")
    await hand.press("g")  # a step in the middle, by its number
    await hand.walk("jump: digits", str(len(timeline.step_slots) // 2), 1)
    await hand.walk("jump: there", ("enter",), 1)
    for name in ("one back and on", "ten back and on", "colour", "candidates"):
        await hand.walk(f"middle: {name}", WALKS[name])
    await hand.press("ctrl+f")
    await hand.walk("find: letters", "the", 1)
    await hand.walk("find: down", ("down",), 6)
    await hand.walk("find: all branches", ("ctrl+f",), 4)
    await hand.press("escape")
    await hand.press("4")
    await hand.press("t")
    for name, keys in IN_THE_TREE.items():
        await hand.walk(name, keys)
    await hand.press("F")
    await hand.walk("tree: filter", "the", 1)
    await hand.walk("tree: filter there", ("enter",), 1)
    await hand.press("escape")
    await hand.press("1")
    await hand.press("end")


async def settled(on: Watched) -> list[float]:
    """Wait until all is read; seconds between the looks at it."""
    gaps, before = [], time.perf_counter()
    while on.playback.player is None or not on.playback.player.settled:
        await asyncio.sleep(0.005)
        gaps.append(time.perf_counter() - before)
        before = time.perf_counter()
    return gaps


async def measure(path: Path, live: bool) -> None:
    """Open, wait, and press."""
    before, begun, own = resident(), time.perf_counter(), time.thread_time()
    on = Watched(
        LoadSettings(), Settings(), trace=Opening(path, live=live), begins=Preferences(), save=path.parent
    )
    async with on.run_test(size=(120, 40)):
        while not on.controller.timeline.steps:
            await asyncio.sleep(0.005)
        print(f"first steps on show: {time.perf_counter() - begun:.2f} s, the start included")
        while on.playback.player is None:
            await asyncio.sleep(0.005)
        if not live:
            gaps = sorted(await settled(on))
            late = gaps[int(len(gaps) * 0.95)]
            print(f"longest without a look at keys: {gaps[-1] * 1000:.0f} ms, p95 {late * 1000:.0f}")
        else:
            while on.controller.timeline.recorded or on.controller.client.outstanding:
                await asyncio.sleep(0.02)
        tree, more = on.controller.timeline.tree, resident() - before
        print(
            f"all of it{' and live' if live else ''}: {time.perf_counter() - begun:.1f} s, of this thread "
            f"{time.thread_time() - own:.1f}; {len(tree.nodes):,} tokens, {tree.branches.count:,} branches; "
            f"{more / 1024:.0f} MiB more, {more / len(tree.nodes):.2f} KB a token",
            flush=True,
        )
        await all_keys(on)
        hand = Hand(on)
        if live:
            await hand.walk("live: step", (" ",), 20)
            await hand.walk("live: take back", ("backspace",), 10)
        else:
            await hand.walk("replay: step back", ("backspace",), 2)


def main(file: str = "", live: str = "") -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(file) if file else Path(directory) / "long.trace"
        if not file:
            save_as(path, long(recorded(Settings(temp=0.8, top_p=0.95, seed=7)), STEPS), "benchmark 1")
        print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")
        asyncio.run(measure(path, bool(live)))


if __name__ == "__main__":
    main(*sys.argv[1:])
