"""`inspector generate`: one completion without a screen, as text or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from inspector.cli.arguments import Request, request_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import Parser, add_generation, add_jsonl, add_trace, command_parser
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.cli.driver import Writer

UNKEPT = "--record-logits has no effect without a trace: give -o TRACE."


def parser() -> Parser:
    """The parser of `inspector generate`."""
    made = command_parser(
        "generate",
        "The same engine without a screen: the text to standard output, the figures to standard error.",
    )
    add_generation(made)
    add_jsonl(made, "text")
    add_trace(made)
    return made


def run(args: Namespace) -> int:
    """Run `inspector generate`.

    Raises:
        EngineError: A value is out of range, there is no prompt, or the trace can't be written.
    """
    from engine.commands import Run
    from inspector.cli.driver import drive
    from inspector.cli.writers.trace import TraceWriter, place

    path, request = place(args.output, args.force, "the text does"), request_from(args)
    if request.load.record_logits and path is None:
        request = replace(request, notes=(*request.notes, UNKEPT))
    plain = writer(request, output(), sys.stderr)
    if path is None:
        return exit_status(drive(request, plain, [Run()]))
    trace = TraceWriter(plain, request)
    outcome = drive(request, trace, [Run()])
    if outcome.failure is None:
        trace.save(path, args.force)
    return exit_status(outcome)


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    if request.jsonl:
        from inspector.cli.writers.jsonl import JsonLines

        return JsonLines(out, request)
    from inspector.cli.writers.plain import PlainText

    return PlainText(out, err, request)


SUBCOMMAND = Subcommand(parser, run, "one completion: its text or JSON lines")
