"""Opening the screen: whether it can be drawn here, and running it to its exit status."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine import confinement
from engine.errors import EngineError
from inspector.cli.exit import flush, leave_at_once, note

if TYPE_CHECKING:
    from inspector.app import InspectorApp

LEAST_COLUMNS, LEAST_ROWS = 40, 10
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the screen: the terminal is restored and the session saved before the process ends by them."""
STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


def run(app: InspectorApp) -> int:
    """Run the screen until the user leaves it, or a signal ends it and the process; returns the exit status."""
    before = {number: signal.getsignal(number) for number in ENDING}
    taken = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, lambda received, _: app.end_by(received))
    confinement.begin()  # from here on it is a person's keys that name files
    try:
        app.run()
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None for one that Python did not set
    if app.saved is not None:
        _tell_saved(app.saved)
    if app.ended_by is not None:
        _end_by(app.ended_by)
    code = app.return_code or 0
    if not app.closed_in_time:
        leave_at_once(code)
    return code


def _tell_saved(path: Path) -> None:
    """Say where the session is and how to go on with it: on standard error, as all that is no output."""
    from inspector.recordings import sessions  # not needed for --help

    name = sessions.name_of(path) if path.parent == sessions.folder() else str(path)
    note(f"Session saved: {path}")
    note(f"Go on with it: inspector --resume {shlex.quote(name)}")


def _end_by(number: int) -> None:
    """End the process by a signal, as if nobody had taken it."""
    flush(0)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def check(prompt_from_stdin: bool = False, instead: str = "Without one, use inspector generate.") -> None:
    """Refuse to open a screen where none can be drawn or no key can be read.

    Args:
        prompt_from_stdin: Whether standard input is to give the prompt.
        instead: What to run where there is no terminal.

    Raises:
        EngineError: With what to run or to change instead.
    """
    others = [name for stream, name in STREAMS.items() if not is_terminal(stream)]
    if others == [STREAMS["stdin"]] and prompt_from_stdin:
        raise EngineError(
            "The screen reads its keys from standard input, so the prompt can't come from there.",
            "Use --prompt-file, or inspector generate.",
        )
    if others:
        raise EngineError(f"The screen needs a terminal, and {others[0]} is not one.", instead)
    if os.environ.get("TERM") in ("dumb", "unknown"):
        raise EngineError(f"The screen needs a terminal; TERM is {os.environ['TERM']}.", instead)
    if log := os.environ.get("TEXTUAL_LOG"):
        try:
            open(log, "a", encoding="utf-8").close()
        except OSError as error:
            raise EngineError(
                f"TEXTUAL_LOG can't be written: {log}: {error.strerror}.", "Unset it."
            ) from None
    columns, rows = shutil.get_terminal_size()
    if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        raise EngineError(
            f"The terminal has {columns} columns and {rows} rows; the screen needs {LEAST_COLUMNS} and {LEAST_ROWS}.",
            "Make it larger, or use inspector generate.",
        )


def is_terminal(name: str) -> bool:
    """Whether a standard stream is a terminal."""
    stream = getattr(sys, name)
    return stream is not None and not stream.closed and bool(stream.isatty())
