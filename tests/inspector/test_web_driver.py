"""The program as textual-serve starts it: Textual's driver for browsers takes keys from a pipe and draws into one."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

SECONDS = 120.0
LONGEST = 2**24
"""Bytes of a packet at most: more is a sign of something else in the output."""
ENVIRONMENT = {
    "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver", "TEXTUAL_FPS": "60", "TEXTUAL_COLOR_SYSTEM": "truecolor",
    "TERM_PROGRAM": "textual", "TERM": "dumb", "COLUMNS": "120", "ROWS": "40",
}  # fmt: skip
"""As textual-serve sets it; the terminal in which it was started means nothing."""
_STYLES = re.compile(rb"\x1b\[[^a-zA-Z]*[a-zA-Z]")


class Served:
    """A program over pipes. A packet is a letter, the length of what follows in four bytes, and that."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "inspector", "--no-save"], env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.drawn = b""
        self._came = b""

    def read(self, length: int) -> bytes:
        """The next bytes of the output."""
        assert self.process.stdout is not None
        end = time.monotonic() + SECONDS
        while len(self._came) < length:
            assert select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0], (
                self.drawn[-2000:]
            )
            data = os.read(self.process.stdout.fileno(), 2**16)
            assert data, (self.process.wait(SECONDS), self.drawn[-2000:])
            self._came += data
        read, self._came = self._came[:length], self._came[length:]
        return read

    def packet(self) -> tuple[bytes, bytes]:
        """The next packet: its letter and what is in it."""
        kind, length = self.read(1), int.from_bytes(self.read(4), "big")
        assert kind in (b"D", b"M"), (kind, self.drawn[-2000:])
        assert length < LONGEST
        return kind, self.read(length)

    def until(self, words: bytes) -> None:
        """Wait until something is drawn."""
        while words not in _STYLES.sub(b"", self.drawn):
            kind, content = self.packet()
            assert kind == b"D", content
            self.drawn += content

    def send(self, kind: bytes, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(kind + len(content).to_bytes(4, "big") + content)
        self.process.stdin.flush()


@pytest.fixture
def served() -> Iterator[Served]:
    begun = Served()
    yield begun
    begun.process.kill()
    begun.process.communicate()


def test_a_browser_sees_the_screen_steps_and_leaves(served: Served) -> None:
    assert served.read(len(b"__GANGLION__\n")) == b"__GANGLION__\n"
    served.until(b"DECODE")
    served.drawn = b""
    served.send(b"D", b" ")
    served.until(b"step 1")
    served.send(b"M", json.dumps({"type": "quit"}).encode())
    while (packet := served.packet())[0] == b"D":
        pass
    assert json.loads(packet[1]) == {"type": "exit"}
    assert served.process.wait(SECONDS) == 0
