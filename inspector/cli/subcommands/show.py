"""`inspector show`: what a model's layers compute for one token; a race, the time of a step, and the cache."""

from __future__ import annotations

import argparse
import os
import re
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine import protocol
from engine.errors import EngineError
from engine.files import free, typed
from engine.protocol import Command, Facing, Intervention, PatchPair, units_from
from engine.settings import BY_NAME, FIELDS
from inspector.cli import flags
from inspector.cli.arguments import read_file, request_from
from inspector.cli.exit import NOT_SHOWN, OK, bad_input
from inspector.config.directions import read_pairs, steering

if TYPE_CHECKING:
    from inspector.cli.driver import Summary

VIEWS = (
    "map", "attention", "lens", "contributions", "gradients", "scores", "heads", "positions", "experts", "switch-off",
    "patching", "steering",
)  # fmt: skip
"""Names of the views, the same as those of the screen's tabs and of the views' pages."""
USUAL = VIEWS[1:4]
"""The views that are shown if none are named."""
MEASURED = ("race", "time", "cache")
"""The views with flags of their own."""
SAMPLING = ("temp", "top_p", "min_p", "top_k", "seed")
"""Settings of the sampler that have a flag here."""
ELSEWHERE = {
    "batch": "batch is a subcommand: inspector batch",
    "drafts": "drafts are a flag: inspector generate --draft lookup",
}
"""The command to type for a view that is not shown here."""
LOGITS = "contributions", "gradients", "patching", "steering"
VIEWS_OF = {
    "token": LOGITS, "against": LOGITS, "alone": LOGITS[:2], "head": ("scores",), "key": ("scores",),
    "versus": ("scores",), "texts": ("heads",), "method": ("gradients",), "baseline": ("gradients",),
    "gradient_steps": ("gradients",), "hold_experts": ("gradients",), "facing": ("patching",),
}  # fmt: skip
"""The views that each flag affects, by the name of the flag's value."""
LENS = 6
"""Positions that the lens shows by default."""


