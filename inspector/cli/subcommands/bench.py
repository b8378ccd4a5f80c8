"""`inspector bench`: sweeps of speed and memory, as tables with bars or as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace

from engine.settings import Settings
from inspector.cli.arguments import Request, given, known, load_settings
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import Parser, add_jsonl, add_load, command_parser, flag_errors, whole
from inspector.cli.subcommand import Subcommand


def parser() -> Parser:
    """The parser of `inspector bench`."""
    from engine.sweep_settings import SWEEPS, SweepSettings

    made = command_parser(
        "bench",
        "Measure a model: TTFT over prompt length, TPOT over context length, throughput and KV bytes over "
        "batch size, what inspection costs, and what another BLAS or dtype would make of it. Figures to standard "
        "output, progress to standard error.",
    )
    group, default = made.add_argument_group("sweeps"), SweepSettings()
    names = ", ".join(SWEEPS)
    group.add_argument(
        "--sweeps",
        metavar="NAME",
        nargs="+",
        help=f"some of {names}, or comma-separated (default: all but blas)",
    )
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


def run(args: Namespace) -> int:
    """Run `inspector bench`."""
    from engine.protocol import Sweep
    from engine.sweep_settings import SweepSettings, check_sweeps
    from inspector.cli.driver import drive
    from inspector.cli.writers.measured import BenchText

    values = given(args)
    if "sweeps" in values:
        values["sweeps"] = tuple(name for part in values["sweeps"] for name in part.split(",") if name)
    with flag_errors():
        sweep = Sweep(check_sweeps(SweepSettings(**known(SweepSettings, values))))
    request = Request(load_settings(args), Settings(), prompt="", chat=False)
    writer = BenchText(output(), sys.stderr, request, as_json=args.jsonl)
    return exit_status(drive(request, writer, [sweep], make_backend=backend_from(args)))


SUBCOMMAND = Subcommand(parser, run, "measure a model: tables of speed and memory")
