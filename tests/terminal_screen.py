"""A program in a terminal of its own: keys go in as a terminal sends them, the screen comes back as text and cells.

The terminal is a pseudo terminal that pyte emulates. Nothing here knows which program runs in it.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

import pyte

KEYS = {
    "enter": "\r", "escape": "\x1b", "tab": "\t", "shift+tab": "\x1b[Z", "space": " ", "backspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "shift+up": "\x1b[1;2A", "shift+down": "\x1b[1;2B", "shift+right": "\x1b[1;2C", "shift+left": "\x1b[1;2D",
    "insert": "\x1b[2~", "delete": "\x1b[3~", "pageup": "\x1b[5~", "pagedown": "\x1b[6~",
    "f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS",
    **{f"ctrl+{chr(letter + 96)}": chr(letter) for letter in range(1, 27)},
}  # fmt: skip
"""What a terminal sends for a key; any other key is its own text."""
QUIET = 0.15
"""Seconds without output after which the screen may be complete."""
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Cell(NamedTuple):
    """One cell as it is painted; colors are six hexadecimal digits, a name of the 16 colors, or "default"."""

    text: str
    fg: str
    bg: str
    bold: bool
    italics: bool
    underscore: bool
    strikethrough: bool
    reverse: bool


class TerminalScreen:
    """Starts a program in a terminal.

    Args:
        argv: The program and its arguments.
        env: All of its environment; `TERM` and `COLORTERM` are set if they are missing.
        size: Columns and rows.
        cwd: The directory it runs in.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        size: tuple[int, int] = (120, 40),
        cwd: Path | None = None,
    ) -> None:
        self._leader, follower = pty.openpty()
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._painted = time.monotonic()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=cwd,
            start_new_session=True,
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", **env},
        )
        os.close(follower)

    # ---- what is painted ----------------------------------------------------------------------

    def text(self) -> str:
        """The rows of the screen, without the spaces at their ends."""
        return "\n".join(row.rstrip() for row in self._screen.display)

    def cells(self) -> list[list[Cell]]:
        """The cells by row and column; the second cell of a wide character has an empty text."""
        names, buffer = Cell._fields[1:], self._screen.buffer
        places = range(self._screen.columns)
        return [
            [Cell(row[x].data, *(getattr(row[x], name) for name in names)) for x in places]
            for row in map(buffer.__getitem__, range(self._screen.lines))
        ]

    # ---- keys and size ------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Send keys by name, or texts; after an escape the screen settles, so that it begins no sequence."""
        for key in keys:
            sent = KEYS.get(key, key).encode()
            while sent:
                self._read(0)  # a program that waits for its output to be read does not read its keys
                if select.select([], [self._leader], [], 1)[1]:
                    sent = sent[os.write(self._leader, sent[:512]) :]
            if key == "escape":
                self.settle()

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._screen.resize(rows, columns)
        ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # it is not the session's controlling terminal

    # ---- waiting ------------------------------------------------------------------------------

    def wait_for(self, shown: str | Callable[[str], object], timeout: float = 60) -> None:
        """Wait for a text on the screen, or for something to be true of the screen's text.

        Raises:
            TimeoutError: It does not come, or the program ends; with the screen.
        """
        found = shown if callable(shown) else lambda text: shown in text
        end = time.monotonic() + timeout
        while not found(self.text()):
            if time.monotonic() > end or not self._read(0.2) and self.process.poll() is not None:
                raise TimeoutError(f"{shown!r} is not on the screen:\n{self.text()}")

    def settle(self, timeout: float = 60) -> None:
        """Wait until nothing is painted and, where the system tells it, the program computes nothing.

        Raises:
            TimeoutError: It goes on painting or computing; with the screen.
        """
        end, before = time.monotonic() + timeout, -1.0
        while self.process.poll() is None:
            if self._read(QUIET):
                before = -1.0
            else:
                used = self._used()
                if before >= 0 and used is not None and used <= before + TICK:
                    return
                before = -1.0 if used is None else used
            if time.monotonic() > end:
                raise TimeoutError(f"the screen does not settle:\n{self.text()}")

    def wait_closed(self, timeout: float = 60) -> int:
        """Wait for the program to end by itself; returns its exit status."""
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)
        return self.process.wait(0)

    def close(self) -> None:
        """End the program and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._leader)

    def __enter__(self) -> TerminalScreen:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, seconds: float) -> bool:
        """Take in what is painted within some time; returns whether anything was."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._leader, 1 << 16)
        except OSError:  # the other end is closed
            time.sleep(min(seconds, 0.02))
            return False
        self._stream.feed(data)
        return bool(data)

    def _used(self) -> float | None:
        """CPU seconds of the program and its child processes; None while one of their threads wants the CPU."""
        used = 0.0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getsid(int(process.name)) != self.process.pid:
                    continue
                for thread in (process / "task").iterdir():
                    fields = (thread / "stat").read_text().rpartition(")")[2].split()
                    if fields[0] in "RD":
                        return None
                    used += (int(fields[11]) + int(fields[12])) * TICK
        return used
