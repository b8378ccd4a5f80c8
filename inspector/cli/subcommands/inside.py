"""`inspector inside`: what the layers of a model compute for one token, as tables or as JSON lines."""

from __future__ import annotations

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import EngineError, PromptError
from engine.settings import FIELDS
from inspector.cli.arguments import request_from
from inspector.cli.exit import OK, not_shown, output
from inspector.cli.flags import (
    EXIT_STATUS,
    STEER,
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

VIEWS = (
    "attention", "lens", "contributions", "gradients", "scores", "heads", "interventions", "steering", "patching",
    "modules", "experts", "positions",
)  # fmt: skip
USUAL = VIEWS[:3]
"""Where none are asked for."""
LENS = 6
"""Positions of the lens where none are asked for."""


def inside_parser() -> Parser:
    """The parser of `inspector inside`."""
    made = command_parser(
        "inside",
        "Show what the layers of a model compute for one token of a prompt: where each head looks and why, what each "
        "layer would predict, what each part adds to a logit, what changes without a part or at a wrong position, "
        "which experts a mixture took, and what the model is made of. The model computes the token again and each view "
        "is compared with the model's own numbers: a view whose check fails is not shown.",
        f"{EXIT_STATUS} 3 if the check of a view failed.",
    )
    group = made.add_argument_group("inside")
    shown = f"some of {', '.join(VIEWS)} (default: {', '.join(USUAL)})"
    group.add_argument("--show", type=_views, metavar="VIEW,...", help=shown)
    off = (
        "switch off these parts of the model together: L6 h1, L3 mlp, L4 attention, L2, or with names that count "
        "from 0: blocks.5.attn.hook_z[0], model.layers.2.mlp. L6 h1 x0.5 scales one instead"
    )
    group.add_argument("--off", type=_units, metavar="UNIT,...", default=(), help=off)
    _add_steering(group)
    scope = (
        "where parts are switched off or steered: in that token's forward alone, or in the whole context "
        "(default: token)"
    )
    group.add_argument("--scope", choices=("token", "context"), default="token", help=scope)
    place = "the token to look at, counted from 0; negative counts from the end (default: -1, the last one)"
    group.add_argument("--at", type=_place, metavar="N", default=-1, help=place)
    after = "generate this many tokens first (default: 0)"
    group.add_argument("--steps", type=whole, metavar="N", default=0, help=after)
    positions = f"positions that the lens shows, up to the token (default: {LENS})"
    group.add_argument("--positions", type=_columns, metavar="N", default=LENS, help=positions)
    texts = (
        "for --show heads: score the heads also on COUNT texts of LENGTH random tokens, each repeated once, drawn "
        "with SEED (default: 50,10,0)"
    )
    group.add_argument("--texts", type=_texts, metavar="LENGTH,COUNT,SEED", default=(), help=texts)
    _add_tokens(group)
    _add_gradients(made.add_argument_group("gradients"))
    _add_head(group)
    _add_patching(made.add_argument_group("patching (--show patching)"))
    add_prompt(made.add_argument_group("prompt"))
    sampling = made.add_argument_group("sampling of --steps")
    for field in FIELDS:
        if field.name in ("temp", "top_p", "top_k", "min_p", "seed"):
            add_setting(sampling, field)
    add_load(made.add_argument_group("model"))
    add_jsonl(made, "tables")
    return made


def _add_steering(group: argparse._ArgumentGroup) -> None:
    """The flags of a direction that is added to the residual stream."""
    given = group.add_mutually_exclusive_group()
    file = (
        "steer by a direction from a file (as --show steering); with a STRENGTH also show the candidates "
        "that come of it"
    )
    given.add_argument("--steer", metavar=STEER, help=file)
    pairs = "steer by a direction made from pairs of texts; each line of FILE has two, with a tab or | between them"
    given.add_argument("--pairs", metavar="FILE", help=pairs)
    layer = "make the direction from the residual stream after this layer, and add it there (default: the middle layer)"
    group.add_argument("--layer", type=_columns, metavar="N", help=layer)
    group.add_argument("--save-direction", metavar="FILE", help="save the direction made from --pairs")
    begin = "with --scope context: change the model from this token on, counted from 0 (default: 0)"
    group.add_argument("--from", dest="begin", type=whole, metavar="N", default=0, help=begin)


def _add_tokens(group: argparse._ArgumentGroup) -> None:
    """The flags of the tokens whose logits are taken apart."""
    token = "explain the logit of this token by contributions, gradients or steering; give its id or text (default: " \
            "the token taken next)"  # fmt: skip
    group.add_argument("--token", metavar="TOKEN", help=token)
    against = "explain the difference between that logit and this token's (default: that of the best other " \
              "candidate)"  # fmt: skip
    other = group.add_mutually_exclusive_group()
    other.add_argument("--against", metavar="TOKEN", help=against)
    alone = "explain the one logit, not a difference"
    other.add_argument("--alone", action="store_true", help=alone)


def _add_gradients(group: argparse._ArgumentGroup) -> None:
    """The flags of how gradients are taken."""
    method = "take gradient x input, or integrated gradients (default: integrated)"
    group.add_argument("--method", choices=("input", "integrated"), default="integrated", help=method)
    baseline = (
        "where the path of integrated gradients begins: mean, first or zero (the mean embedding, the first token's, "
        "zeros), or the text of one token (default: mean)"
    )
    group.add_argument("--baseline", metavar="BASELINE", default="mean", help=baseline)
    steps = "steps of the path at first; they are tripled until the shares are complete (default: 32)"
    group.add_argument("--gradient-steps", type=_columns, metavar="N", default=32, help=steps)
    held = "in a mixture of experts, keep the text's own experts along the whole path, which asks another question"
    group.add_argument("--hold-experts", action="store_true", help=held)


def _add_head(group: argparse._ArgumentGroup) -> None:
    """The flags of the scores of a head."""
    head = "for --show scores: the head, such as L6 h1 (default: the one that looks most at a single token)"
    group.add_argument("--head", type=_head, metavar="HEAD", help=head)
    key = (
        "for --show scores: the token that the head looks at, counted as in --at (default: the one with the "
        "most weight)"
    )
    group.add_argument("--key", type=_place, metavar="N", help=key)
    versus = (
        "for --show scores: compare with the scores of this token, counted as in --at (default: the mean "
        "over all keys)"
    )
    group.add_argument("--versus", type=_place, metavar="N", help=versus)


def _head(text: str) -> Intervention:
    """The head that a label names."""
    units = _units(text)
    if len(units) != 1 or units[0].kind != "head" or units[0].scale:
        raise argparse.ArgumentTypeError(f"{text!r} is not a head: write L6 h1")
    return units[0]


def _add_patching(group: argparse._ArgumentGroup) -> None:
    """The flags of activation patching."""
    source = (
        "patch what the model computes for this text into the prompt, and follow the logit of --token less that of "
        "--against (default: the two tokens whose logits differ most between the texts)"
    )
    group.add_argument("--source", metavar="TEXT", help=source)
    pairs = (
        'patch each pair of a file, and show the means: JSON lines with "text", "source", "token" and "other"'
    )
    group.add_argument("--patch-pairs", metavar="FILE", help=pairs)
    part = "patch whole layers, or the outputs of their attention or MLP (default: layer)"
    group.add_argument("--part", choices=("layer", "attention", "mlp"), default="layer", help=part)
    facing = (
        "which tokens of the two texts correspond, counted from 0, such as 0-4:0-4,5:7,6-8:8-10 (default: "
        "the blocks that both have)"
    )
    group.add_argument("--facing", type=facing_from, metavar="PLACE:PLACE,...", help=facing)


_STRETCH = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?:(\d{1,9})(?:-(\d{1,9}))?")
MOST_FACING = 1_000_000
"""Tokens of a stretch, at most."""


def facing_from(text: str) -> Facing:
    """An alignment as it is typed, places counted from 0: `0-4:0-4, 5:7, 6-8:8-10`.

    Raises:
        ArgumentTypeError: A part is no place or stretch of each path, or the stretches differ in length.
    """
    pairs: list[tuple[int, int]] = []
    for part in text.split(","):
        named = _STRETCH.fullmatch(part.strip())
        if named is None:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} names no partner: write 5:7 or 6-8:8-10")
        first, last, partner, end = (None if each is None else int(each) for each in named.groups())
        assert first is not None
        assert partner is not None
        length = (last if last is not None else first) - first
        if length < 0 or length != (end if end is not None else partner) - partner or length > MOST_FACING:
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: both stretches must have the same length")
        pairs += [(first + at, partner + at) for at in range(length + 1)]
    return tuple(pairs)


