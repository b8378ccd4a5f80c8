"""`inspector learn`: the lessons, listed or begun."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from io import TextIOWrapper
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.settings import LoadSettings, Settings
from inspector.cli import terminal
from inspector.cli.exit import OK, note, output
from inspector.cli.flags import EXIT_STATUS, Parser, add_theme, command_parser, whole
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.lessons.catalogue import Listed
    from inspector.lessons.headless import HeadlessSession
    from inspector.lessons.play import LessonPlay

LONGEST_ANSWER = 1000
"""Characters of a line that are read at once."""


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
    made.add_argument("--plain", action="store_true",
                      help="as a dialogue of lines on standard input and output, for screen readers; without a "
                      "model from the recording")  # fmt: skip
    present = "before a class: one panel of 60 columns; inspector notes in a second terminal shows the notes"
    made.add_argument("--present", action="store_true", help=present)
    made.add_argument("--from", dest="beat", metavar="N", type=whole,
                      help="begin with beat N; without it where the lesson was left, and with --present at its first "
                      "beat")  # fmt: skip
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
    beat = _beat(listed, args.beat)
    if args.plain:
        return _plain(listed, args.recorded, beat)
    terminal.check(instead="Without one, use inspector learn --plain.")
    from inspector.app import InspectorApp
    from inspector.session.playback import Opening, checked
    from inspector.tools.registry import with_lesson

    tools = with_lesson(listed, args.present, beat)
    recorded = args.recorded or not _has_mlx()
    trace = Opening(checked(listed.trace), play=True) if recorded else None
    app = InspectorApp(
        LoadSettings(model=listed.lesson.model), listed.lesson.settings if trace is None else Settings(),
        trace=trace, tools=tools, theme=args.theme or "",
    )  # fmt: skip
    return terminal.run(app)


def _beat(listed: Listed, number: int | None) -> int | None:
    """The beat to begin with, from 0; None where none is named."""
    beats = len(listed.lesson.beats)
    if number is not None and number > beats:
        raise EngineError(
            f"{listed.lesson.title} has no beat {number}.", f"It has {beats}: --from 1 to {beats}."
        )
    return number - 1 if number is not None else None


def _plain(listed: Listed, recorded: bool, beat: int | None) -> int:
    """Hold a lesson as a dialogue; from its recording, where its model can't be loaded."""
    from inspector.lessons.catalogue import LessonProgress, Progress
    from inspector.lessons.dialogue import LessonDialogue

    out = output()
    if sys.stdin is None:
        raise EngineError("Standard input is closed.", "Answers are read from it, a line each.")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def tell(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    def ask(prompt: str) -> str | None:
        out.write(prompt)
        out.flush()
        answer = sys.stdin.readline(LONGEST_ANSWER)
        if not sys.stdin.isatty():
            out.write("\n")  # which whoever types has written
        return answer or None

    with ExitStack() as stack:
        session, play = _begun(listed, recorded, stack)
        known = LessonProgress(beat) if beat is not None else LessonProgress()
        if beat is None:
            known = Progress().read().get(listed.lesson.id, known)
        play.right |= {number: right for number, right in known.right.items() if number < known.beat}
        LessonDialogue(session, play, ask, tell, known.beat, lambda: _keep(play)).hold()
    return OK


def _keep(play: LessonPlay) -> None:
    """Keep how far it is, as the screen does; a file that can't be written is no reason to stop."""
    from inspector.lessons.catalogue import LessonProgress, Progress
    from inspector.lessons.play import LessonPhase

    over = play.phase is LessonPhase.ENDED
    try:
        Progress().keep(
            play.lesson.id, LessonProgress(0 if over else play.beat_number, dict(play.right), over)
        )
    except EngineError as error:
        note(f"Progress isn't kept: {error}")


def _begun(listed: Listed, recorded: bool, stack: ExitStack) -> tuple[HeadlessSession, LessonPlay]:
    from inspector.lessons.headless import live_play, live_session, recorded_play, recorded_session

    lesson = listed.lesson
    if not recorded:
        try:
            live = stack.enter_context(live_session(LoadSettings(model=lesson.model), lesson))
            return live, live_play(live, lesson)
        except EngineError as error:
            if not listed.trace.exists():
                raise
            note(f"{error} The lesson goes on from its recording.")
    session, player = stack.enter_context(recorded_session(listed.trace, lesson))
    return session, recorded_play(session, player, lesson)


def _has_mlx() -> bool:
    """Whether there is an engine: without one a lesson is shown from its recording."""
    from importlib.util import find_spec

    return find_spec("mlx") is not None and find_spec("mlx_lm") is not None


SUBCOMMAND = Subcommand(parser, run, "lessons: predict, do it, and see")
