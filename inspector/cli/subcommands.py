"""The table of subcommands: `inspector NAME ...`. Another one is one line here and a file of its own.

Parsers are of the standard library alone; whatever is heavy is imported where a command runs.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inspector.cli import arguments
from inspector.cli import measuring_flags as measuring
from inspector.cli.exit import concluded, output
from inspector.cli.flags import Parser
from inspector.cli.score_arguments import score_parser


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One way to run without the main screen."""

    parser: Callable[[], Parser]
    """Makes the parser of its flags."""
    run: Callable[[Namespace], int]
    """Does what the flags ask for; returns the exit status, raises `EngineError` for bad input."""
    purpose: str
    """For the help, in a few words."""


def generate(args: Namespace) -> int:
    """Run `inspector generate`."""
    from inspector.cli import generate as headless

    request = arguments.request(args, headless=True)
    return concluded(headless.generate(request, headless.writer(request, output(), sys.stderr)))


def beam(args: Namespace) -> int:
    """Run `inspector beam`."""
    from inspector.cli import beam as beams
    from inspector.cli import generate as headless

    request, settings = arguments.request(args, headless=True), arguments.beam_settings(args)
    writer = beams.writer(request, output(), sys.stderr)
    return concluded(headless.generate(request, writer, last=beams.command(settings)))


def bench_parser() -> Parser:
    """The parser of `inspector bench`."""
    from inspector.cli import bench

    return bench.parser()


def measure(args: Namespace) -> int:
    """Run `inspector bench`."""
    from inspector.cli import bench

    return bench.run(args)


def run_race(args: Namespace) -> int:
    """Run `inspector race`."""
    from inspector.cli import race

    return race.run(args)


def run_profile(args: Namespace) -> int:
    """Run `inspector profile`."""
    from inspector.cli import profile as profiling

    return profiling.run(args)


def run_score(args: Namespace) -> int:
    """Run `inspector score`."""
    from inspector.cli import score

    return score.run(args)


def export_parser() -> Parser:
    """The parser of `inspector export`."""
    from inspector.cli import export as export_command

    return export_command.parser()


def run_export(args: Namespace) -> int:
    """Run `inspector export`."""
    from inspector.cli import export as export_command

    return export_command.run(args)


def replay_parser() -> Parser:
    """The parser of `inspector replay`."""
    from inspector.cli import replay

    return replay.parser()


def run_replay(args: Namespace) -> int:
    """Run `inspector replay`."""
    from inspector.cli import replay

    return replay.run(args)


def sessions_parser() -> Parser:
    """The parser of `inspector sessions`."""
    from inspector.cli import sessions as sessions_command

    return sessions_command.parser()


def run_sessions(args: Namespace) -> int:
    """Run `inspector sessions`."""
    from inspector.cli import sessions as sessions_command

    return sessions_command.run(args)


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "generate": Subcommand(arguments.generate_parser, generate, "one completion: its text or JSON lines"),
    "bench": Subcommand(bench_parser, measure, "measure a model: tables of speed and memory"),
    "race": Subcommand(measuring.race_parser, run_race, "what a KV cache saves: raced with and without one"),
    "profile": Subcommand(
        measuring.profile_parser, run_profile, "one step taken apart, the roofline, quantized KV"
    ),
    "beam": Subcommand(arguments.beam_parser, beam, "beam search: the ranking or JSON lines"),
    "score": Subcommand(score_parser, run_score, "a text's logprobs, ranks, perplexity and bits per byte"),
    "replay": Subcommand(replay_parser, run_replay, "a recorded session on the screen, without a model"),
    "sessions": Subcommand(sessions_parser, run_sessions, "the sessions that were saved as they went"),
    "export": Subcommand(
        export_parser, run_export, "a recorded session as a web page, Markdown, CSV, text or SVG"
    ),
}
"""By name, in the order of the help."""
