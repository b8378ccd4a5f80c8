"""Opening the screen: whether it can be drawn here, and running it to its exit status."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from engine.errors import EngineError
from inspector.cli.exit import leave_at_once

if TYPE_CHECKING:
    from inspector.app import InspectorApp

LEAST_COLUMNS, LEAST_ROWS = 40, 10
STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


def run(app: InspectorApp) -> int:
    """Run the screen until the user leaves it; returns the exit status."""
    app.run()
    code = app.return_code or 0
    if not app.closed_in_time:
        leave_at_once(code)
    return code


def check(prompt_from_stdin: bool = False, instead: str = "Without one, use inspector generate.") -> None:
    """Refuse to open a screen where none can be drawn or no key can be read.

    Args:
        prompt_from_stdin: Whether standard input is to give the prompt.
        instead: What to run where there is no terminal.

    Raises:
        EngineError: With what to run instead.
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