def _views(text: str) -> tuple[str, ...]:
    """The views that a list names."""
    named = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in named if name not in VIEWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(VIEWS)}")
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
    from engine.protocol import HALF_TOKENS, MOST_TEXTS

    given = tuple(whole(part.strip()) for part in text.split(","))
    if len(given) > 3:
        raise argparse.ArgumentTypeError("give a length, a count and a seed")
    if not 2 <= given[0] <= HALF_TOKENS or not all(1 <= count <= MOST_TEXTS for count in given[1:2]):
        raise argparse.ArgumentTypeError(f"give 1 to {MOST_TEXTS} texts of twice 2 to {HALF_TOKENS} tokens")
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
    from inspector.cli.writers.inside import Known, questions, refused, writer

    args.show = _shown(args)
    pairs = _pairs(args)
    request = request_from(args)
    known = Known()
    out = writer(request, known, output(), sys.stderr)
    steps = [TakeStep() for _ in range(args.steps)]

    def after() -> Iterator[Command]:
        node = _node_at(known.nodes, args.at)
        makers = questions(args, known, request, pairs)
        for view in sorted(args.show, key=lambda each: each == "patching"):  # it reads another prompt
            yield from makers[view](node)
        if args.off:
            yield Intervene(node, args.off, args.scope, begin=args.begin)

    status = run(args, request, out, steps, after, forgives=partial(refused, out))
    if status != OK or not (failed := known.failed):
        return status
    checks, them = ("its check", "it") if len(failed) == 1 else ("their checks", "them")
    said = f"Not shown: {', '.join(failed)}, as {checks} failed."
    return not_shown(f"{said} If rounding is the cause, --dtype float32 shows {them}.")


