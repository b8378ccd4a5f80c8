"""`inspector profile`: one step taken apart, the roofline and quantized KV, as tables or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace

from engine.settings import BY_NAME
from inspector.cli.arguments import request_from
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import Parser, add_jsonl, add_load, add_prompt, add_setting, command_parser, whole
from inspector.cli.subcommand import Subcommand

TOKENS = 16
"""Decoded before the step that is measured."""


def parser() -> Parser:
    """The parser of `inspector profile`."""
    from engine.protocol import Profile

    made = command_parser(
        "profile",
        "Measure the next step: each part of the model with fences around it, prefill and decode under the"
        " machine's roofline, and the same sequence with a quantized KV cache.",
    )
    group, default = made.add_argument_group("profile"), Profile()
    repeats = f"counted repeats of the step (default: {default.repeats})"
    group.add_argument("--repeats", type=whole, metavar="N", default=default.repeats, help=repeats)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("before it")
    tokens = f"tokens decoded before the step that is measured (default: {TOKENS})"
    sampling.add_argument(
        "--max-tokens", "-m", type=BY_NAME["max_tokens"].parse, metavar="N", default=TOKENS, help=tokens
    )
    for name in ("temp", "top_p", "seed"):
        add_setting(sampling, BY_NAME[name])
    add_load(made.add_argument_group("model and cache"))
    add_jsonl(made, "tables")
    return made


def run(args: Namespace) -> int:
    """Run `inspector profile`; without a prompt it is the screen's."""
    from engine.protocol import CompareKV, MeasureRoofline, Profile, Run
    from inspector.cli.driver import drive
    from inspector.cli.writers.measured import profile_writer

    request = request_from(args, default_prompt=True)
    then = [Run(), Profile(args.repeats), MeasureRoofline(), CompareKV()]
    return exit_status(
        drive(request, profile_writer(request, output(), sys.stderr), then, make_backend=backend_from(args))
    )


SUBCOMMAND = Subcommand(parser, run, "one step taken apart, the roofline, quantized KV")
