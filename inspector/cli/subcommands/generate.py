"""`inspector generate`: one completion without a screen, as text or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from inspector.cli.arguments import Request, request_from
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import Parser, add_generation, add_jsonl, add_trace, command_parser
from inspector.cli.speculation import PLAIN_STEPS, add_speculation, speculation_from
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from engine.protocol import Command
    from engine.speculation_settings import SpeculationSettings
    from inspector.cli.driver import Writer

UNKEPT = "--record-logits has no effect without a trace: give -o TRACE."


def parser() -> Parser:
    """The parser of `inspector generate`."""
    made = command_parser(
        "generate",
        "The same engine without a screen: the text to standard output, the figures to standard error.",
    )
    add_generation(made)
    add_speculation(made)
    add_jsonl(made, "text")
    add_trace(made)
    return made


def run(args: Namespace) -> int:
    """Run `inspector generate`.

    Raises:
        EngineError: A value is out of range, there is no prompt, or the trace can't be written.
    """
    from inspector.cli.driver import drive
    from inspector.cli.writers.trace import TraceWriter, place

    path, request = place(args.output, args.force, "the text does"), request_from(args)
    if request.load.record_logits and path is None:
        request = replace(request, notes=(*request.notes, UNKEPT))
    plain, commands = writer(request, output(), sys.stderr), _run(speculation_from(args))
    if path is None:
        return exit_status(drive(request, plain, commands, make_backend=backend_from(args)))
    trace = TraceWriter(plain, request)
    outcome = drive(request, trace, commands, make_backend=backend_from(args))
    if outcome.failure is None:
        trace.save(path, args.force)
    return exit_status(outcome)


def _run(speculation: SpeculationSettings | None) -> list[Command]:
    """The commands of the run itself."""
    from engine.protocol import LoadDraft, Run, RunRounds

    if speculation is None:
        return [Run()]
    return [LoadDraft(speculation), RunRounds(speculation, plain=PLAIN_STEPS)]


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    if request.jsonl:
        from inspector.cli.writers.jsonl import JsonLines

        return JsonLines(out, request)
    from inspector.cli.writers.plain import PlainText

    return PlainText(out, err, request)


SUBCOMMAND = Subcommand(parser, run, "one completion: its text or JSON lines")
