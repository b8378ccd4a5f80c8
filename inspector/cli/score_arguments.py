"""The command line of `inspector score`: its flags, and what they ask for. Standard library alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from engine.errors import PromptError, SettingsError
from engine.settings import BY_NAME, LoadSettings, Settings, check, check_load
from inspector.cli.arguments import Request
from inspector.cli.flags import Parser, add_load, named, parsed
from inspector.cli.inputs import decoded, read_file, read_stdin

STDIN = "-"
MOST = 20
"""Candidates that the engine records for a token of the prompt."""


def score_parser() -> Parser:
    """The parser of `inspector score`."""
    parser = Parser(
        prog="inspector score",
        description="What a model makes of a text: every token's logprob, rank and surprisal, the text's perplexity, "
        "and its bits per byte and per character. The text is raw, as it stands in the file, and is not continued.",
        epilog="The first token has nothing before it, so it is not scored. The text must fit into the model's context "
        "window. Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a UTF-8 text; - reads standard input")
    text = parser.add_argument_group("text")
    text.add_argument(
        "--chat-template",
        action="store_true",
        help="score it as a user's message in the model's chat template",
    )
    text.add_argument("--system-prompt", metavar="TEXT", help="system message of the chat template")
    out = parser.add_argument_group("output")
    out.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the table")
    out.add_argument("--summary", action="store_true", help="the text's figures alone, without its tokens")
    trace = "write a trace too, which inspector replay TRACE opens; a name in .gz or .zst compresses it"
    out.add_argument("--output", "-o", metavar="TRACE", help=trace)
    out.add_argument("--force", action="store_true", help="replace a trace that is there")
    likely = (
        f"most probable tokens at each place in the JSON lines or the trace, at most {MOST} (default: {MOST})"
    )
    out.add_argument("--candidates", type=BY_NAME["candidates"].parse, metavar="N", help=likely)
    add_load(parser.add_argument_group("model and cache"))
    return parser


def parse_score(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `inspector score`; raises as `flags.parsed` does."""
    return parsed(score_parser(), argv)


def score_request(args: argparse.Namespace) -> Request:
    """Check what the flags ask for, and read the text.

    Raises:
        EngineError: A value is out of range, or the text can't be read or is empty.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    try:
        load = check_load(
            LoadSettings(**{f.name: given[f.name] for f in fields(LoadSettings) if f.name in given})
        )
        shown = args.jsonl or args.output is not None
        settings = check(Settings(candidates=given.get("candidates", MOST if shown else 1)))
    except SettingsError as error:
        raise named(error) from None
    idle = args.system_prompt is not None and not args.chat_template
    notes = ("--system-prompt has no effect without --chat-template.",) if idle else ()
    return Request(
        load,
        settings,
        _text(args.file),
        args.chat_template,
        args.system_prompt,
        True,
        args.jsonl,
        notes=notes,
    )


def _text(file: str) -> str:
    if file == STDIN:
        text = decoded(read_stdin("Give the text as a file: inspector score FILE."), "Standard input")
    else:
        text = decoded(read_file(file), file)
    if not text:
        raise PromptError("The text is empty: there is nothing to score.", "Give a file with some text.")
    return text
