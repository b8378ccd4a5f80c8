"""`inspector export`: a trace as a document, without a model and without MLX."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.errors import EngineError
from engine.paths import free, replacing, typed
from inspector.cli.exit import OK, output
from inspector.cli.flags import EXIT_STATUS, Parser, command_parser
from inspector.cli.subcommand import Subcommand

if TYPE_CHECKING:
    from inspector.lessons.catalogue import Listed

Found = TypeVar("Found")
NAMES = ("html", "md", "csv", "txt", "svg")
STDOUT = "-"
SIZE = (120, 40)
SMALLEST, LARGEST = (40, 10), (500, 300)


def parser() -> Parser:
    """The parser of `inspector export`."""
    made = command_parser(
        "export",
        "Write a trace as a document: a web page to share, Markdown, a CSV table of the tokens, the plain "
        "text, or a picture of the screen. Everything foreign in it stays text. Of a lesson the web page asks, "
        "waits and reveals, with no network and no model.",
        "In the CSV, a cell of text that begins with = + - @ or an apostrophe gets an apostrophe in front, so "
        "that no spreadsheet runs it. Notes, captions and bookmarks are told; the model's directory is not. "
        f"{EXIT_STATUS}",
    )
    add = made.add_argument
    file = (
        "a trace, or a name that `inspector sessions` lists; or a lesson by number, name or .md file, with its "
        "recording beside it; without one the demonstration"
    )
    add("trace", metavar="FILE", nargs="?", help=file)
    to = "what to write (default: what the end of OUT says)"
    add("--to", type=format_name, choices=NAMES, metavar="FORMAT", help=f"{', '.join(NAMES)}: {to}")
    out = "where; - is standard output (default: FILE's name in this directory)"
    add("--output", "-o", metavar="OUT", help=out)
    node = "look at this node, or where this named branch begins, on a path through it"
    add("--node", metavar="N|NAME", help=node)
    of = "the lesson that the trace is a recording of, for its web page: number, name or .md file"
    add("--lesson", metavar="LESSON", help=of)
    add("--force", action="store_true", help="replace a file that is there")
    add = made.add_argument_group("picture of the screen").add_argument
    size = "of the terminal (default: 120x40)"
    add("--size", type=dimensions, default=SIZE, metavar="COLUMNSxROWS", help=size)
    add("--light", action="store_true", help="in the light theme")
    return made


def format_name(text: str) -> str:
    """A format as it is typed, or as a file's name ends: `md` for `markdown`."""
    name = text.lower()
    return {"htm": "html", "markdown": "md", "text": "txt"}.get(name, name)


def dimensions(text: str) -> tuple[int, int]:
    """Columns and rows as they are typed: `120x40`.

    Raises:
        ArgumentTypeError: They are none, or out of range.
    """
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text.strip().lower())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(low <= side <= high for low, side, high in zip(SMALLEST, size, LARGEST, strict=True)):
        raise ArgumentTypeError(f"must be COLUMNSxROWS, from 40x10 to 500x300, not {text!r}")
    return size


def run(args: Namespace) -> int:
    """Run `inspector export`."""
    from inspector.demo import DEMONSTRATION

    listed, trace = _source(args)
    name, out = _target(args, trace)
    if out is not None:
        free(out, args.force)
    if name == "html" and trace is not None:
        listed = listed or _beside(trace)
    if name == "html" and listed is not None:
        document = _lesson(args, listed, trace or listed.trace)
    elif args.lesson is not None:
        raise EngineError(
            f"--lesson is for web pages, and this is {name}.", "Add --to html, or leave --lesson out."
        )
    else:
        document = _session(args, name, DEMONSTRATION if trace is None else trace)
    _deliver(document, out, args.force)
    return OK


def _session(args: Namespace, name: str, trace: Path) -> str:
    from inspector.tools.export.documents import FORMATS
    from inspector.tools.export.recording import line, read

    recording = read(trace)
    if args.node is not None:
        line(recording, args.node)
    if name == "svg":
        from inspector.cli.picture import picture

        return picture(recording, args.size, args.light)
    return FORMATS[name].make(recording)


def _lesson(args: Namespace, listed: Listed, trace: Path) -> str:
    from inspector.tools.export.lesson_page import page

    if args.node is not None:
        raise EngineError("--node is for sessions: a lesson's page has all its beats.", "Leave it out.")
    return _told(str(listed.path), lambda: page(listed.lesson, trace))


def _source(args: Namespace) -> tuple[Listed | None, Path | None]:
    """The lesson, where one is named, and the trace; no trace for the demonstration."""
    from inspector.lessons.catalogue import find, is_name
    from inspector.recordings import sessions

    name = args.trace
    listed = _told(args.lesson, lambda: find(args.lesson)) if args.lesson is not None else None
    if name is None:
        return listed, listed.trace if listed is not None else None
    if is_name(name) and (name.endswith(".md") or not os.path.isfile(name)):
        own = _told(name, lambda: find(name))
        return listed or own, own.trace
    return listed, sessions.find(name)


def _beside(trace: Path) -> Listed | None:
    """The lesson whose recording a trace is, by the file beside it."""
    from inspector.lessons.catalogue import of_recording

    return _told(str(trace), lambda: of_recording(trace))


def _told(name: str, read: Callable[[], Found]) -> Found:
    """What is read; what is wrong in a lesson's file is told with its line."""
    from inspector.lessons.errors import LessonError

    try:
        return read()
    except LessonError as error:
        raise EngineError(error.at(name)) from error


def _target(args: Namespace, trace: Path | None) -> tuple[str, Path | None]:
    """Format and file; None for standard output."""
    given = typed(args.output) if args.output not in (None, STDOUT) else None
    name = args.to or format_name(given.suffix.lstrip(".") if given else "")
    if name not in NAMES:
        what = f"The end of {given} names no format." if given else "What to write was not said."
        raise EngineError(what, f"Add --to: {', '.join(NAMES)}.")
    if args.output == STDOUT:
        return name, None
    return name, given or typed(f"{stem(trace)}.{name}")


def stem(trace: Path | None) -> str:
    """A trace's name without what its kind and its compression put at the end; None for the demonstration."""
    if trace is None:
        return "demonstration"
    name = trace.name
    for end in (".gz", ".zst", ".jsonl", ".trace"):
        name = name.removesuffix(end)
    return name or "session"


def _deliver(text: str, out: Path | None, force: bool) -> None:
    from inspector.display import visible
    from inspector.scales import size

    if out is None:
        output().write(text)
        return
    raw = text.encode()
    with replacing(out, force) as file:
        file.write(raw)
    if sys.stderr is not None:
        sys.stderr.write(f"{visible(str(out))}: {size(len(raw))}\n")


SUBCOMMAND = Subcommand(
    parser, run, "a recorded session or a lesson as a web page, Markdown, CSV, text or SVG"
)
