"""Every dialog, panel and screen that a key opens: from the key to the thing painted whole, and from escape back.

    python -m tests.benchmarks.dialogs [--count ROUNDS] [--beside CHECKOUT]

The real screen on a terminal of 120 by 40 with the real engine thread and the pocket model. A round is a process: in it
each thing is opened and left three times, where the first may build what the others show again. Keys are handed to the
application as the terminal's driver does, so that escape comes without the parser's wait, which is measured by itself.
The end is that of the last paint before nothing is painted for a while and the engine has nothing to do; what measures
for seconds (P, Q) counts until the first paint of its screen. Beside milliseconds there are those that the screen's
thread computed, and the ratio to a yardstick, a fixed piece of work in Python that is timed before each key: machines
and their moods differ, these less. Other checkouts of the program are measured in turn with this one. The goal is
100 ms.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.protocol import Prefill

if TYPE_CHECKING:  # a round runs in other checkouts, too, and imports of them what they have
    from tests.benchmarks.vocabularies import Asked, Figures

ROUNDS = 3
OPENINGS = 3
"""In each round; all but the first count as later ones."""
STILL = 0.3
"""Seconds without a paint after which a thing is whole."""
LOOK = 0.005
PATIENCE = 20.0
PROMPT = "Once upon a time, there was a little girl named Lily."
THINGS: tuple[tuple[str, str, str], ...] = (
    ("s", "s", "sampling"), ("b", "1 b", "breakpoints"), ("a", "1 a", "type your own"),
    ("/", "1 slash", "find a token"),
    ("p", "p", "prompt"), ("o", "3 o", "open model"), ("i", "3 i", "model facts"), ("g", "1 g", "jump"),
    ("?", "question_mark", "help"), ("N", "4 N", "name and note"), ("E", "7 E", "export"),
    ("^s", "ctrl+s", "save as"), ("^o", "ctrl+o", "recent sessions"), ("^p", "ctrl+p", "finder"),
    ("l", "1 l", "look ahead"), ("f", "f", "enlarge"), ("c", "4 c", "compare"), ("B", "4 B", "beams"),
    ("z", "5 z", "race"), ("P", "5 P", "costs"), ("Q", "5 Q", "quantized KV"),
    ("A", "3 A", "attention"), ("I", "3 I", "lens"), ("2", "2", "tab Why"), ("3", "3", "tab Inside"),
    ("4", "4", "tab What if"), ("5", "5", "tab Cost"), ("6", "6", "tab Learn"),
)  # fmt: skip
"""Name, the keys that lead to it, of which the last is timed, and what it opens."""
MEASURING = ("P", "Q")
CLOSED_BY = {"l": "l"}
"""What escape doesn't take back."""


Taken = dict[str, dict[str, list[Any]]]
"""Times of a round: by thing, and by what was timed."""


def yardstick() -> float:
    """Milliseconds of a fixed piece of work."""
    begun = time.perf_counter()
    words = [f"{n * 7919 % 10007}" for n in range(20_000)]
    sum(len(word) for word in sorted(words))
    return (time.perf_counter() - begun) * 1000


