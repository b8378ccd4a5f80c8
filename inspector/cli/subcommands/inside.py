"""`inspector inside`: what the layers of a model compute for one token, as tables or as JSON lines."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.errors import PromptError
from engine.settings import FIELDS
from inspector.cli.arguments import request_from
from inspector.cli.exit import OK, not_shown, output
from inspector.cli.flags import (
    EXIT_STATUS,
    Parser,
    Subcommand,
    add_jsonl,
    add_load,
    add_prompt,
    add_setting,
    command_parser,
    whole,
)

if TYPE_CHECKING:
    from engine.protocol import Command, Facing, Intervention, PatchPair

VIEWS = ("attention", "lens", "contributions", "interventions", "heads", "patching")
USUAL = VIEWS[:3]
"""Where none are asked for."""
LENS = 6
"""Positions of the lens where none are asked for."""


def inside_parser() -> Parser:
    """The parser of `inspector inside`."""
    made = command_parser(
        "inside",
        "What the layers of a model compute for one token of a prompt: where each head looks, what each layer "
        "would predict, what each part adds to a logit, and what changes without it. The token runs again under "
        "taps, and each view is compared with what the model itself computes: one whose check fails is not shown.",
        f"{EXIT_STATUS} 3 where the check of a view failed.",
    )
    group = made.add_argument_group("inside")
    shown = f"of {', '.join(VIEWS)} (default: {', '.join(USUAL)})"
    group.add_argument("--show", type=_views, metavar="VIEW,...", help=shown)
    off = "switch off parts of the model together: L6 h1, L3 mlp, L4 attention, L2; scale one with L6 h1 x0.5"
    group.add_argument("--off", type=_units, metavar="UNIT,...", default=(), help=off)
    scope = "change that token's forward alone, or the whole context (default: token)"
    group.add_argument("--scope", choices=("token", "context"), default="token", help=scope)
    place = "the token, counted from 0; negative from the end (default: -1, the last one)"
    group.add_argument("--at", type=_place, metavar="N", default=-1, help=place)
    after = "generate so many tokens first (default: 0)"
    group.add_argument("--steps", type=whole, metavar="N", default=0, help=after)
    positions = f"columns of the lens: the last positions up to the token (default: {LENS})"
    group.add_argument("--positions", type=_columns, metavar="N", default=LENS, help=positions)
    texts = (
        "heads are scored on the path, and on COUNT texts of LENGTH random tokens and the same again, drawn from SEED "
        "(default: 50,10,0)"
    )
    group.add_argument("--texts", type=_texts, metavar="LENGTH,COUNT,SEED", default=(), help=texts)
    _add_tokens(group)
    _add_patching(made.add_argument_group("patching (--show patching)"))
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("sampling of --steps")
    for field in FIELDS:
        if field.name in ("temp", "top_p", "top_k", "min_p", "seed"):
            add_setting(sampling, field)
    add_load(made.add_argument_group("model"))
    add_jsonl(made, "tables")
    return made


def _add_tokens(group: argparse._ArgumentGroup) -> None:
    """The flags of the tokens whose logits are taken apart."""
    token = "contributions to the logit of this token, by its id or text (default: the one taken next)"
    group.add_argument("--token", metavar="TOKEN", help=token)
    against = "contributions to the difference from this token's logit (default: the best other candidate)"
    other = group.add_mutually_exclusive_group()
    other.add_argument("--against", metavar="TOKEN", help=against)
    alone = "contributions to the one logit, not to a difference"
    other.add_argument("--alone", action="store_true", help=alone)


def _add_patching(group: argparse._ArgumentGroup) -> None:
    """The flags of activation patching."""
    source = (
        "put what this text computes into the prompt; the logit of --token less that of --against is followed, of the "
        "two that tell both texts apart most unless they are given"
    )
    group.add_argument("--source", metavar="TEXT", help=source)
    pairs = 'patch each of a file of pairs and take the means: JSON lines with "text", "source", and "token", "other"'
    group.add_argument("--pairs", metavar="FILE", help=pairs)
    part = "put in whole layers, or what their attention or MLP returns (default: layer)"
    group.add_argument("--part", choices=("layer", "attention", "mlp"), default="layer", help=part)
    facing = "which tokens face each other, counted from 0, as 0-4:0-4,5:7,6-8:8-10 (default: common blocks)"
    group.add_argument("--facing", type=_facing, metavar="PLACE:PLACE,...", help=facing)


def _facing(text: str) -> Facing:
    from inspector.state.patching import facing_from

    try:
        return facing_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _views(text: str) -> tuple[str, ...]:
    """The views that a list names."""
    named = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in named if name not in VIEWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(VIEWS)}")
    return named


def _units(text: str) -> tuple[Intervention, ...]:
    """The units that a list names."""
    from engine.protocol import units_from

    try:
        return units_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _texts(text: str) -> tuple[int, ...]:
    """Length, count and seed of repeated texts; the last ones may be left out."""
    given = tuple(whole(part.strip()) for part in text.split(","))
    if len(given) > 3:
        raise argparse.ArgumentTypeError("give a length, a count and a seed")
    return given


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


def run_inside(args: Namespace) -> int:
    """Run `inspector inside`.

    Raises:
        EngineError: A value is out of range, or the prompt is missing or can't be read.
    """
    from engine.protocol import Intervene, TakeStep
    from inspector.cli.driver import run
    from inspector.cli.writers.inside import questions, writer

    pairs = _pairs(args)
    request = request_from(args)
    out = writer(request, output(), sys.stderr)
    steps = [TakeStep() for _ in range(args.steps)]

    def after() -> Iterator[Command]:
        node = _node_at(out.nodes, args.at)
        makers = questions(args, out, request, pairs)
        patched = args.source is not None or bool(pairs)
        usual = () if args.off or patched else USUAL
        wanted = dict.fromkeys((*(args.show or usual), *(["patching"] if patched else [])))
        for view in sorted(wanted, key=lambda each: each == "patching"):  # it reads another prompt
            yield from makers[view](node)
        if args.off:
            yield Intervene(node, args.off, args.scope)

    status = run(args, request, out, steps, after)
    if status != OK or not (failed := out.known.failed):
        return status
    checks, them = ("its check", "it") if len(failed) == 1 else ("their checks", "them")
    said = f"Not shown: {', '.join(failed)}, as {checks} failed."
    return not_shown(f"{said} If rounding is the cause, --dtype float32 shows {them}.")


def _pairs(args: Namespace) -> tuple[PatchPair, ...]:
    """The pairs of a file; the first one's text is the prompt where none is given.

    Raises:
        PromptError: The file can't be read, or has no pairs.
    """
    if args.pairs is None:
        return ()
    from inspector.cli.inputs import read_file
    from inspector.state.patching import pairs_from
    from inspector.texts import decoded

    pairs = pairs_from(decoded(read_file(args.pairs), args.pairs), args.pairs)
    if args.prompt is None and args.prompt_file is None:
        args.prompt, args.ignore_chat_template = pairs[0].text, True
    return pairs


def _node_at(nodes: Sequence[int], place: int) -> int:
    """The node of a token of the path.

    Raises:
        PromptError: There is no such token.
    """
    if not -len(nodes) <= place < len(nodes):
        hint = f"Give one from {-len(nodes)} to {len(nodes) - 1}."
        raise PromptError(f"--at {place} is no token of the path, which has {len(nodes)}.", hint)
    return nodes[place]


PURPOSE = "attention, logit lens, contributions and switched-off parts of one token"
INSIDE = Subcommand("inside", inside_parser, run_inside, PURPOSE)
