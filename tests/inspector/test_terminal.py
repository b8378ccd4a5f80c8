"""What a terminal and the system may do to the screen, in a real terminal: bytes, signals, its end, and no thread."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.inspector.test_starts import SCREEN, Terminal

MODES = ("?1049", "?1000", "?1003", "?1006", "?2004", "?1004")
"""Of the terminal, that the screen sets: alternate screen, mouse, pasting, focus."""
WITHOUT_THREAD = """
import sys, threading
start = threading.Thread.start
def started(self):
    if self.name == {name!r}:
        raise RuntimeError("can't start new thread")
    start(self)
threading.Thread.start = started
from inspector.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def opened() -> Iterator[Callable[..., Terminal]]:
    """Starts a program on a terminal, and closes it after the test."""
    terminals = []

    def begin(*command: str) -> Terminal:
        terminals.append(Terminal([*(command or SCREEN)]))
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.close()


def restored(terminal: Terminal) -> bool:
    """Whether all modes were reset after they were last set, and the settings are what they were."""
    seen = terminal.seen.decode(errors="replace")
    last = [max(seen.rfind(f"\x1b[{mode}{end}") for mode in [mode]) for end in "hl" for mode in MODES]
    reset = all(on < off for on, off in zip(last[: len(MODES)], last[len(MODES) :], strict=True))
    return reset and seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l") and (
        termios.tcgetattr(terminal.follower) == terminal.before
    )  # fmt: skip


def plain(terminal: Terminal) -> str:
    """What was written once the screen was left, without what only the terminal reads."""
    seen = terminal.seen.decode(errors="replace").rpartition("\x1b[?1049l")[2]
    return re.sub(r"\x1b\[[?<>=]?[0-9;]*[a-zA-Z]", "", seen).strip()


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT"])
@pytest.mark.parametrize("shown", ["\x1b[?1049h", "DECODE"])
def test_a_signal_ends_the_screen_and_restores_the_terminal(opened, name: str, shown: str) -> None:
    terminal = opened()
    terminal.until(shown)
    terminal.process.send_signal(signal.Signals[name])
    assert terminal.leave() == -signal.Signals[name]
    assert restored(terminal)
    assert "Traceback" not in plain(terminal)


def test_a_session_that_a_signal_ended_is_saved(opened, tmp_path: Path) -> None:
    terminal = opened()
    terminal.until("DECODE")
    terminal.press(b"   ")
    terminal.until("tok/s")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.leave()
    [saved] = (tmp_path / "state").rglob("*.trace*")
    assert saved.stat().st_size > 1000


@pytest.mark.slow
def test_bytes_that_are_no_text_are_dropped(opened) -> None:
    terminal = opened()
    terminal.until("DECODE")
    terminal.press(b"\xff\xfe\xe2 \xf0\x9f\xc0\x80")
    terminal.until("step 1")
    terminal.press(b"\x80q")
    assert terminal.leave() == 0
    assert re.fullmatch(r"Session saved: \S+\.trace\s+Continue it: inspector --resume \S+", plain(terminal))


@pytest.mark.slow
@pytest.mark.parametrize("ignored", ["", "trap '' HUP; "])
def test_a_terminal_that_is_closed_ends_the_program(opened, ignored: str) -> None:
    terminal = opened("sh", "-c", f"{ignored}exec {sys.executable} -m inspector")
    terminal.until("DECODE")
    os.close(terminal.follower)
    os.close(terminal.leader)
    terminal.leader, terminal.follower = os.openpty()  # for the fixture to close
    assert terminal.process.wait(120) == -signal.SIGHUP


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", ["engine", "textual-output", "textual-input"])
def test_no_thread_to_be_had_is_told_in_one_line(opened, name: str) -> None:
    terminal = opened(sys.executable, "-c", WITHOUT_THREAD.format(name=name))
    assert terminal.leave() == 2
    assert plain(terminal).startswith("The system allows the program no more threads. Close other programs")
    assert len(plain(terminal).splitlines()) <= 2  # as wide as the terminal
    assert termios.tcgetattr(terminal.follower) == terminal.before


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("TEXTUAL_DRIVER", "nowhere:A", "TEXTUAL_DRIVER is 'nowhere:A', which is not a terminal driver. Unset it."),
        ("TEXTUAL_DRIVER", "nonsense", "TEXTUAL_DRIVER is 'nonsense', which is not a terminal driver. Unset it."),
        ("TEXTUAL_DRIVER", "os:path", "TEXTUAL_DRIVER is 'os:path', which is not a terminal driver. Unset it."),
        (
            "TEXTUAL_COLOR_SYSTEM", "nope", "TEXTUAL_COLOR_SYSTEM is 'nope', which is not a color system. "
            "Unset it, or use one of auto, standard, 256, truecolor.",
        ),
        ("TEXTUAL_LOG", "/", "TEXTUAL_LOG can't be written: /: Is a directory. Unset it."),
    ],
)  # fmt: skip
def test_settings_of_the_toolkit_that_are_wrong_are_told(opened, monkeypatch, variable, value, told) -> None:
    monkeypatch.setenv(variable, value)
    terminal = opened()
    assert terminal.leave() == 2
    assert plain(terminal) == f"inspector: error: {told}"


def test_a_theme_of_the_environment_that_does_not_exist_is_told(opened, monkeypatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "nope")
    terminal = opened()
    assert terminal.leave() == 2
    said = (
        "inspector: error: There is no theme 'nope', which TEXTUAL_THEME names. The themes are dark, light, "
    )
    assert plain(terminal).startswith(said)
