"""The flags of a second model to compare with, for the screen and for `inspector diff`. Standard library alone."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.settings import LoadSettings
from inspector.cli.flags import whole
from inspector.cli.inputs import decoded, read_file

if TYPE_CHECKING:
    from engine.protocol import OpenLockstep

GROUP_SIZE = 64
"""That of mlx_lm.convert."""


def add_against(group: argparse._ArgumentGroup, prefix: str) -> None:
    """The flags that make a second model of the first one.

    Args:
        group: Of the parser.
        prefix: Before their names, as in `--against-bits`; empty for `--bits`.
    """
    add = group.add_argument
    add(f"--{prefix}bits", dest="against_bits", type=whole, metavar="N",
        help="quantize the second model to 2, 3, 4, 5, 6 or 8 bits on loading, as mlx_lm.convert does")  # fmt: skip
    add(f"--{prefix}group-size", dest="against_group_size", type=whole, metavar="N",
        help=f"weights that share a scale then: 32, 64 or 128 (default: {GROUP_SIZE})")  # fmt: skip
    add(
        f"--{prefix}adapter",
        dest="against_adapter",
        metavar="DIR",
        help="adapter to load with the second model",
    )


def against_from(args: argparse.Namespace, load: LoadSettings, named: str | None) -> OpenLockstep | None:
    """The command that opens the second model.

    Args:
        args: With the flags above.
        load: Of the first model; what doesn't belong to that model alone holds for both.
        named: The second model, where it is named.

    Returns:
        None where neither a model nor a flag was given.

    Raises:
        EngineError: A group size was given without bits, or the template's file can't be read.
    """
    from engine.protocol import OpenLockstep

    bits, group, adapter = args.against_bits, args.against_group_size, args.against_adapter
    if group is not None and bits is None:
        raise EngineError(
            "A group size was given without the bits to quantize to.", "Add the bits, or leave it out."
        )
    system, template = (
        getattr(args, "against_system_prompt", None),
        getattr(args, "against_chat_template", None),
    )
    if all(each is None for each in (named, bits, adapter, system, template)):
        return None
    if template is not None and "{" not in template:  # a template has braces, or it would say the same to all
        template = decoded(read_file(template, "chat template"), template)
    if named is None or named == load.model:
        against = replace(load, adapter_path=adapter if adapter or named else load.adapter_path)
    else:
        against = replace(load, model=named, adapter_path=adapter, extra_eos_token=())
    return OpenLockstep(against, bits, group or GROUP_SIZE, system, template)
