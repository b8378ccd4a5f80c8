"""`inspector replay`: a recorded session on the same screen, without a model and without MLX."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.cli import terminal
from inspector.cli.flags import EXIT_STATUS, Parser, add_theme, command_parser
from inspector.cli.subcommand import Subcommand
from inspector.keys import key_for

_SPEEDS = {"0.25": 0.25, "0.5": 0.5, "1": 1.0, "2": 2.0, "5": 5.0, "10": 10.0, "max": float("inf")}
_NAMES = ", ".join(_SPEEDS)


def parser() -> Parser:
    """The parser of `inspector replay`."""
    made = command_parser(
        "replay",
        "Show a recorded session on the same screen, without a model: walk, compare, search, play. "
        f"{key_for('go_live')} loads the model, if it is the recorded one, and goes on live.",
        (
            f"Keys: {key_for('step')} the next step, {key_for('run')} plays, {key_for('faster')} "
            f"and {key_for('slower')} the speed, backspace goes back. {EXIT_STATUS}"
        ),
    )
    add = made.add_argument
    file = (
        "a trace, or a name that `inspector sessions` lists; batch and lockstep come with the program; without one the "
        "demonstration is played"
    )
    add("trace", metavar="FILE", nargs="?", help=file)
    add("--play", action="store_true", help="play it from its start at once, rather than stand at its end")
    add("--speed", type=speed, default=1.0, metavar="X", help=f"times the recorded pace: {_NAMES}")
    follow = "show what a program appends to it, as a session that runs does; nothing but looking around is possible"
    add("--follow", action="store_true", help=follow)
    add("--no-save", action="store_true", help="save nothing when it is gone on with live")
    add_theme(made)
    return made


def speed(text: str) -> float:
    """A speed of the replay by its name.

    Raises:
        ArgumentTypeError: It is none of them.
    """
    if text not in _SPEEDS:
        raise ArgumentTypeError(f"must be one of {_NAMES}, not {text!r}")
    return _SPEEDS[text]


def named(name: str | None) -> tuple[Path, bool]:
    """The trace of a name, and whether it comes with the program.

    Args:
        name: A path, a session's name, or that of a recording that comes with the program; None for the demonstration.

    Raises:
        EngineError: There is none.
    """
    from inspector.demo import DEMONSTRATION, SCENES
    from inspector.recordings import sessions

    if name is None:
        return DEMONSTRATION, True
    if name in SCENES and not os.path.exists(name):
        return SCENES[name], True
    return sessions.find(name), False


def run(args: Namespace) -> int:
    """Run `inspector replay`.

    Raises:
        EngineError: There is no such file, it is no trace, or there is no terminal.
    """
    from inspector.demo import LESSON
    from inspector.recordings import sessions
    from inspector.session.playback import Opening, checked

    if args.follow:
        return _follow(args)
    path, shipped = named(args.trace)
    path = checked(path)
    terminal.check(instead="Without one, use inspector export.")
    from inspector.app import InspectorApp
    from inspector.lessons.catalogue import listed
    from inspector.tools.registry import TOOLS, with_lesson

    opening = Opening(path, play=args.play or shipped, speed=args.speed)
    save = None if args.no_save else sessions.folder()
    tools = with_lesson(listed(LESSON)) if args.trace is None else TOOLS
    theme = args.theme or ""
    return terminal.run(
        InspectorApp(LoadSettings(), Settings(), save=save, trace=opening, theme=theme, tools=tools)
    )


def _follow(args: Namespace) -> int:
    """Show a session as it goes; without a name the last one."""
    from inspector.recordings import sessions
    from inspector.session.playback import Opening, checked

    if args.play:
        raise EngineError(
            "--follow shows what comes, so it can't --play from the start.",
            f"{key_for('run')} does so later.",
        )
    path = checked(sessions.find_growing(args.trace or ""))
    terminal.check(instead="Without one, use inspector export.")
    from inspector.app import InspectorApp
    from inspector.config.preferences import SavedPreferences
    from inspector.tools.registry import FOLLOWING

    look = SavedPreferences().read().values
    opening, theme = Opening(path, follow=True, speed=args.speed), args.theme or look.theme
    return terminal.run(
        InspectorApp(LoadSettings(), Settings(), trace=opening, theme=theme, begins=look, tools=FOLLOWING)
    )


SUBCOMMAND = Subcommand(parser, run, "a recorded session on the screen, without a model")
