"""`inspector learn`, `lesson` and `notes`: lessons listed and begun, what authors need, the notes of a presenter."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.files import replacing, typed
from engine.settings import LoadSettings, Settings
from inspector.cli import screen
from inspector.cli.exit import BAD_INPUT, OK, note, output
from inspector.cli.flags import EXIT_STATUS, Parser, Subcommand, add_theme, command_parser, whole

if TYPE_CHECKING:
    from inspector.lessons.catalogue import Listed
    from inspector.lessons.check import Examination
    from inspector.lessons.errors import LessonError
    from inspector.lessons.headless import HeadlessSession
    from inspector.lessons.lesson import Lesson
    from inspector.lessons.play import LessonPlay

LONGEST_ANSWER = 1000
"""Characters of a line that are read at once."""


def learn_parser() -> Parser:
    """The parser of `inspector learn`."""
    made = command_parser(
        "learn",
        "Learn how a language model generates text, in lessons inside the program: predict, try it, and see. Without a "
        "LESSON they are listed.",
        EXIT_STATUS,
    )
    add = made.add_argument
    add("lesson", metavar="LESSON", nargs="?", help="number or name of a lesson, or a file of your own")
    add("--recorded", action="store_true", help="play the lesson from its recording, without a model")
    add("--plain", action="store_true", help="hold the lesson as a dialogue of lines on standard input and output, "
                                             "for screen "
        "readers; where its model can't be loaded, from its recording")  # fmt: skip
    add("--present", action="store_true", help="present to a class: one panel, 60 columns wide; run `inspector "
                                               "notes` in a "
        "second terminal for the speaker's notes")  # fmt: skip
    add("--from", dest="beat", metavar="N", type=whole, help="begin with beat N (default: where you left the lesson; "
        "with --present, the first beat)")  # fmt: skip
    add_theme(made)
    return made


def run_learn(args: Namespace) -> int:
    """Run `inspector learn`.

    Raises:
        EngineError: There is no such lesson, or no terminal.
    """
    from inspector import plugins
    from inspector.lessons.catalogue import all_lessons, find
    from inspector.lessons.catalogue import listed as read

    if args.lesson is None:
        for plugin in plugins.load_all(read, (plugins.LESSONS,)):
            if plugin.problem:
                note(plugin.sentence)
        for listed in all_lessons():
            own = listed.lesson
            print(f"{listed.number:>2}  {own.title:<24}{own.minutes:>3g} min  {own.about}")
        return OK
    listed = find(args.lesson)
    beat = _beat(listed, args.beat)
    if args.plain:
        return _plain(listed, args.recorded, beat)
    screen.check_terminal(instead="Without one, use inspector learn --plain.")
    from inspector.session.playback import Opening, checked
    from inspector.tools.registry import with_lesson

    tools = with_lesson(listed, args.present, beat)
    recorded = args.recorded or not _has_mlx()
    trace = Opening(checked(listed.trace), play=True) if recorded else None
    app = screen.application()(
        LoadSettings(model=listed.lesson.model), listed.lesson.settings if trace is None else Settings(),
        trace=trace, tools=tools, theme=args.theme or "",
    )  # fmt: skip
    return screen.run_app(app)


def _beat(listed: Listed, number: int | None) -> int | None:
    """The beat to begin with, from 0; None where none is named."""
    beats = len(listed.lesson.beats)
    if number is not None and number > beats:
        hint = f"It has {beats}: --from 1 to {beats}."
        raise EngineError(f"{listed.lesson.title} has no beat {number}.", hint)
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

    def keep() -> None:
        """Keep how far it is, as the screen does; a file that can't be written is no reason to stop."""
        try:
            Progress().keep(play.lesson.id, play.progress)
        except EngineError as error:
            note(f"Progress isn't kept: {error}")

    with ExitStack() as stack:
        session, play = _begun(listed, recorded, stack)
        known = (
            Progress().read().get(listed.lesson.id, LessonProgress())
            if beat is None
            else LessonProgress(beat)
        )
        play.know(known, known.beat)
        LessonDialogue(session, play, ask, tell, known.beat, keep).hold()
    return OK


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
            note(f"{error} The lesson continues from its recording.")
    session, player = stack.enter_context(recorded_session(listed.trace, lesson))
    return session, recorded_play(session, player, lesson)


