"""`inspector race`: what a KV cache saves, raced step by step, as a table and a chart or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace

from engine.settings import FIELDS
from inspector.cli.arguments import request_from
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import (
    Parser,
    add_jsonl,
    add_load,
    add_prompt,
    add_setting,
    command_parser,
    whole,
)
from inspector.cli.subcommand import Subcommand

UNUSED = ("max_tokens", "min_tokens", "stop", "candidates")
"""Settings that a race has no use for."""


def parser() -> Parser:
    """The parser of `inspector race`."""
    from engine.protocol import Race

    default = Race()
    made = command_parser(
        "race",
        "The same tokens with a KV cache and without one, step by step in turn, both measured: ms a step,"
        " their sums, and whether both lanes take the same tokens.",
    )
    group = made.add_argument_group("race")
    first = f"tokens before the first step that is measured (default: {default.first})"
    group.add_argument("--from", dest="first", type=whole, metavar="N", default=default.first, help=first)
    last = f"tokens after the last, at most the context window (default: {default.last})"
    group.add_argument("--to", dest="last", type=whole, metavar="N", default=default.last, help=last)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("sampling")
    for field in FIELDS:
        if field.name not in UNUSED:
            add_setting(sampling, field)
    add_load(made.add_argument_group("model"))
    add_jsonl(made, "table")
    return made


def run(args: Namespace) -> int:
    """Run `inspector race`; without a prompt it is the screen's."""
    from engine.protocol import Race
    from inspector.cli.driver import drive
    from inspector.cli.writers.measured import race_writer

    request = request_from(args, default_prompt=True)
    out, race = race_writer(request, output(), sys.stderr), Race(args.first, args.last)
    return exit_status(drive(request, out, [race], make_backend=backend_from(args)))


SUBCOMMAND = Subcommand(parser, run, "what a KV cache saves: raced with and without one")