def show_parser() -> flags.Parser:
    """Show what the layers of a model compute for one token of a prompt: a map of the model, where each head looks
    (attention) and why (scores), what each layer would predict (lens), what each part adds to a logit (contributions),
    what changes without a part (switch-off) or at a wrong position, and which experts a mixture took. The model
    computes the token again, and each view is checked against its numbers: one whose check fails is not shown."""
    epilog = f"Three more views measure, and have flags of their own: {', '.join(MEASURED)} (inspector show race " \
             f"--help). {flags.EXIT_STATUS} 3 if the check of a view failed."  # fmt: skip
    made = flags.command_parser("show", show_parser.__doc__, epilog, {
        **flags.jsonl("tables"),
        "views [VIEW,...]": (f"some of {', '.join(VIEWS)} (default: {', '.join(USUAL)}); or {', '.join(MEASURED)}",
                             {"type": _views}),
        "token:": "",
        "--at STEP": ("the token to explain: the number of a step, as on the screen, -1 for the last one; or of a "
                      "prompt token with a p before it, such as p5 (default: the token that comes next)",
                      {"type": _place}),
        "--steps N": ("generate this many tokens first", {"default": 0}),
        "--token TOKEN": "explain the logit of this token by contributions, gradients or steering; give its id or text "
                         "(default: the token taken next, or without --steps the most probable one; for steering the "
                         "words that the direction is named after, such as happy-sad, if they are candidates)",
        "--against | --alone": {
            "--against TOKEN": "explain the difference between that logit and this token's (default: that of the best "
                               "other candidate)",
            "--alone": "explain the one logit, not a difference",
        },
        "changes:": "",
        "--off UNIT,...": ("switch off these parts of the model together: L6 h1, L3 mlp, L4 attention, L2, or with "
                           "names that count from 0: blocks.5.attn.hook_z[0], model.layers.2.mlp. L6 h1 x0.5 scales "
                           "one instead", {"type": _units, "default": ()}),
        "--scope": ("where parts are switched off or steered: in that token's forward pass alone, or in "
                    "the whole context", {"choices": ("token", "context"), "default": "token"}),
        "--from STEP": ("with --scope context: change the model from this token on, given as in --at (default: p1)",
                        {"dest": "begin", "type": _place}),
        "--steer | --pairs": {
            f"--steer {flags.STEER}": "steer by a direction from a file (view: steering); with a STRENGTH also show "
                                      "the candidates that come of it",
            "--pairs FILE": "steer by a direction made from pairs of texts; each line of FILE has two, with a tab or | "
                            "between them",
        },
        "--layer N": ("make the direction from the residual stream after this layer, and add it there (default: the "
                      "middle layer)", {"type": _positive}),
        "--save-direction FILE": "save the direction made from --pairs",
        "lens and heads:": "",
        "--positions N": ("positions that the lens shows, up to the token", {"type": _positive, "default": LENS}),
        "--texts LENGTH,COUNT,SEED": ("for heads: score the heads also on COUNT texts of LENGTH random tokens, each "
                                      "repeated once, drawn with SEED (default: 50,10,0)",
                                      {"type": _texts, "default": ()}),
        "scores: why a head looks there:": "",
        "--head HEAD": ("the head, such as L6 h1 (default: the one that looks most at a single token)",
                        {"type": _head}),
        "--key STEP": ("the token that the head looks at, given as in --at (default: the one with the most weight)",
                       {"type": _place}),
        "--versus STEP": ("compare with the scores of this token, given as in --at (default: the mean over all keys)",
                          {"type": _place}),
        "gradients:": "",
        "--method": ("take gradient x input, or integrated gradients (default: input, unless one of the next three is "
                     "given)", {"choices": ("input", "integrated")}),
        "--baseline BASELINE": ("where the path of integrated gradients begins: mean, first or zero (the mean "
                                "embedding, the first token's, zeros), or the text of one token (default: mean)", {}),
        "--gradient-steps N": ("steps of the path at first; they are tripled until the shares are complete",
                               {"type": _positive, "metavar": "N"}),
        "--hold-experts": "in a mixture of experts, keep the text's own experts along the whole path, which asks "
                          "another question",
        "patching:": "",
        "--source TEXT": "patch what the model computes for this text into the prompt, and follow the logit of --token "
                         "minus that of --against (default: the two tokens whose logits differ most between the texts)",
        "--patch-pairs FILE": 'patch each pair of a file, and show the means: JSON lines with "text", "source", '
                              '"token" and "other"',
        "--part": ("patch whole layers, or the outputs of their attention or MLP",
                   {"choices": ("layer", "attention", "mlp"), "default": "layer"}),
        "--facing PLACE:PLACE,...": ("which tokens of the two texts correspond, counted from 1, such as "
                                     "1-5:1-5,6:8,7-9:9-11 (default: the blocks that both have)",
                                     {"type": facing_from}),
        **flags.PROMPT,
        "sampling of --steps:": "",
        **flags.named(*SAMPLING),
        "model:": "",
        **flags.MODEL,
    })  # fmt: skip
    made.intermixed = True  # VIEW may come after flags
    return made


# ---- values of flags --------------------------------------------------------------------------


def _units(text: str) -> tuple[Intervention, ...]:
    """Parse a list of units; argparse reports an error."""
    try:
        return units_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _head(text: str) -> Intervention:
    """Parse the label of a head."""
    units = _units(text)
    if len(units) != 1 or units[0].kind != "head" or units[0].scale:
        raise argparse.ArgumentTypeError(f"{text!r} is not a head: write L6 h1")
    return units[0]


_STRETCH = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?:(\d{1,9})(?:-(\d{1,9}))?")
MOST_FACING = 1_000_000
"""Most tokens of a stretch."""


def facing_from(text: str) -> Facing:
    """Parse an alignment, with places counted from 1: `1-5:1-5, 6:8, 7-9:9-11`.

    Raises:
        ArgumentTypeError: A part doesn't name a place or stretch of each path, or the stretches differ in length.
    """
    pairs: list[tuple[int, int]] = []
    for part in text.split(","):
        named = _STRETCH.fullmatch(part.strip())
        if named is None:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} names no partner: write 6:8 or 7-9:9-11")
        one, last, other, end = named.groups()
        first, partner = int(one), int(other)
        length = int(last or one) - first
        if not first or not partner:
            raise argparse.ArgumentTypeError("tokens are counted from 1")
        if length < 0 or length != int(end or other) - partner or length > MOST_FACING:
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: both stretches must have the same length")
        pairs += [(first + at - 1, partner + at - 1) for at in range(length + 1)]
    return tuple(pairs)


