"""`inspector generate`: one completion without a screen, as text or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, TextIO

from inspector.cli.arguments import Request, request_from
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

    request = request_from(args)
    return exit_status(drive(request, writer(request, output(), sys.stderr), [Run()]))


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    if request.jsonl:
        from inspector.cli.writers.jsonl import JsonLines

        return JsonLines(out, request)
    from inspector.cli.writers.plain import PlainText

    return PlainText(out, err, request)


SUBCOMMAND = Subcommand(parser, run, "one completion: its text or JSON lines")
