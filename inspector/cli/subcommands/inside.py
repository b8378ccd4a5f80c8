"""`inspector inside`: what the layers of a model compute for one token, as tables or as JSON lines."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.errors import PromptError
from engine.settings import FIELDS
from inspector.cli.arguments import request_from
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

if TYPE_CHECKING:
    from engine.commands import Command

VIEWS = ("attention", "lens")
LENS = 6
"""Positions of the lens where none are asked for."""


def parser() -> Parser:
    """The parser of `inspector inside`."""
    made = command_parser(
        "inside",
        "What the layers of a model compute for one token of a prompt: where each head looks, and what each layer "
        "would predict. The token runs again under taps, and each view is compared with what the model itself "
        "computes: one whose check fails is not shown.",
    )
    group = made.add_argument_group("inside")
    group.add_argument(
        "--show", type=_views, metavar="VIEW,...", default=VIEWS, help=f"of {', '.join(VIEWS)} (default: all)"
    )
    place = "the token, counted from 0; negative from the end (default: -1, the last one)"
    group.add_argument("--at", type=_place, metavar="N", default=-1, help=place)
    after = "generate so many tokens first (default: 0)"
    group.add_argument("--steps", type=whole, metavar="N", default=0, help=after)
    positions = f"columns of the lens: the last positions up to the token (default: {LENS})"
    group.add_argument("--positions", type=_columns, metavar="N", default=LENS, help=positions)
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("sampling of --steps")
    for field in FIELDS:
        if field.name in ("temp", "top_p", "top_k", "min_p", "seed"):
            add_setting(sampling, field)
    add_load(made.add_argument_group("model"))
    add_jsonl(made, "tables")
    return made


def _views(text: str) -> tuple[str, ...]:
    """The views that a list names."""
    named = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in named if name not in VIEWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(VIEWS)}")
    return named


def _columns(text: str) -> int:
    count = whole(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def _place(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def run(args: Namespace) -> int:
    """Run `inspector inside`.

    Raises:
        EngineError: A value is out of range, or the prompt is missing or can't be read.
    """
    from engine.commands import TakeStep
    from inspector.cli.driver import drive
    from inspector.cli.writers.inside import InsideWriter, writer

    request = request_from(args)
    out: InsideWriter = writer(request, output(), sys.stderr)
    steps = [TakeStep() for _ in range(args.steps)]

    def after() -> Sequence[Command]:
        node = _node_at(out.nodes, args.at)
        makers = questions(args)
        return [makers[view](node) for view in args.show]

    return exit_status(drive(request, out, steps, after=after))


def questions(args: Namespace) -> Mapping[str, Callable[[int], Command]]:
    """By view, the command about a node."""
    from engine.commands import ReadAttention, ReadLens

    return {"attention": ReadAttention, "lens": lambda node: ReadLens(node, args.positions)}


def _node_at(nodes: Sequence[int], place: int) -> int:
    """The node of a token of the path.

    Raises:
        PromptError: There is no such token.
    """
    if not -len(nodes) <= place < len(nodes):
        raise PromptError(
            f"--at {place} is no token of the path, which has {len(nodes)}.",
            f"Give one from {-len(nodes)} to {len(nodes) - 1}.",
        )
    return nodes[place]


SUBCOMMAND = Subcommand(parser, run, "attention and logit lens of one token")
