"""The toolkit's driver of a terminal, which here lives with any byte and with the terminal's end."""

from __future__ import annotations

import errno
import os
import re
import selectors
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
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
"""What writing to a terminal that was closed answers."""
_LOOK_SECONDS = 0.1
"""Between two looks whether the program ends: the toolkit's own."""
_MOST_BYTES = 4096


class TerminalGone(Message):
    """The terminal was closed: there is nobody to read from or to draw for."""


class TerminalOutput:
    """What is drawn on; writes nothing any more once the terminal has gone.

    The toolkit's writing thread would end there, its queue fill up, and the program hang.

    Args:
        file: The terminal.
        lost: Called when it has gone.
    """

    def __init__(self, file: TextIO, lost: Callable[[], object]) -> None:
        self._file, self._lost = file, lost
        self._gone = False

    def write(self, text: str) -> None:
        """Write a text, as long as the terminal is there."""
        self._try(lambda: self._file.write(text))

    def flush(self) -> None:
        """Write out what is buffered, as long as the terminal is there."""
        self._try(self._file.flush)

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._file.fileno()

    def _try(self, write: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            write()
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self._gone = True
            self._lost()


class TerminalDriver(LinuxDriver):
    """Drops bytes that are no UTF-8, and notices when the terminal has gone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._file = cast(Any, TerminalOutput(cast(TextIO, self._file), self._lost))

    def _lost(self) -> None:
        with suppress(RuntimeError):  # the program has ended, too
            self.send_message(TerminalGone())

    # ---- beginning and end ------------------------------------------------------------------

    def start_application_mode(self) -> None:
        """Take the terminal. Where that fails for want of a thread, give it back first."""
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except RuntimeError:
            if self._writer_thread is not None and self._writer_thread.ident is not None:
                self.stop_application_mode()
            raise

    def close(self) -> None:
        """End the writing thread, where it was begun."""
        if self._writer_thread is not None and self._writer_thread.ident is not None:
            super().close()

    # ---- keys -------------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        """Read what is typed. As the toolkit's own, which ends the program at a byte that is no UTF-8, and spins at the
        end of the input."""
        selector = selectors.SelectSelector()
        selector.register(self.fileno, selectors.EVENT_READ)
        decode = getincrementaldecoder("utf-8")("ignore").decode
        parser = XTermParser(self._debug)
        wait = _LOOK_SECONDS
        with selector:
            while not self.exit_event.is_set():
                if selector.select(wait):
                    if not (data := self._read()):
                        self._lost()
                        return
                    if text := decode(data):  # to the parser an empty one is the end
                        for message in parser.feed(text):
                            self.process_message(message)
                    # only when nothing more is there may an escape have been the key
                    wait = constants.ESCAPE_DELAY
                    continue
                wait = _LOOK_SECONDS
                for message in parser.tick():
                    self.process_message(message)

    def _read(self) -> bytes:
        """What was typed; nothing where the terminal has gone."""
        try:
            return os.read(self.fileno, _MOST_BYTES)
        except OSError as error:
            if error.errno in _GONE:
                return b""
            raise


# ---- what is written to the terminal ----------------------------------------------------------------

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_TEXT = itemgetter(0)
"""Of a segment."""
_SHOWN = "�"
"""For each cell of what a terminal would obey."""


class ControlFilter(LineFilter):
    """Takes control characters out of every line that goes to the terminal, whichever widget drew it.

    Panels draw through `visible()` and never need it; pasted text in an editor of the toolkit may.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with nothing in them that a terminal obeys; their widths stay."""
        if not _OBEYED.search("".join(map(_TEXT, segments))):
            return segments
        return [Segment(_harmless(text), style, control) for text, style, control in segments]


def _harmless(text: str) -> str:
    return _OBEYED.sub(lambda match: _SHOWN * cell_len(match[0]), text)
