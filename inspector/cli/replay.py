"""`inspector replay`: a recorded session on the same screen, without a model and without MLX."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace

from engine.settings import LoadSettings, Settings
from inspector.cli.flags import Parser


def parser() -> Parser:
    """The parser of `inspector replay`."""
    made = Parser(
        prog="inspector replay",
        description="Show a recorded session on the same screen, without a model: walk, compare, search, play. "
        "G loads the model, if it is the recorded one, and goes on live.",
        epilog="Keys: space the next step, r plays, + and - the speed, backspace goes back. "
        "Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add(
        "file",
        metavar="FILE",
        nargs="?",
        help="a trace, or a name that `inspector sessions` lists; without one the demonstration is played",
    )
    add("--play", action="store_true", help="play it from its start at once, rather than stand at its end")
    add("--speed", type=speed, default=1.0, metavar="X", help=f"times the recorded pace: {_SPEEDS}")
    add("--no-save", action="store_true", help="save nothing when it is gone on with live")
    return made


_NAMES = {"0.25": 0.25, "0.5": 0.5, "1": 1.0, "2": 2.0, "5": 5.0, "10": 10.0, "max": float("inf")}
_SPEEDS = ", ".join(_NAMES)


def speed(text: str) -> float:
    """A speed of `replaying.SPEEDS`.

    Raises:
        ArgumentTypeError: It is none of them.
    """
    if text not in _NAMES:
        raise ArgumentTypeError(f"must be one of {_SPEEDS}, not {text!r}")
    return _NAMES[text]


def run(args: Namespace) -> int:
    """Run `inspector replay`.

    Raises:
        EngineError: There is no such file, it is no trace, or there is no terminal.
    """
    from inspector.cli import terminal
    from inspector.demo import DEMONSTRATION
    from inspector.recordings import sessions
    from inspector.session.playback import Opening, checked

    path = checked(DEMONSTRATION if args.file is None else sessions.find(args.file))
    terminal.check(instead="Without one, use inspector export.")
    from inspector.app import InspectorApp

    opening = Opening(path, play=args.play or args.file is None, speed=args.speed)
    save = None if args.no_save else sessions.folder()
    return terminal.run(InspectorApp(LoadSettings(), Settings(), save=save, trace=opening))
