"""`inspector bits`: what each layer costs in fewer bits, and which layers to keep in more."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from engine.errors import EngineError, PromptError
from engine.files import free, replacing, typed
from engine.settings import Settings
from inspector.cli.arguments import CliRequest, load_settings
from inspector.cli.exit import output
from inspector.cli.flags import (
    EXIT_STATUS,
    Parser,
    Subcommand,
    add_jsonl,
    add_load,
    between,
    command_parser,
    whole,
)
from inspector.cli.inputs import STDIN, given_text

if TYPE_CHECKING:
    from inspector.cli.writers.bits import BitsReading

SHARES = (0.1, 0.25, 0.5)
"""Of the parameters that are raised in the mixes that are always measured."""


def bits_parser() -> Parser:
    """The parser of `inspector bits`."""
    from engine.protocol import MeasureLayerBits

    default = MeasureLayerBits(())
    made = command_parser(
        "bits",
        "Quantize one layer of a model at a time, and measure over a text how far the predictions move from the "
        "model's "
        "own: the KL divergence. Then quantize all layers, those that cost most in more bits, as chosen by this figure "
        "and by mlx_lm's own sensitivities, and measure the KL of each of these mixes.",
        "The model reads the text once for each of its layers, and a few times more; after the first time the command "
        f"prints how long that will take. KL is in bits, as in `inspector diff`. {EXIT_STATUS}",
    )
    made.intermixed = True
    made.add_argument(
        "named", metavar="MODEL", help="pocket, a directory, or a hub id; its weights must not be quantized"
    )
    group = made.add_argument_group("bits")
    add = group.add_argument
    bits = (
        f"bits of the single layer, and of most layers of a mix: 2, 3, 4, 5, 6 or 8 (default: {default.bits})"
    )
    add("--bits", type=whole, metavar="N", default=default.bits, help=bits)
    high = f"bits of those layers of a mix that cost most (default: {default.high_bits})"
    add("--high-bits", type=whole, metavar="N", default=default.high_bits, help=high)
    size = f"weights that share a scale: 32, 64 or 128 (default: {default.group_size})"
    add("--group-size", type=whole, metavar="N", default=default.group_size, help=size)
    raised = (
        "share of the parameters, 0 to 1, that get the high bits in the mix that --output writes (default: 0.25); "
        f"{', '.join(f'{each:g}' for each in SHARES)} are measured in any case"
    )
    add("--share", type=between(1.0), metavar="X", default=0.25, help=raised)
    text = made.add_argument_group("text")
    file = "a UTF-8 text; - reads standard input; may be repeated"
    text.add_argument("--text", "-t", metavar="FILE", action="append", help=file)
    text.add_argument("--prompt", "-p", metavar="TEXT", help=r"the text itself; \n and \t are escapes")
    window = "tokens in a window (default: as many as fit the model)"
    text.add_argument("--window", type=whole, metavar="N", help=window)
    out = made.add_argument_group("output")
    add_jsonl(out, "tables")
    plan = 'write the mix with the lower KL as JSON, the "quantization" of an mlx_lm config.json'
    out.add_argument("--output", "-o", metavar="FILE", help=plan)
    out.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_load(made.add_argument_group("model and cache"))
    return made


def run_bits(args: Namespace) -> int:
    """Run `inspector bits`.

    Raises:
        EngineError: A value is out of range, a text can't be read or is empty, or the file can't be written.
    """
    from engine.protocol import MeasureLayerBits
    from inspector.cli.driver import run
    from inspector.cli.writers.bits import BitsReading
    from inspector.cli.writers.bits import writer as bits_writer

    if args.model is not None:
        raise EngineError("The model was named twice.", "Leave --model out.")
    if (args.text or []).count(STDIN) > 1:
        raise PromptError("Standard input can be read only once.", "Name it once with --text.")
    path = None if args.output is None else free(typed(args.output), args.force)
    args.model = args.named
    texts = tuple(
        given_text(file, args.prompt, "inspector bits MODEL", "read", "--text")
        for file in args.text or [None]
    )
    shares = tuple(sorted({*SHARES, args.share} - {0.0}))
    command = MeasureLayerBits(texts, args.bits, args.group_size, args.high_bits, shares, args.window)
    request = CliRequest(load_settings(args), Settings(), "", chat=False, jsonl=args.jsonl)
    reading = BitsReading(command)
    status = run(args, request, bits_writer(request, output(), sys.stderr, reading), [command])
    if path is not None and status == 0:
        with replacing(path, args.force) as file:
            file.write(json.dumps(_plan(reading, args.share), indent=2).encode() + b"\n")
    return status


def _plan(reading: BitsReading, raised: float) -> dict[str, object]:
    """The mix as mlx_lm takes it.

    Raises:
        EngineError: It was not measured.
    """
    if (plan := reading.plan(raised)) is None:
        raise EngineError(
            "The mixes of bits were not measured, so there is none to write.",
            "Close other programs, or give less text.",
        )
    return plan


BITS = Subcommand(
    "bits", bits_parser, run_bits, "measure what each layer loses in fewer bits, and which ones need more"
)
