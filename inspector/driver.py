"""The terminal driver, the filter for everything drawn on the terminal, and the clipboard on a Mac."""

from __future__ import annotations

import errno
import os
import platform
import re
import selectors
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.segment import Segment
from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.message import Message

_GONE = frozenset({errno.EIO, errno.ENXIO, errno.EBADF, errno.EPIPE})
"""Errors of a terminal that was closed."""
_WITHOUT_OSC_52 = ("Apple_Terminal", "tmux")
"""TERM_PROGRAM of terminals that ignore OSC 52, at least by default."""
_PBCOPY_SECONDS = 2.0
"""Timeout of pbcopy, which takes about 10 ms."""
_POLL_SECONDS = 0.1
"""Time between two checks whether the program ends, as in Textual."""


class TerminalGone(Message):
    """The terminal was closed."""


class TerminalOutput:
    """The terminal as a file that ignores writes once the terminal is gone.

    Otherwise Textual's writing thread would end with the error, its queue fill up, and the program hang.

    Args:
        file: The terminal.
        lost: Called when it is gone.
    """

    def __init__(self, file: TextIO, lost: Callable[[], object]) -> None:
        self._terminal, self._lost = file, lost
        self._gone = False
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        """Write a text, unless the terminal is gone."""
        self._try(self._terminal.write, text)

    def flush(self) -> None:
        """Flush the buffer, unless the terminal is gone."""
        self._try(self._terminal.flush)

    def _try(self, write: Callable[..., object], *text: str) -> None:
        try:
            if not self._gone:
                write(*text)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self._gone = True
            self._lost()


class TerminalDriver(LinuxDriver):
    """Drops input bytes that aren't UTF-8, on which Textual fails (its issue 6456), and notices a closed terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        terminal = sys.__stderr__
        output = TerminalOutput(cast(TextIO, terminal), self.lost)
        sys.__stderr__ = output  # type: ignore[misc,assignment]  # Textual draws on it
        try:
            super().__init__(app, **options)
        finally:
            sys.__stderr__ = terminal  # type: ignore[misc]

    def lost(self) -> None:
        """Report that the terminal is gone."""
        with suppress(RuntimeError):  # the program has ended too
            self.send_message(TerminalGone())

    def start_application_mode(self) -> None:
        """Set up the terminal; restore it if no thread can be started."""
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except RuntimeError:
            self.stop_application_mode()
            raise

    def close(self) -> None:
        """End the writing thread."""
        with suppress(RuntimeError):  # the thread was never started
            super().close()

    def run_input_thread(self) -> None:
        """Read keys; unlike in Textual the end of the input ends the thread."""
        selector, parser = selectors.SelectSelector(), XTermParser()
        selector.register(self.fileno, selectors.EVENT_READ)
        decode = getincrementaldecoder("utf-8")("ignore").decode
        wait = _POLL_SECONDS
        with selector:
            while not self.exit_event.is_set():
                if not selector.select(wait):
                    wait, messages = _POLL_SECONDS, parser.tick()
                else:
                    try:
                        data = os.read(self.fileno, 4096)
                    except OSError as error:
                        if error.errno not in _GONE:
                            raise
                        data = b""
                    if not data:
                        self.lost()
                        return
                    text = decode(data)
                    messages = parser.feed(text) if text else ()  # an empty text would end the parser
                    # an escape is the key only if nothing follows it
                    wait = constants.ESCAPE_DELAY
                for message in messages:
                    self.process_message(message)


# ---- control characters --------------------------------------------------------------------------

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class ControlFilter(LineFilter):
    """Replaces control characters in every line that goes to the terminal, from any widget.

    Panels use `visible()` and never need it, but text pasted into one of Textual's editors may.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Replace everything in the segments that a terminal would obey, without changing their widths."""
        if not _OBEYED.search("".join([text for text, *_ in segments])):
            return segments
        return [Segment(_harmless(text), style, control) for text, style, control in segments]


def _harmless(text: str) -> str:
    return _OBEYED.sub(lambda match: "�" * cell_len(match[0]), text)


def copy_on_mac(text: str) -> None:
    """Copy a text to the clipboard of the Mac that this process runs on, if its terminal doesn't support that.

    Over ssh and in a browser nothing is done, since it would be a different machine's clipboard.

    Args:
        text: The text, without lone surrogates.
    """
    terminal = os.environ.get("TERM_PROGRAM")
    if platform.system() != "Darwin" or terminal not in _WITHOUT_OSC_52 or "SSH_CONNECTION" in os.environ:
        return
    with suppress(OSError, subprocess.SubprocessError):  # the terminal was asked as well
        subprocess.run(
            ["pbcopy"], input=text.encode(), env={**os.environ, "LC_CTYPE": "UTF-8"}, timeout=_PBCOPY_SECONDS,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
