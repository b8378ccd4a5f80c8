"""`inspector learn` and `lesson`: runs lessons and courses, and helps authors to write them."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.files import replacing, typed
from engine.settings import LoadSettings
from inspector.cli import flags, screen
from inspector.cli.exit import BAD_INPUT, OK, note, output, write
from inspector.lessons import catalogue
from inspector.lessons.catalogue import LessonProgress, Listed, Progress
from inspector.lessons.errors import LessonError

if TYPE_CHECKING:
    from inspector.lessons.check import Examination
    from inspector.lessons.courses import CoursePlace
    from inspector.lessons.headless import HeadlessSession
    from inspector.lessons.lesson import Lesson
    from inspector.lessons.play import LessonPlay

LONGEST_ANSWER = 1000
"""Most characters of a line that are read at once."""


def learn_parser() -> flags.Parser:
    """Learn how a language model generates text, in lessons inside the program: predict, try it, and see. Without a
    LESSON they are listed."""
    epilog = f"A course of your own: inspector/help/learning.md. {flags.EXIT_STATUS}"
    return flags.command_parser("learn", learn_parser.__doc__, epilog, {
        "lesson [LESSON]": "number or name of a lesson, or a file of your own; with --course one of its parts",
        "--course NAME": "take a course: lessons in order, from the first that isn't done; NAME.toml is one of your "
                         "own",
        "--recorded": "play the lesson from its recording, without a model",
        "--plain": "run the lesson as plain text on standard input and output, for screen readers; where its model "
                   "can't be loaded, from its recording",
        "--present": "present to a class: one panel and the sentence, with the speaker's notes under each answer",
        "--from N": ("begin with card N (default: where you left the lesson; with --present, the first card)",
                     {"dest": "beat"}),
        **flags.THEME,
    })  # fmt: skip


def run_learn(args: Namespace) -> int:
    """Run `inspector learn`.

    Raises:
        EngineError: There is no such lesson or course, or no terminal.
    """
    if args.plain and args.present:
        raise EngineError("--plain and --present were both given.", "Leave one of them out.")
    if args.lesson is None and args.course is None:
        return write(_list())
    place = _place(args) if args.course is not None else None
    try:
        listed = place.listed if place is not None else catalogue.find(args.lesson)
    except LessonError as error:
        hint = f"inspector lesson check {shlex.quote(args.lesson)} lists all that is wrong."
        raise EngineError(error.at(args.lesson), hint) from error
    beats, beat = len(listed.lesson.beats), None if args.beat is None else args.beat - 1
    if beat is not None and not 0 <= beat < beats:
        hint = f"It has {beats}: --from 1 to {beats}."
        raise EngineError(f"{listed.lesson.title} has no card {args.beat}.", hint)
    if args.plain and place is not None:
        return _plain_course(place, args.recorded, beat)
    if args.plain:
        _plain(listed, args.recorded, beat)
        return OK
    screen.check_terminal(instead="Without one, use inspector learn --plain.")
    from inspector.session.playback import Opening, checked
    from inspector.views import with_lesson

    recorded = args.recorded or find_spec("mlx") is None or find_spec("mlx_lm") is None  # without an engine
    trace = Opening(checked(listed.trace), play=True) if recorded else None
    load, settings = LoadSettings(model=listed.lesson.model), None if recorded else listed.lesson.settings
    tools = with_lesson(listed, args.present, beat, place)
    return screen.run_app(load, settings, trace=trace, tools=tools, theme=args.theme)


def _list() -> Iterator[str]:
    """All lessons, and all courses with their progress."""
    from inspector.lessons.courses import shipped_courses

    progress = Progress().read()
    for each in catalogue.shipped():
        own = each.lesson
        done = "✓" if progress.get(own.id, LessonProgress()).done else " "
        yield from _row(f"{each.number:>2} {done} {own.title:<26}{own.minutes:>3g} min  ", own.about)
    yield from ("", "Courses, with --course NAME:")
    for course in shipped_courses():
        done = f"{course.done(progress)} of {len(course.parts)} lessons done"
        about = f"{done}. {course.about} With a class: {course.minutes:g} min."
        yield from _row(f"    {course.id:<26}{course.lesson_minutes:>3g} min  ", about)


def _row(name: str, about: str) -> list[str]:
    """A row of a list: in a terminal on as many lines as its words need."""
    columns = shutil.get_terminal_size((1000, 24)).columns
    return textwrap.wrap(name + about, max(60, columns), subsequent_indent=" " * len(name))


def _place(args: Namespace) -> CoursePlace:
    """The part of a course to begin with: the one that is named, or else the first that isn't done."""
    from inspector.lessons.courses import CoursePlace, find_course

    course = find_course(args.course)
    if args.lesson is not None:
        return CoursePlace(course, course.find(args.lesson))
    progress = Progress().read()
    if not args.present and course.done(progress) == len(course.parts):
        note(f"All lessons of {course.title} are done; the course begins again.")
    return CoursePlace(course, 0 if args.present else course.next(progress))


