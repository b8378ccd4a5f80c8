"""`inspector bench`, `race` and `profile`: what is measured, as tables, charts or JSON."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from engine.settings import BY_NAME, FIELDS, Settings
from inspector.cli.arguments import CliRequest, given, known, load_settings, request_from
from inspector.cli.exit import output
from inspector.cli.flags import (
    Parser,
    Subcommand,
    add_jsonl,
    add_load,
    add_prompt,
    add_setting,
    command_parser,
    flag_errors,
    whole,
)


def bench_parser() -> Parser:
    """The parser of `inspector bench`."""
    from engine.sweep_settings import SWEEPS, SweepSettings

    made = command_parser(
        "bench",
        "Measure a model: TTFT over prompt length, TPOT over context length, throughput and KV bytes over "
        "batch size, what inspection costs, and what another BLAS or dtype would make of it. Figures to standard "
        "output, progress to standard error.",
    )
    group, default = made.add_argument_group("sweeps"), SweepSettings()
    names = f"some of {', '.join(SWEEPS)}, or comma-separated (default: all but blas)"
    group.add_argument("--sweeps", metavar="NAME", nargs="+", help=names)
    for name, help_text in {
        "rounds": f"counted measurements of every point (default: {default.rounds})",
        "steps": f"tokens decoded for a figure (default: {default.steps})",
        "longest": f"tokens of the longest prompt and context (default: {default.longest})",
        "largest_batch": f"sequences at once (default: {default.largest_batch})",
    }.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=whole, metavar="N", help=help_text)
    add_load(made.add_argument_group("model and cache"))
    add_jsonl(made, "tables", "one JSON object with every single measurement")
    return made


def run_bench(args: Namespace) -> int:
    """Run `inspector bench`."""
    from engine.protocol import Sweep
    from engine.sweep_settings import SweepSettings, check_sweeps
    from inspector.cli.driver import run
    from inspector.cli.writers.measured import BenchText

    values = given(args)
    if "sweeps" in values:
        values["sweeps"] = tuple(name for part in values["sweeps"] for name in part.split(",") if name)
    with flag_errors():
        sweep = Sweep(check_sweeps(SweepSettings(**known(SweepSettings, values))))
    request = CliRequest(load_settings(args), Settings(), prompt="", chat=False)
    writer = BenchText(output(), sys.stderr, request, as_json=args.jsonl)
    return run(args, request, writer, [sweep])


BENCH = Subcommand("bench", bench_parser, run_bench, "measure a model: tables of speed and memory")


# ---- inspector race --------------------------------------------------------------------------

UNUSED = ("max_tokens", "min_tokens", "stop", "candidates")
"""Settings that a race has no use for."""


def race_parser() -> Parser:
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


def run_race(args: Namespace) -> int:
    """Run `inspector race`; without a prompt it is the screen's."""
    from engine.protocol import Race
    from inspector.cli.driver import run
    from inspector.cli.writers.measured import race_writer

    request = request_from(args, default_prompt=True)
    out, race = race_writer(request, output(), sys.stderr), Race(args.first, args.last)
    return run(args, request, out, [race])


RACE = Subcommand("race", race_parser, run_race, "what a KV cache saves: raced with and without one")


# ---- inspector profile -----------------------------------------------------------------------

BEFORE = 16
"""Decoded before the step that is measured."""


def profile_parser() -> Parser:
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
    trace = "on a Mac: have Metal record one step, for Xcode; the name ends with .gputrace"
    group.add_argument("--metal-trace", metavar="FILE", help=trace)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("before it")
    tokens = f"tokens decoded before the step that is measured (default: {BEFORE})"
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


PURPOSE = "one step taken apart, the roofline, quantized KV"
PROFILE = Subcommand("profile", profile_parser, run_profile, PURPOSE)
