"""Starting and leaving, in every phase, in a real terminal: exit code 0, the terminal as it was, no abort."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import pytest

from inspector import __main__

LONG = "One day a little dog went to the park and played with a big red ball. " * 20
SCREEN = [sys.executable, "-m", "inspector"]
PHASES: dict[str, tuple[list[str], list[tuple[str, bytes]]]] = {
    # what is started, and pairs of what the screen then shows and the keys pressed at it
    "loading": ([], [("LOADING", b"q")]),
    "prefill": (["-p", LONG, "--ignore-chat-template", "--prefill-step-size", "4"], [("PREFILL", b"q")]),
    "stepping": ([], [("DECODE", b"   "), ("perplexity", b"q")]),
    "running": (["--max-tokens", "400", "--min-tokens", "400"], [("DECODE", b"r"), ("RUN", b"q")]),
}


class Terminal:
    """A program on a pseudo-terminal of 120 columns and 40 rows."""

    def __init__(self, command: list[str]) -> None:
        self.leader, follower = pty.openpty()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(follower)
        self.follower = follower
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONFAULTHANDLER": "1"}
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
        )
        self.seen = b""

    def read(self, seconds: float) -> None:
        """Take what the program draws within some time."""
        if select.select([self.leader], [], [], seconds)[0]:
            self.seen += os.read(self.leader, 1 << 16)

    def until(self, words: str, seconds: float = 120) -> None:
        """Wait until one of some words (a|b) is on the screen."""
        end = time.monotonic() + seconds
        while not any(word.encode() in self.seen for word in words.split("|")):
            assert time.monotonic() < end, f"{words} never came: {self.seen[-2000:]!r}"
            self.read(0.05)

    def press(self, keys: bytes) -> None:
        os.write(self.leader, keys)

    def leave(self, seconds: float = 120) -> int:
        """Wait for the end, drawing on; returns the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "the program did not end"
            self.read(0.05)
        for _ in range(20):
            self.read(0.01)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        os.close(self.follower)
        os.close(self.leader)


def start_and_quit(phase: str) -> None:
    arguments, script = PHASES[phase]
    terminal = Terminal([*SCREEN, *arguments])
    try:
        for shown, keys in script:
            terminal.until(shown)
            terminal.press(keys)
        begun = time.monotonic()
        code = terminal.leave()
        assert code == 0, terminal.seen[-2000:]
        assert time.monotonic() - begun < 10
        assert termios.tcgetattr(terminal.follower) == terminal.before
        assert b"\x1b[?1049l" in terminal.seen  # the alternate screen was left
        assert terminal.seen.rstrip().rfind(b"\x1b[?25h") > terminal.seen.rfind(
            b"\x1b[?25l"
        )  # the cursor is shown
        for bad in (b"terminate called", b"Fatal Python error", b"Traceback"):
            assert bad not in terminal.seen
    finally:
        terminal.close()


IMPORTED = "| mlx.core"
"""What `-X importtime` writes to standard error once the engine's thread has MLX: Python itself is long up then."""
HEADLESS: dict[str, tuple[list[str], str | None]] = {
    # arguments, and what is written when Ctrl-C comes (None: it runs to its end)
    "loading": ([], IMPORTED),
    "prefill": (["-p", LONG, "--prefill-step-size", "1"], '"event":"PrefillChunk"'),
    "stepping": (["--max-tokens", "5"], None),
    "running": (["--max-tokens", "450", "--min-tokens", "450"], '"event":"Step"'),
}


def start_and_interrupt(phase: str) -> None:
    arguments, event = HEADLESS[phase]
    prompt = [] if "-p" in arguments else ["-p", "Once upon a time"]
    python = [sys.executable, *(["-X", "importtime"] if event == IMPORTED else [])]
    given = [*prompt, *arguments, "--ignore-chat-template", "--jsonl"]
    command = [*python, "-m", "inspector", "generate", *given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    if event:
        stream = process.stderr if event == IMPORTED else process.stdout
        assert stream is not None
        for line in stream:
            lines.append(line)
            if event in line:
                break
        process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    lines += rest.splitlines()
    assert process.returncode == (130 if event else 0), errors
    assert "Traceback" not in errors
    assert "terminate called" not in errors
    if event != IMPORTED:
        assert '"event":"Summary"' in lines[-1]
        assert ('"reason":"cancelled"' in lines[-1]) == bool(event)


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", PHASES)
def test_the_screen_starts_and_quits(phase: str) -> None:
    start_and_quit(phase)


@pytest.mark.wide(1)
@pytest.mark.parametrize("phase", HEADLESS)
def test_the_headless_command_starts_and_ends(phase: str) -> None:
    start_and_interrupt(phase)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(15))
@pytest.mark.parametrize("phase", PHASES)
def test_the_screen_starts_and_quits_every_time(phase: str, turn: int) -> None:
    start_and_quit(phase)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(15))
@pytest.mark.parametrize("phase", HEADLESS)
def test_the_headless_command_starts_and_ends_every_time(phase: str, turn: int) -> None:
    start_and_interrupt(phase)


@pytest.mark.parametrize(
    ("environment", "delay"),
    [
        ({}, "20"),
        ({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}, None),
        ({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22", "TMUX": "/tmp/tmux"}, "20"),
        ({"ESCDELAY": "100"}, "100"),
    ],
)
def test_only_over_a_network_is_the_rest_of_a_sequence_waited_for_long(
    environment: dict[str, str], delay: str | None
) -> None:
    __main__.hasten(environment)
    assert environment.get("ESCDELAY") == delay