# ---- lessons as dialogues --------------------------------------------------------------------


def _plain_course(place: CoursePlace, recorded: bool, beat: int | None) -> int:
    """Run the lessons of a course as dialogues, one after another, until the user leaves."""
    following: CoursePlace | None = place
    while following is not None:
        write([f"{following.course.title}, {following.named}."])
        if not _plain(following.listed, recorded, beat):
            return OK
        following, beat = following.following, None
    return write(["The course is at its end."])


def _plain(listed: Listed, recorded: bool, beat: int | None) -> bool:
    """Run a lesson as a dialogue, from its recording if its model can't be loaded; returns whether it reached its
    end."""
    from inspector.lessons.dialogue import LessonDialogue

    out = output()
    if sys.stdin is None:
        raise EngineError("Standard input is closed.", "Answers are read from it, a line each.")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def tell(text: str, end: str = "\n") -> None:
        print(text, end=end, file=out, flush=True)

    def ask(prompt: str) -> str | None:
        tell(prompt, "")
        answer = sys.stdin.readline(LONGEST_ANSWER)
        if not sys.stdin.isatty():
            out.write("\n")  # on a terminal, the user's own newline is there
        return answer or None

    def keep() -> None:
        """Save the progress, as the screen does; if that fails, the lesson continues."""
        try:
            Progress().keep(play.lesson.id, play.progress)
        except EngineError as error:
            note(f"Progress isn't kept: {error}")

    with ExitStack() as stack:
        session, play = _begun(listed, recorded, stack)
        known = LessonProgress(beat or 0)
        if beat is None:
            known = Progress().read().get(listed.lesson.id, known)
        play.know(known, known.beat)
        return LessonDialogue(session, play, ask, tell, known.beat, keep).hold()


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


# ---- inspector lesson ------------------------------------------------------------------------

SEEDS = 100
"""Number of seeds that a search tries by default."""
OF_CHECK = ("verbose", "static", "dtype", "all_dtypes", "find_seed", "seeds")


def lesson_parser() -> flags.Parser:
    """Write a lesson. `new` writes a first one for you to change. `check` lists all that is wrong with it: FILE:LINE,
    the fault, and how to mend it. `record` writes the recording from which the lesson runs without a model,
    FILE.trace.zst beside it. `run` opens it, as does inspector learn FILE, which also takes --plain and --present."""
    epilog = f"The format: inspector/help/lessons.md. {flags.EXIT_STATUS} check: 2 if anything is wrong."
    return flags.command_parser("lesson", lesson_parser.__doc__, epilog, {
        "verb VERB": ("new, check, record or run", {"choices": tuple(VERBS)}),
        "file FILE": "the lesson: a Markdown file, NAME.md; check also takes a course, NAME.toml",
        "--force": "new: replace the file if it exists; record: write it even if the check fails",
        "check:": "",
        "--verbose -v": "list each card, its answer and how stable that is",
        "--static": "check only what can be seen without the model",
        "--dtype TYPE": "compute in this type (default: auto, as everywhere)",
        "--all-dtypes": "check in each type that the program may choose by itself: the file's, and float32",
        "--find-seed": "look for a seed with which nothing is wrong; ctrl+c ends the search",
        "--seeds N": f"try at most this many seeds (default: {SEEDS})",
        "run:": "",
        **flags.THEME,
    })  # fmt: skip


def run_lesson(args: Namespace) -> int:
    """Run `inspector lesson`.

    Raises:
        EngineError: The file can't be read or written, or a flag is of another verb.
    """
    if args.verb != "check" and (given := next((each for each in OF_CHECK if getattr(args, each)), None)):
        flag = given.replace("_", "-")
        raise EngineError(f"--{flag} is a flag of `inspector lesson check` only.", "Leave it out.")
    return VERBS[args.verb](args)


