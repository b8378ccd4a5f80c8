"""The command `inspector`: reads the flags, then opens the screen or runs headless.

Everything heavy is imported where it is needed, so that `--help` is instant. Whatever goes wrong is one line.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence

from engine.errors import EngineError
from inspector import arguments
from inspector.ending import INTERRUPTED, bad_input, fault, flushed, leave_at_once
from inspector.flags import parsed
from inspector.subcommands import SUBCOMMANDS

LEAST_COLUMNS, LEAST_ROWS = 40, 10
STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for those of the process.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    return flushed(_guarded(given))


def _guarded(given: Sequence[str]) -> int:
    try:
        return _run(given)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return fault(f"{type(error).__name__}: {error}", trace)


def _run(given: Sequence[str]) -> int:
    if given and (subcommand := SUBCOMMANDS.get(given[0])) is not None:
        return subcommand.run(parsed(subcommand.parser(), given[1:]))
    purposes = {name: each.purpose for name, each in SUBCOMMANDS.items()}
    args = parsed(arguments.screen_parser(purposes), given)
    if args.stray:
        word = next((word for word in args.stray if word in SUBCOMMANDS), None)
        hint = f"Put {word} first: inspector {word} ..." if word else "See `inspector --help`."
        raise EngineError(f"{args.stray[0]!r} is no flag of inspector.", hint)
    return _screen(args)


# ---- the screen -------------------------------------------------------------------------------


def _screen(args: Namespace) -> int:
    _check_terminal(args.prompt == "-")
    request = arguments.request(args, headless=False)
    from inspector import sessions
    from inspector.app import InspectorApp

    app = InspectorApp(
        load=request.load,
        settings=request.settings,
        prompt=request.prompt,
        chat=request.chat,
        system=request.system,
        echo=request.echo,
        engine=None,
        breakpoints=request.breakpoints,
        save=None if args.no_save else sessions.folder(),
    )
    app.run()
    code = app.return_code or 0
    if not app.closed_in_time:
        leave_at_once(code)
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
