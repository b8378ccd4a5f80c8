"""Every dialog, panel and screen that a key opens: from the key to the thing painted whole, and from escape back.

    python -m tests.benchmarks.dialogs [--rounds N] [CHECKOUT ...]

The real screen of 120 by 40 with the real engine thread and the pocket model. A round is a process: in it each thing
is opened and left three times, where the first may build what the others show again. Keys are handed to the
application as the terminal's driver does, so that escape comes without the parser's wait, which is measured on a
terminal of its own. The end is that of the last paint before nothing is painted for a while and the engine has nothing
to do; what measures for seconds (P, Q) counts until the first paint of its screen. Beside milliseconds there is the
ratio to a yardstick, a fixed piece of work in Python that is timed before each key: machines and their moods differ,
ratios less. Other checkouts of the program are measured in turn with this one. The goal is 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROUNDS = 10
OPENINGS = 3
"""In each round; all but the first count as later ones."""
STILL = 0.3
"""Seconds without a paint after which a thing is whole: the palette's first commands come a quarter of one late."""
PATIENCE = 20.0
PROMPT = "Once upon a time, there was a little girl named Lily."
THINGS: tuple[tuple[str, str, str], ...] = (
    ("s", "s", "sampling"), ("b", "b", "breakpoints"), ("a", "a", "type your own"), ("/", "slash", "find a token"),
    ("p", "p", "prompt"), ("o", "o", "open model"), ("i", "i", "model facts"), ("g", "g", "jump"),
    ("?", "question_mark", "help"), ("N", "N", "name and note"), ("E", "E", "export"), ("^s", "ctrl+s", "save as"),
    ("^o", "ctrl+o", "recent sessions"), ("^p", "ctrl+p", "palette"), ("w", "w", "sampler"), ("t", "t", "tree"),
    ("l", "l", "look ahead"), ("f", "f", "enlarge"), ("c", "c", "compare"), ("B", "B", "beams"), ("z", "z", "race"),
    ("P", "P", "costs"), ("Q", "Q", "quantized KV"), ("y", "y", "sweeps"),
)  # fmt: skip
"""Name, key and what it opens."""
MEASURING = ("P", "Q")
CLOSED_BY = {"l": "l"}
"""What escape doesn't take back."""


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
            kind.cursor_blink = False  # type: ignore[assignment, misc]  # a blink is no part of opening
        self.app = InspectorApp(LoadSettings(), Settings(temp=0.8, seed=7), PROMPT, chat=False)
        self.painted: list[tuple[float, Any]] = []
        """When each paint ended, and the screen that was on top."""
        display = self.app._display

        def timed(screen: Any, renderable: Any) -> None:
            display(screen, renderable)
            self.painted.append((time.perf_counter(), self.app.screen))

        self.app._display = timed  # type: ignore[method-assign]

    @property
    def _busy(self) -> bool:
        return bool(self.app.controller.client.outstanding or self.app.inbox)

    async def until(self, there: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        begun = time.perf_counter()
        while not there():
            if time.perf_counter() - begun > PATIENCE:
                raise TimeoutError(f"{self.app.screen} after {PATIENCE:g} s")
            await asyncio.sleep(0.005)

    async def press(self, key: str, first: bool = False) -> float:
        """Milliseconds from a key to the last paint that follows from it, or to the first of another screen."""
        from textual.events import Key

        from inspector.main.screen import MainScreen

        self.painted.clear()
        character = key if len(key) == 1 else {"slash": "/", "question_mark": "?"}.get(key)
        begun = time.perf_counter()
        self.app.post_message(Key(key, character))
        if first:
            await self.until(lambda: any(not isinstance(top, MainScreen) for _, top in self.painted))
            ended = next(when for when, top in self.painted if not isinstance(top, MainScreen))
            return (ended - begun) * 1000
        await self.until(lambda: bool(self.painted) or time.perf_counter() - begun > 2 * STILL)
        await self.until(lambda: self._still(begun))
        return ((self.painted[-1][0] if self.painted else begun) - begun) * 1000

    def _still(self, begun: float) -> bool:
        last = self.painted[-1][0] if self.painted else begun
        return not self._busy and time.perf_counter() - last > STILL


async def round_of(turn: int) -> dict[str, dict[str, list[float]]]:
    """One round: times and ratios of each thing."""
    watch = Watch()
    taken: dict[str, dict[str, list[float]]] = {}
    async with watch.app.run_test(size=(120, 40)):
        client = watch.app.controller.client
        await watch.until(lambda: watch.app.controller.timeline.prefilled is not None and not client.outstanding)
        for key in ("space", "space", "space", "left", "d", "space", "space"):  # two branches, for what compares
            await watch.press(key)
        for name, key, what in THINGS[turn % len(THINGS) :] + THINGS[: turn % len(THINGS)]:
            times = taken.setdefault(f"{name:2} {what}", {"open": [], "back": [], "yard": []})
            for _ in range(OPENINGS):
                times["yard"].append(yardstick())
                times["open"].append(await watch.press(key, name in MEASURING))
                times["back"].append(await watch.press(CLOSED_BY.get(name, "escape")))
                while len(watch.app.screen_stack) > 1:
                    await watch.press("escape")
    return taken


def escape_wait(checkout: Path) -> float:
    """Milliseconds from a lone escape, sent to a terminal, to the first byte drawn for it: the prompt dialog is left."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(checkout)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        values = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(checkout)}
        command = ["-m", "inspector", "-p", PROMPT, "--ignore-chat-template", "--no-save"]
        os.execve(sys.executable, [sys.executable, *command], values)
    try:
        _read_until_still(terminal, 3.0)
        os.write(terminal, b"p")
        _read_until_still(terminal, 0.45)  # the cursor blinks every half second
        begun = time.perf_counter()
        os.write(terminal, b"\x1b")
        if not select.select([terminal], [], [], PATIENCE)[0]:
            raise TimeoutError("nothing was drawn after escape")
        return (time.perf_counter() - begun) * 1000
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def _read_until_still(terminal: int, seconds: float) -> None:
    select.select([terminal], [], [], PATIENCE)
    while select.select([terminal], [], [], seconds)[0]:
        os.read(terminal, 1 << 16)


def in_process(checkout: Path, turn: int, home: str) -> dict[str, dict[str, list[float]]]:
    """One round of a checkout, in a process of its own."""
    drop = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    values = {name: value for name, value in os.environ.items() if name not in drop}
    values |= {"PYTHONPATH": str(checkout), "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
    values |= {"TEXTUAL_ANIMATIONS": "none", "COLORTERM": "truecolor"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(turn)]
    done = subprocess.run(command, cwd=checkout, env=values, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return result


def told(times: list[float], yards: list[float]) -> str:
    """Median in milliseconds, and as a ratio."""
    ratios = [ms / yard for ms, yard in zip(times, yards, strict=True)]
    return f"{statistics.median(times):6.0f} ms {statistics.median(ratios):5.1f}"


def report(checkout: Path, rounds: list[dict[str, dict[str, list[float]]]]) -> None:
    """Print the medians of a checkout, in the order of the keys."""
    print(f"\n{checkout}: medians of {len(rounds)} rounds, ms and yardsticks")
    print(f"{'':20}   {'first':>15}   {'later':>15}   {'back':>15}")
    for name, _, what in THINGS:
        each = [one[f"{name:2} {what}"] for one in rounds]
        first = told([one["open"][0] for one in each], [one["yard"][0] for one in each])
        yards = [yard for one in each for yard in one["yard"][1:]]
        later = told([ms for one in each for ms in one["open"][1:]], yards)
        back = told([ms for one in each for ms in one["back"][1:]], yards)
        print(f"{name:2} {what:17}   {first:>15}   {later:>15}   {back:>15}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(asyncio.run(round_of(args.child))))
        return
    checkouts = [Path.cwd(), *(checkout.resolve() for checkout in args.checkouts)]
    rounds: dict[Path, list[Any]] = {checkout: [] for checkout in checkouts}
    waits: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(args.rounds):
            for checkout in checkouts:
                rounds[checkout].append(in_process(checkout, turn, home))
                waits[checkout].append(escape_wait(checkout))
    for checkout in checkouts:
        report(checkout, rounds[checkout])
        print(f"a lone escape in a terminal, to the first byte drawn: {statistics.median(waits[checkout]):.0f} ms")


if __name__ == "__main__":
    main()
