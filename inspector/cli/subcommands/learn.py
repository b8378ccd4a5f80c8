"""`inspector learn`: the lessons, listed or begun."""

from __future__ import annotations

from argparse import Namespace

from engine.settings import LoadSettings, Settings
from inspector.cli import terminal
from inspector.cli.flags import EXIT_STATUS, Parser, add_theme, command_parser
from inspector.cli.subcommand import Subcommand


def parser() -> Parser:
    """The parser of `inspector learn`."""
    made = command_parser(
        "learn",
        "Learn how a language model generates text: predict, do it, and see, in the real program. "
        "Without a lesson, the list.",
        EXIT_STATUS,
    )
    made.add_argument(
        "lesson", metavar="LESSON", nargs="?", help="its number, its name, or a file of your own"
    )
    made.add_argument("--recorded", action="store_true", help="from its recording, without a model")
    present = "before a class: one panel of 60 columns; inspector notes in a second terminal shows the notes"
    made.add_argument("--present", action="store_true", help=present)
    add_theme(made)
    return made


def run(args: Namespace) -> int:
    """Run `inspector learn`.

    Raises:
        EngineError: There is no such lesson, or no terminal.
    """
    from inspector.lessons.catalogue import find, shipped

    if args.lesson is None:
        for listed in shipped():
            print(
                f"{listed.number:>2}  {listed.lesson.title:<24}{listed.lesson.minutes:>3g} min  {listed.lesson.about}"
            )
        return 0
    listed = find(args.lesson)
    terminal.check()
    from inspector.app import InspectorApp
    from inspector.session.playback import Opening, checked
    from inspector.tools.registry import with_lesson

    tools = with_lesson(listed, args.present)
    recorded = args.recorded or not _has_mlx()
    trace = Opening(checked(listed.trace), play=True) if recorded else None
    app = InspectorApp(
        LoadSettings(model=listed.lesson.model), listed.lesson.settings if trace is None else Settings(),
        trace=trace, tools=tools, theme=args.theme or "",
    )  # fmt: skip
    return terminal.run(app)


def _has_mlx() -> bool:
    """Whether there is an engine: without one a lesson is shown from its recording."""
    from importlib.util import find_spec

    return find_spec("mlx") is not None and find_spec("mlx_lm") is not None


SUBCOMMAND = Subcommand(parser, run, "lessons: predict, do it, and see")
