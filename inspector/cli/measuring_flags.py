"""The flags of the commands that measure: `inspector race` and `inspector profile`. Standard library alone."""

from __future__ import annotations

from engine import commands
from engine.settings import BY_NAME, FIELDS
from inspector.cli.flags import Parser, add_load, add_prompt, add_setting, whole

UNUSED = ("max_tokens", "min_tokens", "stop", "candidates")
"""Settings that a race has no use for."""
TOKENS = 16
"""Decoded before the step that is measured."""


def race_parser() -> Parser:
    """The parser of `inspector race`."""
    default = commands.Race()
    found = Parser(
        prog="inspector race",
        description="The same tokens with a KV cache and without one, step by step in turn, both measured: ms a step,"
        " their sums, and whether both lanes take the same tokens.",
        epilog="Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    group = found.add_argument_group("race")
    first = f"tokens before the first step that is measured (default: {default.first})"
    group.add_argument("--from", dest="first", type=whole, metavar="N", default=default.first, help=first)
    last = f"tokens after the last, at most the context window (default: {default.last})"
    group.add_argument("--to", dest="last", type=whole, metavar="N", default=default.last, help=last)
    add_prompt(found.add_argument_group("prompt"))
    sampling = found.add_argument_group("sampling")
    for field in FIELDS:
        if field.name not in UNUSED:
            add_setting(sampling, field)
    add_load(found.add_argument_group("model"))
    found.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the table")
    return found


def profile_parser() -> Parser:
    """The parser of `inspector profile`."""
    found = Parser(
        prog="inspector profile",
        description="Measure the next step: each part of the model with fences around it, prefill and decode under the"
        " machine's roofline, and the same sequence with a quantized KV cache.",
        epilog="Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    group, default = found.add_argument_group("profile"), commands.Profile()
    repeats = f"counted repeats of the step (default: {default.repeats})"
    group.add_argument("--repeats", type=whole, metavar="N", default=default.repeats, help=repeats)
    add_prompt(found.add_argument_group("prompt"))
    sampling = found.add_argument_group("before it")
    tokens = f"tokens decoded before the step that is measured (default: {TOKENS})"
    sampling.add_argument(
        "--max-tokens", "-m", type=BY_NAME["max_tokens"].parse, metavar="N", default=TOKENS, help=tokens
    )
    for name in ("temp", "top_p", "seed"):
        add_setting(sampling, BY_NAME[name])
    add_load(found.add_argument_group("model and cache"))
    found.add_argument("--jsonl", action="store_true", help="one JSON object a line instead of the tables")
    return found