class Watch:
    """An application whose paints are timed."""

    def __init__(self) -> None:
        from textual.widgets import Input, TextArea

        from engine.settings import LoadSettings, Settings
        from inspector.app import InspectorApp

        for kind in (Input, TextArea):
            kind.cursor_blink = False  # type: ignore[assignment]  # a blink is no part of opening
        self.app = InspectorApp(LoadSettings(), Settings(temp=0.8, seed=7), Prefill(PROMPT, False))
        self.painted: list[tuple[float, float, Any]] = []
        """When each paint ended, by the clock and by the thread's own, and the screen that was on top."""
        display = self.app._display

        def timed(screen: Any, renderable: Any) -> None:
            display(screen, renderable)
            if renderable is not None:
                self.painted.append((time.perf_counter(), time.thread_time(), self.app.screen))

        self.app._display = timed  # type: ignore[method-assign]

    @property
    def _busy(self) -> bool:
        inbox: Any = self.app.inbox  # of older checkouts the list itself
        return bool(self.app.controller.client.outstanding or getattr(inbox, "waiting", inbox))

    @property
    def _prefilled(self) -> bool:
        timeline: Any = self.app.controller.timeline
        return getattr(timeline, "prompts", timeline).prefilled is not None  # older checkouts have one prompt

    async def until(self, there: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        begun = time.perf_counter()
        while not there():
            if time.perf_counter() - begun > PATIENCE:
                raise TimeoutError(f"{self.app.screen} after {PATIENCE:g} s")
            await asyncio.sleep(LOOK)

    async def press(self, key: str, first: bool = False) -> tuple[float, float]:
        """Milliseconds from a key to the last paint that follows from it, or to the first one.

        Returns:
            By the clock, and by the thread's own.
        """
        from textual.events import Key

        self.painted.clear()
        character = key if len(key) == 1 else {"slash": "/", "question_mark": "?"}.get(key)
        begun = (time.perf_counter(), time.thread_time())
        self.app.post_message(Key(key, character))
        if first:
            await self.until(lambda: bool(self.painted))
            ended = self.painted[0]
        else:
            await self._still()
            ended = self.painted[-1] if self.painted else (*begun, None)
        return (ended[0] - begun[0]) * 1000, (ended[1] - begun[1]) * 1000

    async def _still(self) -> None:
        """Wait until nothing was painted for a while, in which this thread had the time to."""
        looks, paints, since = 0, 0, time.perf_counter()
        while looks < STILL / LOOK / 2 or time.perf_counter() - since < STILL:
            await asyncio.sleep(LOOK)
            looks += 1
            if self._busy or len(self.painted) != paints:
                looks, paints, since = 0, len(self.painted), time.perf_counter()

    async def rounds(self, turn: int, result: Path) -> None:
        """Open everything, beginning at another thing each turn; a line of times for each goes to the result."""
        client = self.app.controller.client
        await self.until(lambda: self._prefilled and not client.outstanding)
        for key in (
            "space",
            "space",
            "space",
            "left",
            "d",
            "space",
            "space",
        ):  # two branches, for what compares
            await self.press(key)
        for name, key, what in THINGS[turn % len(THINGS) :] + THINGS[: turn % len(THINGS)]:
            times: dict[str, list[Any]] = {"open": [], "back": [], "yard": []}
            for _ in range(OPENINGS):
                *way, last = key.split()
                for before in way:
                    await self.press(before)
                times["yard"].append(yardstick())
                times["open"].append(await self.press(last, name in MEASURING))
                times["back"].append(await self.press(CLOSED_BY.get(name, "escape")))
                while len(self.app.screen_stack) > 1:
                    await self.press("escape")
                await self.press("1")
            with result.open("a") as lines:
                lines.write(json.dumps([f"{name:2} {what}", times]) + "\n")
        self.app.exit()


def measure(turn: int, result: Path) -> None:
    """One round, on the terminal of this process."""
    gc.set_threshold(10_000, 10, 10)  # as in a screen
    from inspector import __main__ as begun

    if hasten := getattr(begun, "hasten", None):  # which older checkouts lack
        hasten(os.environ)
    watch = Watch()

    async def drive(_: Any) -> None:
        await watch.rounds(turn, result)

    asyncio.run(watch.app.run_async(auto_pilot=drive))


@contextmanager
def terminal(checkout: Path, home: str, command: list[str]) -> Iterator[int]:
    """A process of a checkout on a terminal of its own, which is handed out."""
    child, descriptor = pty.fork()
    if child == 0:
        os.chdir(checkout)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        drop = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        values = {name: value for name, value in os.environ.items() if name not in drop}
        values |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none"}
        values |= {"PYTHONPATH": str(checkout), "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
        os.execve(sys.executable, [sys.executable, *command], values)
    try:
        yield descriptor
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(descriptor)


def one_round(checkout: Path, turn: int, home: str) -> Taken:
    """One round of a checkout, in a process of its own; prints each thing when it is measured."""
    taken: Taken = {}
    result = Path(home) / "round.trace"
    result.write_text("")
    command = [str(Path(__file__).resolve()), str(turn), str(result)]
    with terminal(checkout, home, command) as it, result.open() as lines:
        lives = True
        while lives:
            lives = bool(_read(it, PATIENCE))
            for line in lines:
                name, times = json.loads(line)
                taken[name] = times
                first, *later = (ms for ms, _ in times["open"])
                print(f"  {name:20} first {first:5.0f} ms, later {statistics.median(later):5.0f}", flush=True)
    return taken


def escape_wait(checkout: Path, home: str) -> float:
    """Milliseconds from a lone escape, sent to a terminal, to the first byte drawn for it, which leaves a dialog."""
    command = ["-m", "inspector", "-p", PROMPT, "--ignore-chat-template", "--no-save"]
    with terminal(checkout, home, command) as it:
        _until_still(it, 3.0)
        os.write(it, b"p")
        _until_still(it, 0.45)  # the cursor blinks every half second
        begun = time.perf_counter()
        os.write(it, b"\x1b")
        if not _read(it, PATIENCE):
            raise TimeoutError("nothing was drawn after escape")
        return (time.perf_counter() - begun) * 1000


def _until_still(descriptor: int, seconds: float) -> None:
    _read(descriptor, PATIENCE)
    while _read(descriptor, seconds):
        pass


def _read(descriptor: int, seconds: float) -> bytes:
    """What was drawn; nothing where nothing was in time, or the process has ended."""
    if not select.select([descriptor], [], [], seconds)[0]:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""


def told(times: list[tuple[float, float]], yards: list[float]) -> str:
    """Medians: milliseconds by the clock, those computed, and the ratio."""
    clock, computed = (statistics.median(each) for each in zip(*times, strict=True))
    ratios = [ms / yard for (ms, _), yard in zip(times, yards, strict=True)]
    return f"{clock:6.0f} {computed:5.0f} {statistics.median(ratios):6.1f}"


def report(checkout: Path, rounds: list[Taken]) -> dict[str, float]:
    """Print the medians of a checkout, in the order of the keys; returns milliseconds of the later openings."""
    figures = {}
    print(f"\n{checkout}: medians of {len(rounds)} rounds: ms, of them computed, ratio to the yardstick")
    print(f"{'':20}   {'first':>19}   {'later':>19}   {'back':>19}")
    for name, _, what in THINGS:
        each = [one[f"{name:2} {what}"] for one in rounds]
        first = told([one["open"][0] for one in each], [one["yard"][0] for one in each])
        yards = [yard for one in each for yard in one["yard"][1:]]
        later = told([pair for one in each for pair in one["open"][1:]], yards)
        back = told([pair for one in each for pair in one["back"][1:]], yards)
        print(f"{name:2} {what:17}   {first}   {later}   {back}")
        figures[what] = statistics.median(ms for one in each for ms, _ in one["open"][1:])
    return figures


def main(asked: Asked) -> Figures:
    """Measure and print."""
    checkouts = [Path.cwd(), *asked.beside]
    rounds: dict[Path, list[Taken]] = {checkout: [] for checkout in checkouts}
    waits: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(asked.times(ROUNDS)):
            for checkout in checkouts:
                print(f"round {turn + 1} of {asked.times(ROUNDS)}: {checkout}")
                rounds[checkout].append(one_round(checkout, turn, home))
                waits[checkout].append(escape_wait(checkout, home))
    figures: Figures = {}
    for checkout in checkouts:
        before = "" if checkout == Path.cwd() else "old "
        figures |= {f"{before}{what}": ms for what, ms in report(checkout, rounds[checkout]).items()}
        wait = statistics.median(waits[checkout])
        print(f"a lone escape in a terminal, to the first byte drawn: {wait:.0f} ms")
    return figures | asked.old()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        measure(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        from tests.benchmarks.vocabularies import by_command

        by_command(main, __doc__)
