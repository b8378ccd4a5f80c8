"""The command `inspector`: reads the flags, then opens the screen or runs headless.

Everything heavy is imported where it is needed, so that `--help` is instant. Whatever goes wrong is one line.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

from engine.errors import EngineError
from inspector import arguments

if TYPE_CHECKING:
    from inspector.headless import Outcome

FAULT, BAD_INPUT, INTERRUPTED = 1, 2, 130
LEAST_COLUMNS, LEAST_ROWS = 40, 10
STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}
LONGEST_LINE = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for those of the process.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    return _flushed(_guarded(given))


def _guarded(given: Sequence[str]) -> int:
    try:
        if given[:1] == ["beam"]:
            return _beam(arguments.parse_beam(given[1:]))
        headless = given[:1] == ["generate"]
        args = arguments.parse(given[1:] if headless else given, headless)
        return _generate(args) if headless else _screen(args)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return _bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return _fault(f"{type(error).__name__}: {error}", trace)


def _flushed(code: int) -> int:
    """Write out what is buffered; where that fails, keep the interpreter from trying, and complaining, again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            _discard(stream.fileno())
        except OSError as error:
            _discard(stream.fileno())
            if not code:
                code = _bad_input(f"The output can't be written: {error.strerror}.")
    return code


def _discard(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


# ---- the ways to run ----------------------------------------------------------------------


def _generate(args: Namespace) -> int:
    from inspector import headless

    request = arguments.request(args, headless=True)
    outcome = headless.generate(request, headless.writer(request, _output(), sys.stderr))
    return _concluded(outcome)


def _beam(args: Namespace) -> int:
    from inspector import beams, headless

    request, settings = arguments.request(args, headless=True), arguments.beam_settings(args)
    writer = beams.writer(request, _output(), sys.stderr)
    return _concluded(headless.generate(request, writer, last=beams.command(settings)))


def _output() -> TextIO:
    """Standard output, as UTF-8.

    Raises:
        EngineError: It is closed.
    """
    if sys.stdout is None:
        raise EngineError("Standard output is closed.", "Send it to a file, a pipe or a terminal.")
    _use_utf8()
    return sys.stdout


def _concluded(outcome: Outcome) -> int:
    """Tell what failed, if something did; returns the exit status."""
    code = outcome.code
    if outcome.failure is not None:
        failure = outcome.failure
        told = f"{failure.message} {failure.hint}".rstrip()
        code = _bad_input(told) if failure.expected else _fault(failure.message, failure.trace)
    if not outcome.joined:
        _leave_at_once(code)
    return code


def _leave_at_once(code: int) -> NoReturn:
    """End the process without the interpreter's shutdown: a thread that still uses MLX would abort it."""
    os._exit(_flushed(code))


def _use_utf8() -> None:
    """Write the model's text as it is, whatever the locale says; a terminal gets what it can show."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace") if sys.stdout.isatty() else reconfigure(encoding="utf-8")


def _screen(args: Namespace) -> int:
    _check_terminal(args.prompt == "-")
    request = arguments.request(args, headless=False)
    from inspector.app import InspectorApp

    app = InspectorApp(
        load=request.load,
        settings=request.settings,
        prompt=request.prompt,
        chat=request.chat,
        system=request.system,
        echo=request.echo,
        engine=None,
    )
    app.run()
    code = app.return_code or 0
    if not app.closed_in_time:
        _leave_at_once(code)
    return code


def _check_terminal(prompt_from_stdin: bool) -> None:
    """Refuse to open a screen where none can be drawn or no key can be read.

    Raises:
        EngineError: With what to run instead.
    """
    instead = "Without one, use inspector generate."
    others = [name for stream, name in STREAMS.items() if not _is_terminal(stream)]
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


def _is_terminal(name: str) -> bool:
    stream = getattr(sys, name)
    return stream is not None and not stream.closed and bool(stream.isatty())


# ---- what is told -----------------------------------------------------------------------------


def _bad_input(message: str) -> int:
    _say(message)
    return BAD_INPUT


def _fault(message: str, trace: str) -> int:
    """Tell of a fault of the program itself, and keep its traceback in a file."""
    _say(f"This is a fault of the program: {message} {_kept(trace)}")
    return FAULT


def _kept(trace: str) -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="inspector-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(trace)
    except OSError as error:
        return f"Its traceback could not be written: {error.strerror}."
    return f"Please report it with its traceback: {file.name}."


def _say(message: str) -> None:
    """One line on standard error, nothing in it obeyed by a terminal."""
    from inspector.display import visible

    line = " ".join(message.split())
    if len(line) > LONGEST_LINE:
        line = line[: LONGEST_LINE // 2] + " … " + line[-LONGEST_LINE // 2 :]
    if sys.stderr is None:
        return
    try:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(
            f"inspector: error: {visible(line)}\n".encode(encoding, "backslashreplace").decode(encoding)
        )
    except OSError:
        pass
