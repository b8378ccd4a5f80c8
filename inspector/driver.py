"""The driver of a terminal, the filter of everything that is drawn on it, and the clipboard of a Mac around it."""

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
"""TERM_PROGRAM of terminals that take no OSC 52, or only if they are set to."""
_PBCOPY_SECONDS = 2.0
"""Most time that pbcopy may take: it takes some 10 ms."""
_POLL_SECONDS = 0.1
"""Time between two checks whether the program ends, as in Textual."""


class TerminalGone(Message):
    """The terminal was closed: there is nothing to read from or to draw on."""


class TerminalOutput:
    """The terminal as a file; writes nothing any more once it is gone.

    Textual's writing thread would end with the error, its queue fill up, and the program hang.

    Args:
        file: The terminal.
        lost: Called when it is gone.
    """

    def __init__(self, file: TextIO, lost: Callable[[], object]) -> None:
        self._terminal, self._lost = file, lost
        self._gone = False
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        """Write a text, as long as the terminal is there."""
        self._try(self._terminal.write, text)

    def flush(self) -> None:
        """Write out the buffer, as long as the terminal is there."""
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
    """Drops bytes that are not UTF-8, at which Textual fails (its issue 6456), and notices the terminal's end."""

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
        with suppress(RuntimeError):  # the program has ended, too
            self.send_message(TerminalGone())

    def start_application_mode(self) -> None:
        """Take the terminal; give it back if there is no thread to be had."""
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except RuntimeError:
            self.stop_application_mode()
            raise

    def close(self) -> None:
        """End the writing thread."""
        with suppress(RuntimeError):  # it was never started
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
                    messages = parser.feed(text) if text else ()  # to the parser an empty one is the end
                    # only when nothing more comes may an escape have been the key
                    wait = constants.ESCAPE_DELAY
                for message in messages:
                    self.process_message(message)


# ---- control characters --------------------------------------------------------------------------

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


class ControlFilter(LineFilter):
    """Replaces control characters in every line that goes to the terminal, in any widget.

    Panels draw through `visible()` and never need it; pasted text in one of Textual's editors may.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with nothing in them that a terminal obeys; their widths stay."""
        if not _OBEYED.search("".join([text for text, *_ in segments])):
            return segments
        return [Segment(_harmless(text), style, control) for text, style, control in segments]


def _harmless(text: str) -> str:
    return _OBEYED.sub(lambda match: "�" * cell_len(match[0]), text)


def copy_on_mac(text: str) -> None:
    """Put a text on the clipboard of the Mac that this process runs on, if its terminal can't be asked to.

    Over ssh, and in a browser, it would be the clipboard of another user.

    Args:
        text: Without half pairs of surrogates.
    """
    terminal = os.environ.get("TERM_PROGRAM")
    if platform.system() != "Darwin" or terminal not in _WITHOUT_OSC_52 or "SSH_CONNECTION" in os.environ:
        return
    with suppress(OSError, subprocess.SubprocessError):  # the terminal was asked, too
        subprocess.run(
            ["pbcopy"], input=text.encode(), env={**os.environ, "LC_CTYPE": "UTF-8"}, timeout=_PBCOPY_SECONDS,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