def _views(text: str) -> tuple[str, ...]:
    """Parse a list of views."""
    named = tuple(part.strip().replace(" ", "-") for part in text.split(","))  # “switch off” on the screen
    unknown = [name for name in named if name not in VIEWS]
    if unknown and unknown[0] in ELSEWHERE:
        raise argparse.ArgumentTypeError(ELSEWHERE[unknown[0]])
    if unknown and unknown[0] in MEASURED:
        raise argparse.ArgumentTypeError(f"{unknown[0]} comes first, and alone: inspector show {unknown[0]}")
    if unknown:
        known = ", ".join(VIEWS + MEASURED)
        raise argparse.ArgumentTypeError(f"there is no view {unknown[0]!r}: choose from {known}")
    return named


def _texts(text: str) -> tuple[int, ...]:
    """Parse length, count and seed of repeated texts; the last ones may be left out."""
    given = tuple(flags.whole(part.strip()) for part in text.split(","))
    if len(given) > 3:
        raise argparse.ArgumentTypeError("give a length, a count and a seed")
    most, tokens = protocol.MOST_TEXTS, protocol.HALF_TOKENS
    if not 2 <= given[0] <= tokens or not all(1 <= count <= most for count in given[1:2]):
        raise argparse.ArgumentTypeError(f"give 1 to {most} texts of twice 2 to {tokens} tokens")
    return given


def _place(text: str) -> tuple[bool, int]:
    """Parse a place: True for a prompt token, and its number or that of a step."""
    number = flags.whole(text.removeprefix("p"))
    if not number:
        raise argparse.ArgumentTypeError("tokens are counted from 1")
    return text.startswith("p"), number