def _lesson_path(args: Namespace) -> Path:
    path = typed(args.file)
    if path.suffix != ".md":
        message = f"The name of a lesson ends in .md, unlike {args.file}."
        raise EngineError(message, f"Call it {path.name.partition('.')[0]}.md.")
    return path


def _new(args: Namespace) -> int:
    path = _lesson_path(args)
    title = path.stem.replace("-", " ").replace("_", " ").strip().capitalize()
    with replacing(path, args.force) as file:
        file.write(catalogue.new_lesson(title).encode())
    next_one = f"inspector lesson check {shlex.quote(args.file)}"
    return write([f"{args.file}: written. Change it, then: {next_one}"])


def _learn(args: Namespace) -> int:
    begun = learn_parser().parse_args(["--", str(_lesson_path(args))])
    begun.theme = args.theme
    return run_learn(begun)


def _check(args: Namespace) -> int:
    from inspector.lessons.check import OWN_DTYPES, check_live, find_seed
    from inspector.lessons.courses import ENDING, read_course

    if args.dtype and args.all_dtypes:
        raise EngineError("--dtype and --all-dtypes were both given.", "Leave one of them out.")
    if args.file.endswith(ENDING):  # its lessons are checked separately
        course, faults = read_course(typed(args.file))
        return _report(args, faults, len(course.parts) if course is not None else 0, "part")
    lesson, faults = _read_checked(_lesson_path(args))
    if lesson is None or faults:
        return _report(args, faults, len(lesson.beats) if lesson is not None else 0)
    if args.static:
        without = (
            f"{args.file}: nothing is wrong without the model. Check the answers, too: leave --static out."
        )
        return write([without])
    load = LoadSettings(lesson.model)
    if args.find_seed or args.seeds is not None:
        tried = args.seeds or SEEDS
        seeds = dict.fromkeys((lesson.settings.seed, *range(tried)))
        seed, examined = find_seed(lesson, load, seeds, _tell_faults)
        if seed is None or examined is None:
            write([f"None of {tried} seeds will do. Try more with --seeds, or ask for another quantity."])
            return BAD_INPUT
        return write([*_computed(examined), f"With seed = {seed} nothing is wrong."])
    dtypes = OWN_DTYPES if args.all_dtypes else (args.dtype or load.dtype,)
    runs, faults = check_live(lesson, load, dtypes, note if args.verbose else lambda _: None)
    if args.verbose:
        write(line for examined in runs for line in _computed(examined))
    return _report(args, faults, len(lesson.beats))


def _tell_faults(seed: int, wrong: int) -> None:
    note(f"seed {seed}: " + {0: "nothing is wrong", 1: "1 fault"}.get(wrong, f"{wrong} faults"))


def _read_checked(path: Path) -> tuple[Lesson | None, list[LessonError]]:
    from inspector.lessons.check import read_checked
    from inspector.lessons.reading import text_of

    try:
        return read_checked(text_of(path), path.stem)
    except LessonError as error:
        return None, [error]


def _report(args: Namespace, faults: Iterable[LessonError], count: int, unit: str = "card") -> int:
    """Write the faults of a file, or that nothing is wrong; returns the exit status."""
    lines = [fault.at(args.file) for fault in faults]
    write(lines or [f"{args.file}: nothing is wrong in {count} {unit}{'s' * (count != 1)}."])
    return BAD_INPUT if lines else OK


def _computed(examined: Examination) -> Iterator[str]:
    """The answers that a run computed, a line per card."""
    yield f'{examined.dtype}, fingerprint = "{examined.fingerprint}"'
    for each in examined.findings:
        answer = each.answer.written() if each.answer is not None else "no question"
        right = f" ({each.right.text})" if each.right is not None else ""
        margin = f", {each.margin}" if each.margin else ""
        yield f"  {each.beat + 1} {each.title}: {answer}{right}{margin}"


def _record(args: Namespace) -> int:
    from inspector.lessons.check import check_live
    from inspector.lessons.headless import record

    path = _lesson_path(args)
    lesson, faults = _read_checked(path)
    if lesson is None:
        return _report(args, faults, 0)
    load = LoadSettings(lesson.model)
    if not faults:
        _, faults = check_live(lesson, load, ("auto",))
    if faults and not args.force:
        return _report(args, faults, len(lesson.beats))
    trace = catalogue.recording_of(path)
    size = record(lesson, trace, load, note)
    return write([f"{trace}: {size / 1024:,.0f} KiB"])


VERBS: dict[str, Callable[[Namespace], int]]
VERBS = {"new": _new, "check": _check, "record": _record, "run": _learn}
