"""`inspector notes`: the presenter's notes in a second terminal."""

from __future__ import annotations

from argparse import Namespace

from inspector.cli import terminal
from inspector.cli.flags import EXIT_STATUS, Parser, command_parser
from inspector.cli.subcommand import Subcommand


def parser() -> Parser:
    """The parser of `inspector notes`."""
    return command_parser(
        "notes",
        "Show the notes of the lesson that is presented on this machine, with time, votes and what comes next.",
        EXIT_STATUS,
    )


def run(args: Namespace) -> int:
    """Run `inspector notes`.

    Raises:
        EngineError: There is no terminal.
    """
    terminal.check()
    from inspector.tools.lessons.notes import NotesApp, follow, presenting

    return NotesApp(lambda: follow(presenting())).run() or 0


SUBCOMMAND = Subcommand(parser, run, "the notes of the lesson that is presented, in a second terminal")
