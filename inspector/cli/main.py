"""The command `inspector`: reads the flags, then opens the screen or runs a subcommand.

Everything heavy is imported where it is needed, so that `--help` is instant. Whatever goes wrong is one line.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence

from engine.errors import EngineError
from inspector.cli.exit import INTERRUPTED, bad_input, fault, flush
from inspector.cli.flags import Parser, Subcommand, parsed
from inspector.cli.screen import SCREEN
from inspector.cli.subcommands.bits import BITS
from inspector.cli.subcommands.completion import COMPLETION, complete
from inspector.cli.subcommands.doctor import DOCTOR
from inspector.cli.subcommands.generate import BATCH, BEAM, GENERATE
from inspector.cli.subcommands.inside import INSIDE
from inspector.cli.subcommands.keys import KEYS
from inspector.cli.subcommands.lessons import LEARN, LESSON, NOTES
from inspector.cli.subcommands.measure import BENCH, PROFILE, RACE
from inspector.cli.subcommands.models import MODELS
from inspector.cli.subcommands.open import OPEN
from inspector.cli.subcommands.plugins import PLUGINS
from inspector.cli.subcommands.prefix import PREFIX
from inspector.cli.subcommands.record import RECORD
from inspector.cli.subcommands.recordings import EXPORT, REPLAY, SESSIONS
from inspector.cli.subcommands.serve import ENGINE, SERVE
from inspector.cli.subcommands.texts import DIFF, SCORE, TOKENS
from inspector.cli.subcommands.train import TRAIN

SUBCOMMANDS: Mapping[str, Subcommand] = {
    each.name: each
    for each in (
        GENERATE, BATCH, BENCH, RACE, PROFILE, BEAM, INSIDE, SCORE, DIFF, BITS, TOKENS, TRAIN, RECORD, OPEN,
        PREFIX, ENGINE, REPLAY, SERVE, LEARN, LESSON, NOTES, MODELS, SESSIONS, KEYS, PLUGINS, EXPORT,
        DOCTOR, COMPLETION,
    )
}  # fmt: skip
"""By name, in the order of the help."""
TAB = (
    "",
    "For tab completion put this line into ~/.bashrc (zsh and fish: inspector completion --help):",
    '  eval "$(inspector completion bash)"',
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for those of the process.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    return flush(_guarded(list(sys.argv[1:] if argv is None else argv)))


def _guarded(argv: Sequence[str]) -> int:
    try:
        return _run(argv)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:
        from engine.libraries import unsupported

        if (other := unsupported(error)) is not None:
            return bad_input(" ".join(other))
        trace = "".join(traceback.format_exception(error))
        return fault(f"{type(error).__name__}: {error}", trace)


def _run(argv: Sequence[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        complete(*_parsers().values())
    if argv and (subcommand := SUBCOMMANDS.get(argv[0])) is not None:
        return subcommand.run(parsed(subcommand.parser(), argv[1:], _parsers))
    parser = SCREEN.parser()
    lines = [f"  {name:<12}{listed.purpose}" for name, listed in SUBCOMMANDS.items()]
    parser.epilog = "\n".join(["Subcommands; each has a --help of its own:", *lines, *TAB])
    if argv and argv[0][:1] not in ("", "-"):
        from inspector.cli.suggestions import answer

        raise answer(argv[:1], argv, parser, _parsers)
    return SCREEN.run(parsed(parser, argv, _parsers))


def _parsers() -> dict[str, Parser]:
    """The parsers of all commands, by what is typed."""
    made = [SCREEN.parser(), *(subcommand.parser() for subcommand in SUBCOMMANDS.values())]
    return {parser.prog: parser for parser in made}
