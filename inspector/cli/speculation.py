"""The flags of speculative decoding. Standard library alone, so that `--help` is instant."""

from __future__ import annotations

import argparse

from engine.errors import EngineError
from engine.speculation_settings import DRAFT_KINDS, SpeculationSettings, check_speculation
from inspector.cli.flags import Parser, flag_errors, whole

PLAIN_STEPS = 9
"""Plain steps that a run begins with: the first is a cold start, and the median of eight is what rounds are measured
against."""


def add_speculation(parser: Parser) -> None:
    """The flags of a draft."""
    group = parser.add_argument_group(
        "speculative decoding", "the text is the same with and without; what changes is the time"
    )
    group.add_argument(
        "--draft-model",
        metavar="MODEL",
        help="a smaller model with the same tokens, which drafts the next ones",
    )
    group.add_argument(
        "--draft",
        choices=[kind for kind in DRAFT_KINDS if kind != "model"],
        help="draft without another model: lookup copies what followed the last tokens before, self-4bit is the "
        "model itself, quantized when it is loaded",
    )
    default = SpeculationSettings().num_draft_tokens
    group.add_argument(
        "--num-draft-tokens",
        type=whole,
        metavar="N",
        help=f"tokens to draft for a round (default: {default})",
    )


def speculation_from(args: argparse.Namespace) -> SpeculationSettings | None:
    """What the flags ask for; None without a draft.

    Raises:
        EngineError: Both kinds of draft were given, a number without a draft, or one that is out of range.
    """
    if args.draft_model is not None and args.draft is not None:
        raise EngineError("--draft-model and --draft were both given.", "Leave one of them out.")
    if args.draft_model is None and args.draft is None:
        if args.num_draft_tokens is not None:
            raise EngineError(
                "--num-draft-tokens has no effect without a draft.",
                "Add --draft lookup, or --draft-model MODEL.",
            )
        return None
    number = args.num_draft_tokens
    settings = SpeculationSettings(
        args.draft or "model",
        args.draft_model or "",
        SpeculationSettings().num_draft_tokens if number is None else number,
    )
    with flag_errors():
        return check_speculation(settings)