def _positive(text: str) -> int:
    count = flags.whole(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


# ---- running the command ----------------------------------------------------------------------


def run_show(args: Namespace) -> int:
    """Run `inspector show`.

    Raises:
        EngineError: A value is out of range, or the prompt is missing or can't be read.
    """
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.inside import Known, questions, refused

    views, pairs = _shown(args), _pairs(args)
    if not args.steps and all(getattr(args, name) is None for name in SAMPLING):
        args.temp = 0.0  # so that the token that comes next is the most probable one
    request = request_from(args, default_prompt=views == ("map",))  # a map needs no prompt of its own
    known = Known()
    known.changed = bool(args.off) or args.steer is not None

    def after(summary: Summary) -> Iterator[Command]:
        node = known.before(args.at)
        args.begin = known.index("--from", args.begin) if args.begin else 0
        makers = questions(args, known, request, pairs)
        if args.off:  # refused at once if the model has no such part, before anything is measured
            yield protocol.Intervene(node, args.off, args.scope, begin=args.begin)
        for view in sorted(views, key=lambda each: each == "patching"):  # it reads another prompt
            yield from makers[view](node)

    steps = [protocol.TakeStep() for _ in range(args.steps)]
    alone = len(views) + bool(args.off) == 1
    status = report(request, known, steps, after=after, forgives=lambda failure: refused(failure, alone))
    if status == OK and known.refused:
        return bad_input(f"Not shown: {', '.join(known.refused)}, for the reason in its place.")
    if status != OK or not (failed := known.failed):
        return status
    checks, them = ("its check", "it") if len(failed) == 1 else ("their checks", "them")
    said = f"Not shown: {', '.join(failed)}, as {checks} failed."
    return bad_input(f"{said} If rounding is the cause, --dtype float32 shows {them}.", NOT_SHOWN)


def _shown(args: Namespace) -> tuple[str, ...]:
    """The views that are asked for by name, or by the flags of one.

    Raises:
        EngineError: A flag has no effect, or nothing is given to steer by.
    """
    if args.steer is not None:
        args.steering = steering(args.steer)
    if args.pairs is not None:
        args.said = read_pairs(args.pairs)
    if args.save_direction is not None:
        args.saved_as = free(typed(args.save_direction), False)
    steered = args.steer is not None or args.pairs is not None
    patched = args.source is not None or args.patch_pairs is not None
    shown: tuple[str, ...] = args.views or (() if args.off or steered or patched else USUAL)
    if "steering" in shown and not steered:
        hint = "Give --pairs FILE, to make one, or --steer FILE."
        raise EngineError("There is no direction to steer by.", hint)
    if args.save_direction is not None and args.pairs is None:
        raise EngineError("--save-direction has no effect without pairs.", "Add --pairs FILE.")
    if args.layer is not None and args.pairs is None:
        raise EngineError("--layer has no effect without pairs.", "Give it with the file: --steer FILE:2@4.")
    if args.begin and args.scope == "token":
        raise EngineError("--from has no effect on one token's forward pass.", "Add --scope context.")
    given = (["steering"] if steered else []) + (["patching"] if patched else [])
    views = tuple(dict.fromkeys((*shown, *given)))
    for name, fitting in VIEWS_OF.items():
        if getattr(args, name) and set(views).isdisjoint(fitting):
            hint = f"Leave it out, or name one of its views: {', '.join(fitting)}."
            raise EngineError(
                f"--{name.replace('_', '-')} has no effect on {', '.join(views) or '--off'}.", hint
            )
    return views


def _pairs(args: Namespace) -> tuple[PatchPair, ...]:
    """The pairs of a file; without a prompt, the first pair's text becomes the prompt.

    Raises:
        PromptError: The file can't be read, or has no pairs.
    """
    if args.patch_pairs is None:
        return ()
    from inspector.state.patching import pairs_from

    pairs = pairs_from(read_file(args.patch_pairs), args.patch_pairs)
    if args.prompt is None and args.prompt_file is None:
        args.prompt, args.ignore_chat_template = pairs[0].text, not args.chat
    return pairs


# ---- inspector show race ---------------------------------------------------------------------

UNUSED = ("max_tokens", "min_tokens", "stop", "candidates")
"""Settings that a race doesn't use."""


def show_race_parser() -> flags.Parser:
    """Generate the same tokens with a KV cache and without one, step by step in turn, and show the ms of each step,
    their sums, and whether both take the same tokens."""
    default = protocol.Race()
    return flags.command_parser("show race", show_race_parser.__doc__, flags.EXIT_STATUS, {
        **flags.jsonl("table"),
        "race:": "",
        "--from N": ("tokens of context at the first measured step", {"dest": "first", "default": default.first}),
        "--to N": ("tokens of context after the last step, at most the context window",
                   {"dest": "last", "default": default.last}),
        **flags.PROMPT,
        "sampling:": "",
        **flags.named(*(each.name for each in FIELDS if each.name not in UNUSED)),
        "model:": "",
        **flags.MODEL,
    })  # fmt: skip


def run_show_race(args: Namespace) -> int:
    """Run `inspector show race`; its default prompt is the screen's."""
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.measured import RaceReport

    request = request_from(args, default_prompt=True)
    return report(request, RaceReport(), [protocol.Race(args.first, args.last)])


# ---- inspector show time, and cache ------------------------------------------------------------

BEFORE = 16
"""Default number of tokens decoded before a measurement."""
MEASURING: flags.Flags = {
    **flags.jsonl("tables"), **flags.PROMPT,
    "what runs before it:": "",
    "--max-tokens -m N": ("tokens to decode before what is measured",
                          {"type": BY_NAME["max_tokens"].parse, "default": BEFORE}),
    **flags.named("temp", "top_p", "seed"),
    **flags.LOAD,
}  # fmt: skip
"""The flags of the text on which a measurement is made."""


def show_time_parser() -> flags.Parser:
    """Measure one step: each part of the model, evaluated on its own, and prefill and decode against the machine's
    roofline."""
    return flags.command_parser("show time", show_time_parser.__doc__, flags.EXIT_STATUS, {
        **flags.jsonl("tables"),
        "time:": "",
        "--repeats N": ("how often to measure the step", {"default": protocol.Profile().repeats}),
        "--metal-trace FILE": "on a Mac: record one step with Metal, for Xcode; the name must end in .gputrace",
        **MEASURING,
    })  # fmt: skip


def run_show_time(args: Namespace) -> int:
    """Run `inspector show time`. A Metal trace is recorded without the measurements, as it slows the step down."""
    if args.metal_trace is not None:
        os.environ.setdefault("MTL_CAPTURE_ENABLED", "1")  # which Metal reads when MLX is imported
        return _measure(args, protocol.CaptureMetal(args.metal_trace))
    return _measure(args, protocol.Profile(args.repeats), protocol.MeasureRoofline())


def show_cache_parser() -> flags.Parser:
    """Measure the KV cache of one text at the model's own precision, 8 and 4 bits: its bytes, and how far the logits
    change."""
    return flags.command_parser("show cache", show_cache_parser.__doc__, flags.EXIT_STATUS, MEASURING)


def run_show_cache(args: Namespace) -> int:
    return _measure(args, protocol.CompareKV())


def _measure(args: Namespace, *commands: Command) -> int:
    """Generate from the prompt, by default the screen's, and then run the commands that measure."""
    from inspector.cli.writers.generation import report
    from inspector.cli.writers.measured import Measurements

    request = request_from(args, default_prompt=True)
    return report(request, Measurements(), [protocol.Run(), *commands])
