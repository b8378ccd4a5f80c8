"""What a subcommand is: `inspector NAME ...`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from engine.frozen import frozen
from inspector.cli.flags import Parser


@frozen
class Subcommand:
    """One way to run the program. Its module imports what is heavy only where it runs, so that help is instant."""

    parser: Callable[[], Parser]
    """Makes the parser of its flags."""
    run: Callable[[Namespace], int]
    """Does what the flags ask for; returns the exit status, raises `EngineError` for bad input."""
    purpose: str
    """For the help, in a few words."""
