"""`inspector generate`: one completion without a screen, as text or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, TextIO

from inspector.cli.arguments import Request, request
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import Parser, add_generation, add_jsonl, command_parser
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.cli.driver import Writer


def parser() -> Parser:
    """The parser of `inspector generate`."""
    made = command_parser(
        "generate",
        "The same engine without a screen: the text to standard output, the figures to standard error.",
    )
    add_generation(made)
    add_jsonl(made, "text")
    return made


def run(args: Namespace) -> int:
    """Run `inspector generate`."""
    from engine.commands import Run
    from inspector.cli.driver import drive

    asked = request(args)
    return exit_status(drive(asked, writer(asked, output(), sys.stderr), [Run()]))


def writer(asked: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    if asked.jsonl:
        from inspector.cli.writers.jsonl import JsonLines

        return JsonLines(out, asked)
    from inspector.cli.writers.plain import PlainText

    return PlainText(out, err, asked)


SUBCOMMAND = Subcommand(parser, run, "one completion: its text or JSON lines")
