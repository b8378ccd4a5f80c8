"""`inspector race` and `profile`: what is measured, as tables, charts or JSON."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from engine.settings import BY_NAME, FIELDS
from inspector.cli.arguments import request_from
from inspector.cli.exit import output
from inspector.cli.flags import (
    Parser,
    Subcommand,
    add_jsonl,
    add_load,
    add_prompt,
    add_setting,
    command_parser,
    whole,
)

# ---- inspector race --------------------------------------------------------------------------

UNUSED = ("max_tokens", "min_tokens", "stop", "candidates")
"""Settings that a race has no use for."""


def race_parser() -> Parser:
    """The parser of `inspector race`."""
    from engine.protocol import Race

    default = Race()
    made = command_parser(
        "race",
        "Generate the same tokens with a KV cache and without one, step by step in turn, and show the ms of each step,"
        " their sums, and whether both take the same tokens.",
    )
    group = made.add_argument_group("race")
    first = f"tokens of context at the first measured step (default: {default.first})"
    group.add_argument("--from", dest="first", type=whole, metavar="N", default=default.first, help=first)
    last = f"tokens of context after the last step, at most the context window (default: {default.last})"
    group.add_argument("--to", dest="last", type=whole, metavar="N", default=default.last, help=last)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("sampling")
    for field in FIELDS:
        if field.name not in UNUSED:
            add_setting(sampling, field)
    add_load(made.add_argument_group("model"))
    add_jsonl(made, "table")
    return made


def run_race(args: Namespace) -> int:
    """Run `inspector race`; without a prompt it is the screen's."""
    from engine.protocol import Race
    from inspector.cli.driver import run
    from inspector.cli.writers.measured import race_writer

    request = request_from(args, default_prompt=True)
    out, race = race_writer(request, output(), sys.stderr), Race(args.first, args.last)
    return run(args, request, out, [race])


RACE = Subcommand("race", race_parser, run_race, "measure what a KV cache saves: a race with and without one")


# ---- inspector profile -----------------------------------------------------------------------

BEFORE = 16
"""Decoded before the step that is measured."""


def profile_parser() -> Parser:
    """The parser of `inspector profile`."""
    from engine.protocol import Profile

    made = command_parser(
        "profile",
        "Measure one step: each part of the model, evaluated on its own; prefill and decode against the machine's"
        " roofline; and the same text with a quantized KV cache.",
    )
    group, default = made.add_argument_group("profile"), Profile()
    repeats = f"how often to measure the step (default: {default.repeats})"
    group.add_argument("--repeats", type=whole, metavar="N", default=default.repeats, help=repeats)
    trace = "on a Mac: record one step with Metal, for Xcode; the name must end in .gputrace"
    group.add_argument("--metal-trace", metavar="FILE", help=trace)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("before that step")
    tokens = f"tokens to decode before the measured step (default: {BEFORE})"
    sampling.add_argument(
        "--max-tokens", "-m", type=BY_NAME["max_tokens"].parse, metavar="N", default=BEFORE, help=tokens
    )
    for name in ("temp", "top_p", "seed"):
        add_setting(sampling, BY_NAME[name])
    add_load(made.add_argument_group("model and cache"))
    add_jsonl(made, "tables")
    return made


def run_profile(args: Namespace) -> int:
    """Run `inspector profile`; without a prompt it is the screen's. What Metal records is all there is then: it slows
    a step down."""
    from engine.protocol import CaptureMetal, CompareKV, MeasureRoofline, Profile, Run
    from inspector.cli.driver import run
    from inspector.cli.writers.measured import profile_writer

    request = request_from(args, default_prompt=True)
    then = [Run(), Profile(args.repeats), MeasureRoofline(), CompareKV()]
    if args.metal_trace is not None:
        os.environ.setdefault("MTL_CAPTURE_ENABLED", "1")  # which Metal reads when MLX is imported
        then = [Run(), CaptureMetal(args.metal_trace)]
    return run(args, request, profile_writer(request, output(), sys.stderr), then)


PURPOSE = "measure one step part by part, the roofline, quantized KV"
PROFILE = Subcommand("profile", profile_parser, run_profile, PURPOSE)
