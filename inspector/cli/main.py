"""The command `inspector`: reads the flags, then opens the screen or runs a subcommand.

Everything heavy is imported where it is needed, so that `--help` is instant. Whatever goes wrong is one line.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence

from engine.errors import EngineError
from inspector.cli.exit import INTERRUPTED, bad_input, fault, flush, not_written
from inspector.cli.flags import Parser, Subcommand, parsed
from inspector.cli.screen import SCREEN

SUBCOMMANDS: Mapping[str, str] = {
    "generate": "generate",
    "batch": "generate",
    "race": "measure",
    "profile": "measure",
    "beam": "generate",
    "inside": "inside",
    "score": "texts",
    "diff": "texts",
    "tokens": "texts",
    "train": "train",
    "open": "open",
    "replay": "recordings",
    "learn": "lessons",
    "lesson": "lessons",
    "models": "models",
    "sessions": "recordings",
    "keys": "keys",
    "export": "recordings",
    "doctor": "doctor",
    "completion": "completion",
}
"""By name, in the order of the help, its module in `inspector.cli.subcommands`, where it is the value of that name in
capitals. It is imported once it is asked for: the screen needs none."""
TAB = (
    "",
    "For tab completion put this line into ~/.bashrc (zsh and fish: inspector completion --help):",
    '  eval "$(inspector completion bash)"',
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for those of the process.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    return flush(_guarded(list(sys.argv[1:] if argv is None else argv)))


def _guarded(argv: Sequence[str]) -> int:
    try:
        return _run(argv)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.filename is None:  # of no file: standard output
            return bad_input(str(not_written(error)))
        return _faulty(error)
    except BaseException as error:  # a panic in a library written in Rust is no Exception
        return _faulty(error)


def _faulty(error: BaseException) -> int:
    return fault(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


def _run(argv: Sequence[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from inspector.cli.subcommands.completion import complete

        complete(*_parsers().values())
    if argv and argv[0] in SUBCOMMANDS:
        subcommand = find(argv[0])
        return subcommand.run(parsed(subcommand.parser(), argv[1:], _parsers))
    parser = SCREEN.parser()
    if not {"-h", "--help"}.isdisjoint(argv):
        lines = [f"  {name:<12}{find(name).purpose}" for name in SUBCOMMANDS]
        parser.epilog = "\n".join(["Subcommands; each has a --help of its own:", *lines, *TAB])
    if argv and argv[0][:1] not in ("", "-"):
        from inspector.cli.suggestions import answer

        raise answer(argv[:1], argv, parser, _parsers)
    return SCREEN.run(parsed(parser, argv, _parsers))


def find(name: str) -> Subcommand:
    """The subcommand of a name."""
    module = importlib.import_module(f"inspector.cli.subcommands.{SUBCOMMANDS[name]}")
    found: Subcommand = getattr(module, name.upper())
    return found


def _parsers() -> dict[str, Parser]:
    """The parsers of all commands, by what is typed."""
    made = [SCREEN.parser(), *(find(name).parser() for name in SUBCOMMANDS)]
    return {parser.prog: parser for parser in made}
