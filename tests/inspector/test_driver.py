"""What the driver makes of what a terminal sends and of a terminal that has gone."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest
from textual import constants
from textual.events import Key

from inspector.driver import TerminalDriver, TerminalOutput


class Closed(io.StringIO):
    """A terminal that fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.tries = number, 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise OSError(self.number, "failed")


def test_a_terminal_that_has_gone_is_written_to_once() -> None:
    lost: list[bool] = []
    file = Closed(errno.EIO)
    output = TerminalOutput(file, lambda: lost.append(True))
    for _ in range(50):
        output.write("x")
        output.flush()
    assert (file.tries, lost) == (1, [True])


def test_another_failure_is_no_end_of_the_terminal() -> None:
    with pytest.raises(OSError, match="failed"):
        TerminalOutput(Closed(errno.ENOSPC), list).write("x")


class Keyboard:
    """The thread that reads keys, on a pipe."""

    def __init__(self) -> None:
        self.keys: Queue[Any] = Queue()
        read, self.end = os.pipe()
        reader = TerminalDriver.__new__(TerminalDriver)
        vars(reader).update(fileno=read, exit_event=threading.Event())
        vars(reader).update(process_message=self.keys.put, lost=lambda: os.close(read))
        self._thread = threading.Thread(target=reader.run_input_thread)
        self._thread.start()

    def key(self) -> str:
        """The next key that was read."""
        event = self.keys.get(timeout=60)
        assert isinstance(event, Key)
        return event.key

    def close(self) -> None:
        """End the input, and with it the thread."""
        os.close(self.end)
        self._thread.join()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Keyboard]:
    monkeypatch.setattr(constants, "ESCAPE_DELAY", request.param)
    keyboard = Keyboard()
    yield keyboard
    keyboard.close()


@pytest.mark.parametrize("keyboard", [0.001], indirect=True)
def test_an_escape_with_nothing_after_it_is_the_key(keyboard: Keyboard) -> None:
    for _ in range(3):
        os.write(keyboard.end, b"\x1b")
        assert keyboard.key() == "escape"
    os.write(keyboard.end, b"a")
    assert keyboard.key() == "a"


@pytest.mark.parametrize("keyboard", [30.0], indirect=True)
def test_a_sequence_that_comes_in_parts_is_one_key(keyboard: Keyboard) -> None:
    for part in (b"\x1b", b"[", b"A", b"b"):
        os.write(keyboard.end, part)
    assert [keyboard.key(), keyboard.key()] == ["up", "b"]


@pytest.mark.parametrize("keyboard", [0.001], indirect=True)
def test_a_byte_that_is_no_text_ends_no_input(keyboard: Keyboard) -> None:
    os.write(keyboard.end, b"\xff")
    os.write(keyboard.end, b"a")
    assert keyboard.key() == "a"
