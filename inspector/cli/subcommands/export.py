"""`inspector export`: a trace as a document, without a model and without MLX."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

from engine.errors import EngineError
from engine.paths import free, replacing, typed
from inspector.cli.exit import OK, output
from inspector.cli.flags import EXIT_STATUS, Parser, command_parser
from inspector.cli.subcommand import Subcommand

NAMES = ("html", "md", "csv", "txt", "svg")
STDOUT = "-"
SIZE = (120, 40)
SMALLEST, LARGEST = (40, 10), (500, 300)


def parser() -> Parser:
    """The parser of `inspector export`."""
    made = command_parser(
        "export",
        "Write a trace as a document: a web page to share, Markdown, a CSV table of the tokens, the plain "
        "text, or a picture of the screen. Everything foreign in it stays text.",
        "In the CSV, a cell of text that begins with = + - @ or an apostrophe gets an apostrophe in front, so "
        "that no spreadsheet runs it. Notes, captions and bookmarks are told; the model's directory is not. "
        f"{EXIT_STATUS}",
    )
    add = made.add_argument
    file = "a trace, or a name that `inspector sessions` lists; without one the demonstration"
    add("trace", metavar="FILE", nargs="?", help=file)
    to = "what to write (default: what the end of OUT says)"
    add("--to", type=format_name, choices=NAMES, metavar="FORMAT", help=f"{', '.join(NAMES)}: {to}")
    out = "where; - is standard output (default: FILE's name in this directory)"
    add("--output", "-o", metavar="OUT", help=out)
    node = "look at this node, or where this named branch begins, on a path through it"
    add("--node", metavar="N|NAME", help=node)
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
    from inspector.recordings import sessions
    from inspector.tools.export import FORMATS
    from inspector.tools.export.recording import line, read

    trace = None if args.trace is None else sessions.find(args.trace)
    name, out = _target(args, trace)
    if out is not None:
        free(out, args.force)
    recording = read(DEMONSTRATION if trace is None else trace)
    if args.node is not None:
        line(recording, args.node)
    if name == "svg":
        from inspector.cli.picture import picture

        document = picture(recording, args.size, args.light)
    else:
        document = FORMATS[name].make(recording)
    _deliver(document, out, args.force)
    return OK


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


SUBCOMMAND = Subcommand(parser, run, "a recorded session as a web page, Markdown, CSV, text or SVG")
