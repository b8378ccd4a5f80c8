"""The end of a command: its output, the one line on an error, and the exit status."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from os import _exit
from typing import TYPE_CHECKING, NoReturn, TextIO

from engine.errors import EngineError

if TYPE_CHECKING:
    from inspector.blocks.blocks import Column

OK, FAULT, BAD_INPUT, NOT_SHOWN, INTERRUPTED = 0, 1, 2, 3, 130
BROKEN, UNDECIDED = 3, 4
"""Exit statuses of a gate: a bound is broken, or is within two standard errors of the figure."""
LONGEST_LINE = 1000


def output() -> TextIO:
    """Standard output, as UTF-8.

    Raises:
        EngineError: It is closed.
    """
    if sys.stdout is None:
        raise EngineError("Standard output is closed.", "Send it to a file, a pipe or a terminal.")
    raw, encoding = getattr(sys.stdout, "buffer", None), sys.stdout.encoding
    if sys.stdout is sys.__stdout__ and isinstance(raw, io.FileIO):
        # PYTHONUNBUFFERED: a signal during the write of a long line would lose the rest
        sys.stdout = open(raw.fileno(), "w", encoding=encoding, closefd=False)  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # the model's text unchanged in any locale; a terminal gets what it can show
        reconfigure(errors="replace") if sys.stdout.isatty() else reconfigure(encoding="utf-8")
    return sys.stdout


def write(lines: Iterable[str]) -> int:
    """Write lines to standard output, with control characters made visible; returns the exit status."""
    from inspector.display import visible

    out = output()
    out.writelines(f"{visible(line)}\n" for line in lines)
    out.flush()
    return OK


def table(columns: Iterable[Column], rows: Iterable[Iterable[str]], fit: bool = False) -> Iterator[str]:
    """The lines of a table; with `fit`, no wider than the terminal if standard output is one."""
    from inspector.blocks.blocks import Table, TableRow
    from inspector.blocks.paint import plain_lines
    from inspector.display import visible

    made = Table(tuple(columns), [TableRow(tuple(map(visible, row))) for row in rows])
    return plain_lines([made], shutil.get_terminal_size().columns, fit and output().isatty())


def leave_at_once(code: int) -> NoReturn:
    """End the process without the interpreter's shutdown: a thread that still uses MLX would abort it."""
    _exit(flush(code))


def flush(code: int) -> int:
    """Flush standard output and error; returns the exit status. After a failure, the interpreter doesn't try again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if not code and not isinstance(error, BrokenPipeError):
                code = bad_input(str(not_written(error)))
    return code


# ---- messages -----------------------------------------------------------------------------------


def bad_input(message: str, code: int = BAD_INPUT) -> int:
    """Report an error that is not a fault of the program; returns the exit status."""
    line = " ".join(message.split())
    if len(line) > LONGEST_LINE:
        line = line[: LONGEST_LINE // 2] + " … " + line[-LONGEST_LINE // 2 :]
    note(f"inspector: error: {line}")
    return code


def not_written(error: OSError) -> EngineError:
    """The error for an output that can't be written."""
    message = f"The output can't be written: {error.strerror or error}."
    return EngineError(message, "Free some space, or write elsewhere.")


def fault(message: str, trace: str) -> int:
    """Report a fault of the program itself, and write its traceback to a file; returns the exit status."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="inspector-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(trace)
        kept = f"Please report it with its traceback: {file.name}."
    except OSError as error:
        kept = f"Its traceback could not be written: {error.strerror}."
    return bad_input(f"This is a fault of the program: {message} {kept}", FAULT)


def note(line: str) -> None:
    """Write one line to standard error, with control characters made visible; errors of the write are ignored."""
    from inspector.display import visible

    if sys.stderr is None:
        return
    try:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(f"{visible(line)}\n".encode(encoding, "backslashreplace").decode(encoding))
    except OSError:
        pass