def _has_mlx() -> bool:
    """Whether there is an engine: without one a lesson is shown from its recording."""
    from importlib.util import find_spec

    return find_spec("mlx") is not None and find_spec("mlx_lm") is not None


LEARN = Subcommand("learn", learn_parser, run_learn, "take a lesson: predict, try it, and see")


# ---- inspector lesson ------------------------------------------------------------------------

SEEDS = 100
"""That a search tries, where nothing else is asked for."""
OF_CHECK = ("verbose", "static", "dtype", "all_dtypes", "find_seed", "seeds")


def lesson_parser() -> Parser:
    """The parser of `inspector lesson`."""
    made = command_parser(
        "lesson",
        "Write a lesson. `new` writes a first one for you to change. `check` lists all that is wrong with it: "
        "FILE:LINE, "
        "the fault, and how to mend it. `record` writes the recording from which the lesson runs without a model, "
        "FILE.trace.zst beside it. `run` opens it, as does inspector learn FILE, which also takes --plain and "
        "--present.",
        f"The format: inspector/help/lessons.md. {EXIT_STATUS} check: 2 if anything is wrong.",
    )
    made.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help="new, check, record or run")
    made.add_argument("file", metavar="FILE", help="the lesson: a Markdown file, NAME.md")
    made.add_argument("--force", action="store_true",
                      help="new: replace the file if it exists; record: write it even if the check fails")  # fmt: skip
    check = made.add_argument_group("check").add_argument
    check("--verbose", "-v", action="store_true", help="list each beat, its answer and how stable that is")
    check("--static", action="store_true", help="check only what can be seen without the model")
    check("--dtype", metavar="TYPE", help="compute in this type (default: auto, as everywhere)")
    check("--all-dtypes", action="store_true",
          help="check in each type that the program may choose by itself: the file's, and float32")  # fmt: skip
    seed = "look for a seed with which nothing is wrong; ctrl+c ends the search"
    check("--find-seed", action="store_true", help=seed)
    check("--seeds", type=whole, metavar="N", help=f"try at most this many seeds (default: {SEEDS})")
    add_theme(made.add_argument_group("run"))
    return made


def run_lesson(args: Namespace) -> int:
    """Run `inspector lesson`.

    Raises:
        EngineError: The file can't be read or written, or a flag is of another verb.
    """
    if args.verb != "check" and (given := next((each for each in OF_CHECK if getattr(args, each)), None)):
        raise EngineError(
            f"--{given.replace('_', '-')} is a flag of `inspector lesson check` only.", "Leave it out."
        )
    return VERBS[args.verb](args)


# ---- new, run ---------------------------------------------------------------------------------


def _lesson_path(args: Namespace) -> Path:
    path = typed(args.file)
    if path.suffix != ".md":
        raise EngineError(
            f"The name of a lesson ends in .md, unlike {args.file}.", f"Call it {path.stem}.md."
        )
    return path


def _new(args: Namespace) -> int:
    from inspector.lessons.catalogue import new_lesson

    path = _lesson_path(args)
    title = path.stem.replace("-", " ").replace("_", " ").strip().capitalize()
    with replacing(path, args.force) as file:
        file.write(new_lesson(title).encode())
    from inspector.display import visible

    next_one = f"inspector lesson check {shlex.quote(args.file)}"
    output().write(f"{visible(f'{args.file}: written. Change it, then: {next_one}')}\n")
    return OK


def _learn(args: Namespace) -> int:
    begun = learn_parser().parse_args(["--", str(_lesson_path(args))])
    begun.theme = args.theme
    return run_learn(begun)


# ---- check ------------------------------------------------------------------------------------


def _check(args: Namespace) -> int:
    from inspector.lessons.check import OWN_DTYPES, check_live

    if args.dtype and args.all_dtypes:
        raise EngineError("--dtype and --all-dtypes were both given.", "Leave one of them out.")
    lesson, faults = _read_checked(_lesson_path(args))
    if lesson is None or faults or args.static:
        return _faults_told(args, faults, lesson)
    load = LoadSettings(lesson.model)
    if args.find_seed or args.seeds is not None:
        return _find_seed(args, lesson, load)
    dtypes = OWN_DTYPES if args.all_dtypes else (args.dtype or load.dtype,)
    runs, faults = check_live(lesson, load, dtypes, note if args.verbose else lambda _: None)
    if args.verbose:
        for examined in runs:
            output().writelines(f"{line}\n" for line in _computed(examined))
    return _faults_told(args, faults, lesson)