def _shown(args: Namespace) -> tuple[str, ...]:
    """The views that are asked for, by name or by what is given for one.

    Raises:
        EngineError: A flag has no effect, or nothing is given to steer by.
    """
    from engine.files import free, typed
    from inspector.config.directions import read_pairs, steering

    if args.steer is not None:
        args.steering = steering(args.steer)
    if args.pairs is not None:
        args.said = read_pairs(args.pairs)
    if args.save_direction is not None:
        args.saved_as = free(typed(args.save_direction), False)
    steered = args.steer is not None or args.pairs is not None
    patched = args.source is not None or args.patch_pairs is not None
    shown: tuple[str, ...] = args.show or (() if args.off or steered or patched else USUAL)
    if "steering" in shown and not steered:
        hint = "Give --pairs FILE, to make one, or --steer FILE."
        raise EngineError("There is no direction to steer by.", hint)
    if args.save_direction is not None and args.pairs is None:
        raise EngineError("--save-direction has no effect without pairs.", "Add --pairs FILE.")
    if args.layer is not None and args.pairs is None:
        raise EngineError("--layer has no effect without pairs.", "Give it with the file: --steer FILE:2@4.")
    if args.begin and args.scope == "token":
        raise EngineError("--from has no effect on one token's forward.", "Add --scope context.")
    given = (["steering"] if steered else []) + (["patching"] if patched else [])
    return tuple(dict.fromkeys((*shown, *given)))


def _pairs(args: Namespace) -> tuple[PatchPair, ...]:
    """The pairs of a file; the first one's text is the prompt where none is given.

    Raises:
        PromptError: The file can't be read, or has no pairs.
    """
    if args.patch_pairs is None:
        return ()
    from inspector.cli.inputs import read_file
    from inspector.state.patching import pairs_from
    from inspector.texts import decoded

    pairs = pairs_from(decoded(read_file(args.patch_pairs), args.patch_pairs), args.patch_pairs)
    if args.prompt is None and args.prompt_file is None:
        args.prompt, args.ignore_chat_template = pairs[0].text, not args.chat
    return pairs


def _node_at(nodes: Sequence[int], place: int) -> int:
    """The node of a token of the path.

    Raises:
        PromptError: There is no such token.
    """
    if not -len(nodes) <= place < len(nodes):
        hint = f"Give one from {-len(nodes)} to {len(nodes) - 1}."
        raise PromptError(f"--at {place} is not a token of the path, which has {len(nodes)}.", hint)
    return nodes[place]


PURPOSE = (
    "look inside the model at one token: attention, logit lens, contributions, gradients, patching, steering"
)
INSIDE = Subcommand("inside", inside_parser, run_inside, PURPOSE)
