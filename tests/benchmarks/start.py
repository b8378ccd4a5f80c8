"""From the start of the program to its first paint and to the first distribution on screen, on the pocket model.

    python -m tests.benchmarks.start [--count STARTS] [--beside CHECKOUT]

Each start is a process on a terminal of 120 by 40. Other checkouts of the program are started in turn with this one.
Bytecode may be written: an installed program has it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from tests.benchmarks.vocabularies import Asked, Figures, by_command

STARTS = 5
PATIENCE = 60.0
"""Seconds for one start."""
PAINTED = 1500
"""Characters without colours and moves: the frames of the first screen have more."""
_CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")
_PROBABILITY = re.compile(rb"\d\d\.\d+ ?%")
COMMAND = ["-m", "inspector", "-p", "Once upon a time", "--ignore-chat-template", "--no-save"]


def start(checkout: Path, home: str) -> tuple[float, float]:
    """Seconds to the first paint and to the first distribution of one start."""
    begun = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(checkout)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        drop = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        values = {name: value for name, value in os.environ.items() if name not in drop}
        values |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "XDG_STATE_HOME": home}
        os.execve(sys.executable, [sys.executable, *COMMAND], values)
    try:
        return _watch(terminal, begun)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def _watch(terminal: int, begun: float) -> tuple[float, float]:
    seen, painted = b"", 0.0
    while (now := time.perf_counter() - begun) < PATIENCE:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        seen += os.read(terminal, 1 << 16)
        plain, now = _CONTROLS.sub(b"", seen), time.perf_counter() - begun
        painted = painted or (now if len(plain) > PAINTED else 0.0)
        if _PROBABILITY.search(plain):
            return painted, now
    raise TimeoutError(f"no distribution within {PATIENCE:g} s")


def main(asked: Asked) -> Figures:
    """Measure and print; the first start of each checkout is not counted."""
    figures: Figures = {}
    starts, checkouts = asked.times(STARTS), [Path.cwd(), *asked.beside]
    taken: dict[Path, list[tuple[float, float]]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(starts + 1):
            for checkout in checkouts:
                times = start(checkout, home)
                print(f"{checkout}: painted after {times[0]:.2f} s, a distribution after {times[1]:.2f} s")
                if turn:
                    taken[checkout].append(times)
    for checkout, all_times in taken.items():
        for name, seconds in zip(
            ("first paint", "first distribution"), zip(*all_times, strict=True), strict=True
        ):
            spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
            print(f"{checkout}: {name} {statistics.median(seconds):.2f} s ({spread}, {starts} starts)")
            figures[name if checkout == Path.cwd() else f"old {name}"] = statistics.median(seconds)
    return figures | asked.old()


if __name__ == "__main__":
    by_command(main, __doc__)
