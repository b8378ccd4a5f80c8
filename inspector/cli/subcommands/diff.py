"""`inspector diff`: what a second model makes of a text that the first one doesn't, by the numbers of llama.cpp."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.settings import Settings
from inspector.cli.against import add_against, against_from
from inspector.cli.arguments import Request, load_settings
from inspector.cli.connect import backend_from
from inspector.cli.exit import exit_status, output
from inspector.cli.flags import EXIT_STATUS, Parser, add_jsonl, add_load, command_parser, whole
from inspector.cli.inputs import given_text
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from engine.protocol import Failure

CANDIDATES = 10
"""Most probable tokens of each model in the JSON lines."""


def parser() -> Parser:
    """The parser of `inspector diff`."""
    made = command_parser(
        "diff",
        "Two models over one text, token by token: KL divergence of the second's distribution from the first's, "
        "perplexity of both, equal top tokens and changes of probability, named as llama.cpp's KL tool prints them.",
        "KL is KL(first||second), in bits (llama.cpp prints nats, 0.693 of them a bit). Models with different "
        "tokenizers are compared between common borders of the text, by logprob. A text longer than a "
        f"context window is read in windows that overlap by half. {EXIT_STATUS}",
    )
    made.add_argument("first", metavar="A", help="the first model: pocket, a directory, or a hub id")
    made.add_argument("second", metavar="B", nargs="?", help="the second; without one, A with what follows")
    add_against(made.add_argument_group("second model"), "")
    text = made.add_argument_group("text")
    text.add_argument("--text", "-t", metavar="FILE", help="a UTF-8 text; - reads standard input")
    text.add_argument("--prompt", "-p", metavar="TEXT", help=r"the text itself; \n and \t are escapes")
    window = "tokens of a window (default: as many as fit both models)"
    text.add_argument("--window", type=whole, metavar="N", help=window)
    out = made.add_argument_group("output")
    add_jsonl(out, "figures, which come last", "one JSON object a token")
    add_load(made.add_argument_group("both models and their caches"))
    return made


def run(args: Namespace) -> int:
    """Run `inspector diff`.

    Raises:
        EngineError: A value is out of range, no second model is named, or the text can't be read or is empty.
    """
    from engine.protocol import DiffText
    from inspector.cli.driver import drive
    from inspector.cli.writers.diff import writer

    if args.model is not None:
        raise EngineError("The first model was named twice: as A and with --model.", "Leave --model out.")
    args.model = args.first
    load = load_settings(args)
    against = against_from(args, load, args.second)
    if against is None:
        raise EngineError(
            "There is no second model.", "Name one after the first, or give --bits or --adapter."
        )
    text = given_text(args.text, args.prompt, "inspector diff A B", "compare", "--text")
    request = Request(load, Settings(), "", chat=False, jsonl=args.jsonl)
    read = DiffText(text, args.window, CANDIDATES if args.jsonl else 0)
    outcome = drive(
        request, writer(request, output(), sys.stderr), [against, read], make_backend=backend_from(args)
    )
    return exit_status(replace(outcome, failure=_of_text(outcome.failure)))


def _of_text(failure: Failure | None) -> Failure | None:
    """The engine's message on a prompt, as a message on the text that is read."""
    if failure is None or failure.command != "DiffText" or not failure.expected:
        return failure
    message, hint = (words.replace("prompt", "text") for words in (failure.message, failure.hint))
    return replace(failure, message=message, hint=hint)


SUBCOMMAND = Subcommand(parser, run, "two models over one text: KL, perplexity, equal top tokens")