def _read_checked(path: Path) -> tuple[Lesson | None, list[LessonError]]:
    from inspector.lessons.check import read_checked
    from inspector.lessons.errors import LessonError
    from inspector.lessons.reading import text_of

    try:
        return read_checked(text_of(path), path.stem)
    except LessonError as error:
        return None, [error]


def _faults_told(args: Namespace, faults: Iterable[LessonError], lesson: Lesson | None) -> int:
    from inspector.display import visible

    lines = [fault.at(args.file) for fault in faults]
    beats = len(lesson.beats) if lesson is not None else 0
    fine = f"{args.file}: nothing is wrong in {beats} beat{'s' * (beats != 1)}."
    output().writelines(f"{visible(line)}\n" for line in lines or [fine])
    return BAD_INPUT if lines else OK


def _computed(examined: Examination) -> Iterable[str]:
    """What a run came to, a beat a line."""
    from inspector.display import visible

    yield f'{examined.dtype}, fingerprint = "{examined.fingerprint}"'
    for each in examined.findings:
        answer = each.answer.written() if each.answer is not None else "no question"
        right = f" ({each.right.text})" if each.right is not None else ""
        margin = f", {each.margin}" if each.margin else ""
        yield visible(f"  {each.beat + 1} {each.title}: {answer}{right}{margin}")


def _find_seed(args: Namespace, lesson: Lesson, load: LoadSettings) -> int:
    from inspector.lessons.check import find_seed

    tried = args.seeds or SEEDS

    def tell(seed: int, wrong: int) -> None:
        note(f"seed {seed}: " + {0: "nothing is wrong", 1: "1 fault"}.get(wrong, f"{wrong} faults"))

    seed, examined = find_seed(lesson, load, range(tried), tell)
    if seed is None or examined is None:
        hint = "Try more with --seeds, or ask for another quantity."
        output().write(f"None of {tried} seeds will do. {hint}\n")
        return BAD_INPUT
    output().writelines(f"{line}\n" for line in _computed(examined))
    output().write(f"With seed = {seed} nothing is wrong.\n")
    return OK


# ---- record -----------------------------------------------------------------------------------


def _record(args: Namespace) -> int:
    from inspector.lessons.catalogue import recording_of
    from inspector.lessons.check import check_live
    from inspector.lessons.headless import record

    path = _lesson_path(args)
    lesson, faults = _read_checked(path)
    if lesson is not None and not faults:
        _, faults = check_live(lesson, LoadSettings(lesson.model), ("auto",))
    if lesson is None or (faults and not args.force):
        return _faults_told(args, faults, lesson)
    trace = recording_of(path)
    size = record(lesson, trace, LoadSettings(lesson.model), note)
    output().write(f"{trace}: {size / 1024:,.0f} KiB\n")
    return OK


VERBS: dict[str, Callable[[Namespace], int]]
VERBS = {"new": _new, "check": _check, "record": _record, "run": _learn}
LESSON = Subcommand(
    "lesson", lesson_parser, run_lesson, "write a lesson of your own: new, check, record, run"
)


# ---- inspector notes -------------------------------------------------------------------------


def notes_parser() -> Parser:
    """The parser of `inspector notes`."""
    return command_parser(
        "notes",
        "Show the speaker's notes of the lesson that is being presented on this machine, with the time, the votes "
        "and the next beat.",
        EXIT_STATUS,
    )


def run_notes(args: Namespace) -> int:
    """Run `inspector notes`.

    Raises:
        EngineError: There is no terminal.
    """
    screen.check_terminal()
    from inspector.tools.lessons.notes import NotesApp, follow, presenting

    return NotesApp(lambda: follow(presenting())).run() or 0


PURPOSE = "show the speaker's notes of a presented lesson, in a second terminal"
NOTES = Subcommand("notes", notes_parser, run_notes, PURPOSE)
