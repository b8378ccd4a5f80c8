"""The terminal that tests read a program's screen from."""

from __future__ import annotations

import os
import sys

import pytest

from tests.terminal_screen import TerminalScreen

PROGRAM = r"""
import os, sys, termios, tty
tty.setraw(0)
print("\x1b[31;1mred\x1b[0m \x1b[48;2;1;2;3m犬\x1b[0m", end="\r\n", flush=True)
while (key := os.read(0, 100)) != b"q":
    print(repr(key), tuple(os.get_terminal_size()), end="\r\n", flush=True)
sys.exit(3)
"""


def test_a_program_is_seen_as_its_terminal_shows_it() -> None:
    with TerminalScreen(
        [sys.executable, "-S", "-c", PROGRAM], {"PATH": os.environ["PATH"]}, (40, 10)
    ) as screen:
        screen.wait_for("red")
        red, dog = screen.cells()[0][0], screen.cells()[0][4]
        assert (red.text, red.fg, red.bold, dog.text, dog.bg) == ("r", "red", True, "犬", "010203")
        for key, sent in (("up", r"\x1b[A"), ("escape", r"\x1b"), ("x", "x"), ("ctrl+q", r"\x11")):
            screen.press(key)
            screen.wait_for(f"b'{sent}' (40, 10)")
        screen.resize(50, 12)
        screen.press("enter")
        screen.wait_for(r"b'\r' (50, 12)")
        with pytest.raises(TimeoutError, match="nothing"):
            screen.wait_for("nothing", timeout=0)
        screen.press("q")
        assert screen.wait_closed() == 3
