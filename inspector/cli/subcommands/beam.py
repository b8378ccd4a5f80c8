"""`inspector beam`: a beam search, as a table or as JSON lines."""

from __future__ import annotations

import sys
from argparse import Namespace

from engine.beam_settings import WIDEST, BeamSettings, check_beams
from engine.settings import BY_NAME
from inspector.cli.arguments import given, known, request_from
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import (
    Parser,
    add_extra_eos,
    add_jsonl,
    add_load,
    add_prompt,
    add_setting,
    command_parser,
    flag_errors,
    whole,
)
from inspector.cli.grammar import add_grammar
from inspector.cli.prompts.chat import add_cache_file
from inspector.cli.subcommand import Subcommand


def parser() -> Parser:
    """The parser of `inspector beam`."""
    made = command_parser(
        "beam", "Beam search from the prompt: the ranking to standard output, greedy decoding beside it."
    )
    prompt = made.add_argument_group("prompt")
    add_prompt(prompt)
    add_cache_file(prompt)
    group, default = made.add_argument_group("beam search"), BeamSettings()
    add = group.add_argument
    add("--width", type=whole, metavar="N", help=f"beams at once, 1 to {WIDEST} (default: {default.width})")
    penalty = (
        "score = logprob / length ** X: 0 ranks by the sum, 1 by the mean of a token; only above 1 does length "
        "itself help"
    )
    add("--length-penalty", type=float, metavar="X", help=f"{penalty} (default: {default.length_penalty})")
    early = "end at as many finished hypotheses as there are beams, though a live beam could still be better"
    add("--early-stopping", action="store_true", default=None, help=early)
    for name in ("max_tokens", "min_tokens"):
        add_setting(group, BY_NAME[name])
    add_grammar(group)
    add_extra_eos(group)
    add_load(made.add_argument_group("model and cache"))
    add_jsonl(made, "ranking")
    return made


def run(args: Namespace) -> int:
    """Run `inspector beam`."""
    from engine.protocol import SearchBeams
    from inspector.cli.driver import drive
    from inspector.cli.writers.sequences import beam_writer

    request, search = request_from(args), SearchBeams(beam_settings(args))
    return exit_status(
        drive(request, beam_writer(request, output(), sys.stderr), [search], make_backend=backend_from(args))
    )


def beam_settings(args: Namespace) -> BeamSettings:
    """Check what the flags ask of a beam search.

    Raises:
        EngineError: A value is out of range.
    """
    with flag_errors():
        return check_beams(BeamSettings(**known(BeamSettings, given(args))))


SUBCOMMAND = Subcommand(parser, run, "beam search: the ranking or JSON lines")
