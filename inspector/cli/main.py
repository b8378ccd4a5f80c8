"""The command `inspector`: reads the flags, then opens the screen or runs headless.

Everything heavy is imported where it is needed, so that `--help` is instant. Whatever goes wrong is one line.
"""

from __future__ import annotations

import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import EngineError
from inspector.cli import arguments, terminal
from inspector.cli.exit import INTERRUPTED, bad_input, fault, flushed
from inspector.cli.flags import parsed
from inspector.cli.subcommands import SUBCOMMANDS

if TYPE_CHECKING:
    from inspector.session.playback import Opening


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments after the command's name; None for those of the process.

    Returns:
        Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    return flushed(_guarded(given))


def _guarded(given: Sequence[str]) -> int:
    try:
        return _run(given)
    except SystemExit as leave:  # argparse, after --help or --version
        return leave.code if isinstance(leave.code, int) else 0
    except EngineError as error:
        return bad_input(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        return fault(f"{type(error).__name__}: {error}", trace)


def _run(given: Sequence[str]) -> int:
    if given and (subcommand := SUBCOMMANDS.get(given[0])) is not None:
        return subcommand.run(parsed(subcommand.parser(), given[1:]))
    purposes = {name: each.purpose for name, each in SUBCOMMANDS.items()}
    args = parsed(arguments.screen_parser(purposes), given)
    if args.stray:
        word = next((word for word in args.stray if word in SUBCOMMANDS), None)
        hint = f"Put {word} first: inspector {word} ..." if word else "See `inspector --help`."
        raise EngineError(f"{args.stray[0]!r} is no flag of inspector.", hint)
    return _screen(args)


# ---- the screen -------------------------------------------------------------------------------


def _screen(args: Namespace) -> int:
    terminal.check(args.prompt == "-")
    request = arguments.request(args, headless=False)
    from inspector.app import InspectorApp
    from inspector.recordings import sessions

    app = InspectorApp(
        load=request.load,
        settings=request.settings,
        prompt=request.prompt,
        chat=request.chat,
        system=request.system,
        echo=request.echo,
        engine=None,
        breakpoints=request.breakpoints,
        save=None if args.no_save else sessions.folder(),
        trace=_resumed(args),
    )
    return terminal.run(app)


def _resumed(args: Namespace) -> Opening | None:
    """The session to go on with, if that was asked for."""
    if args.resume is None:
        return None
    from inspector.recordings import sessions
    from inspector.session.playback import Opening, checked

    load = arguments.load_given(args)
    return Opening(checked(sessions.find(args.resume)), live=True, load=load)
