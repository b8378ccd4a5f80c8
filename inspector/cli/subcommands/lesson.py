"""`inspector lesson`: for authors of lessons: begin one, check it, record it, run it."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.paths import replacing, typed
from engine.settings import LoadSettings
from inspector.cli.exit import BAD_INPUT, OK, note, output
from inspector.cli.flags import EXIT_STATUS, Parser, add_theme, command_parser, whole
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.lessons.authors.check import Examination
    from inspector.lessons.errors import LessonError
    from inspector.lessons.lesson import Lesson

SEEDS = 100
"""That a search tries, where nothing else is asked for."""
OF_CHECK = ("verbose", "static", "dtype", "all_dtypes", "find_seed", "seeds")


def parser() -> Parser:
    """The parser of `inspector lesson`."""
    made = command_parser(
        "lesson",
        "Write a lesson: `new` writes one to begin with, `check` names all that is wrong with it, each as "
        "FILE:LINE: what is wrong, and what would mend it; `record` writes the recording that it runs from without a "
        "model, FILE.trace.zst beside it; `run` opens it, as inspector learn FILE does, which also takes --plain and "
        "--present.",
        f"The format: inspector/help/lessons.md. {EXIT_STATUS} check: 2 where something is wrong.",
    )
    made.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help="new, check, record or run")
    made.add_argument("file", metavar="FILE", help="the lesson: a Markdown file, NAME.md")
    made.add_argument("--force", action="store_true",
                      help="new: replace a file that is there; record: also where the check fails")  # fmt: skip
    check = made.add_argument_group("check").add_argument
    check("--verbose", "-v", action="store_true", help="list each beat, its answer and how safe that is")
    check("--static", action="store_true", help="what can be seen without the model alone")
    check("--dtype", metavar="TYPE", help="compute in this type (default: auto, as everywhere)")
    check("--all-dtypes", action="store_true",
          help="in each type that the program may choose by itself: the file's, and float32")  # fmt: skip
    check(
        "--find-seed", action="store_true", help="look for a seed with which nothing is wrong; ctrl+c ends it"
    )
    check("--seeds", type=whole, metavar="N", help=f"try so many seeds (default: {SEEDS})")
    add_theme(made.add_argument_group("run"))
    return made


def run(args: Namespace) -> int:
    """Run `inspector lesson`.

    Raises:
        EngineError: The file can't be read or written, or a flag is of another verb.
    """
    if args.verb != "check" and (given := next((each for each in OF_CHECK if getattr(args, each)), None)):
        raise EngineError(f"--{given.replace('_', '-')} is a flag of check.", "Leave it out.")
    return VERBS[args.verb](args)


# ---- new, run ---------------------------------------------------------------------------------


def _path(args: Namespace) -> Path:
    path = typed(args.file)
    if path.suffix != ".md":
        raise EngineError(f"{args.file} doesn't end in .md, as a lesson does.", f"Call it {path.stem}.md.")
    return path


def _new(args: Namespace) -> int:
    from inspector.display import visible
    from inspector.lessons.authors.new import new_lesson

    path = _path(args)
    title = path.stem.replace("-", " ").replace("_", " ").strip().capitalize()
    with replacing(path, args.force) as file:
        file.write(new_lesson(title).encode())
    next_one = f"inspector lesson check {shlex.quote(args.file)}"
    output().write(f"{visible(f'{args.file}: written. Change it, then: {next_one}')}\n")
    return OK


def _run(args: Namespace) -> int:
    from inspector.cli.subcommands import learn

    begun = learn.parser().parse_args(["--", str(_path(args))])
    begun.theme = args.theme
    return learn.run(begun)


# ---- check ------------------------------------------------------------------------------------


def _check(args: Namespace) -> int:
    from inspector.lessons.authors.check import OWN_DTYPES, check_live

    if args.dtype and args.all_dtypes:
        raise EngineError("--dtype and --all-dtypes were both given.", "Leave one of them out.")
    lesson, faults = _read(_path(args))
    if lesson is None or faults or args.static:
        return _told(args, faults, lesson)
    load = LoadSettings(lesson.model)
    if args.find_seed or args.seeds is not None:
        return _find_seed(args, lesson, load)
    dtypes = OWN_DTYPES if args.all_dtypes else (args.dtype or load.dtype,)
    runs, faults = check_live(lesson, load, dtypes, note if args.verbose else _silent)
    if args.verbose:
        for examined in runs:
            output().writelines(f"{line}\n" for line in _computed(examined))
    return _told(args, faults, lesson)


def _silent(_: str) -> None:
    """Tell nothing."""


def _read(path: Path) -> tuple[Lesson | None, list[LessonError]]:
    from inspector.lessons.authors.check import read_checked
    from inspector.lessons.errors import LessonError
    from inspector.lessons.reading import text_of

    try:
        return read_checked(text_of(path), path.stem)
    except LessonError as error:
        return None, [error]


def _told(args: Namespace, faults: Iterable[LessonError], lesson: Lesson | None) -> int:
    from inspector.display import visible

    lines = [visible(fault.at(args.file)) for fault in faults]
    beats = len(lesson.beats) if lesson is not None else 0
    number = "1 beat" if beats == 1 else f"{beats} beats"
    output().writelines(
        f"{line}\n" for line in lines or [visible(f"{args.file}: nothing is wrong in {number}.")]
    )
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
    from inspector.lessons.authors.check import find_seed

    tried = args.seeds or SEEDS
    seed, examined = find_seed(
        lesson, load, range(tried), lambda seed, wrong: note(f"seed {seed}: {_many(wrong)}")
    )
    if seed is None or examined is None:
        output().write(
            f"None of {tried} seeds will do. Try more with --seeds, or ask for another quantity.\n"
        )
        return BAD_INPUT
    output().writelines(f"{line}\n" for line in _computed(examined))
    output().write(f"With seed = {seed} nothing is wrong.\n")
    return OK


def _many(wrong: int) -> str:
    return {0: "nothing is wrong", 1: "1 fault"}.get(wrong, f"{wrong} faults")


# ---- record -----------------------------------------------------------------------------------


def _record(args: Namespace) -> int:
    from inspector.lessons.authors.check import check_live
    from inspector.lessons.catalogue import recording_of
    from inspector.lessons.record import record

    path = _path(args)
    lesson, faults = _read(path)
    if lesson is not None and not faults:
        _, faults = check_live(lesson, LoadSettings(lesson.model), ("auto",))
    if lesson is None or (faults and not args.force):
        return _told(args, faults, lesson)
    trace = recording_of(path)
    size = record(lesson, trace, LoadSettings(lesson.model), note)
    output().write(f"{trace}: {size / 1024:,.0f} KiB\n")
    return OK


VERBS: dict[str, Callable[[Namespace], int]] = {"new": _new, "check": _check, "record": _record, "run": _run}
SUBCOMMAND = Subcommand(parser, run, "for authors of lessons: new, check, record, run")
