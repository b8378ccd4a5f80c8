"""`inspector export`: a trace as a document, without a model and without MLX."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.records import Step
from inspector.cli.flags import Parser

if TYPE_CHECKING:
    from inspector.state.timeline import Timeline
    from inspector.tools.export import Recording

NAMES = ("html", "md", "csv", "txt", "svg")
STDOUT = "-"
SIZE = (120, 40)
SMALLEST, LARGEST = (40, 10), (500, 300)


def parser() -> Parser:
    """The parser of `inspector export`."""
    made = Parser(
        prog="inspector export",
        description="Write a trace as a document: a web page to share, Markdown, a CSV table of the tokens, the plain "
        "text, or a picture of the screen. Everything foreign in it stays text.",
        epilog="In the CSV, a cell of text that begins with = + - @ or an apostrophe gets an apostrophe in front, so "
        "that no spreadsheet runs it. Notes, captions and bookmarks are told; the model's directory is not. "
        "Exit status: 0 done, 1 a fault of the program, 2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add(
        "file",
        metavar="FILE",
        nargs="?",
        help="a trace; without one the demonstration that comes with the program",
    )
    add("--to", choices=NAMES, help="what to write (default: what the end of OUT says)")
    add(
        "--output",
        "-o",
        metavar="OUT",
        help="where; - is standard output (default: FILE's name in this directory)",
    )
    add(
        "--node",
        metavar="N|NAME",
        help="look at this node, or where this named branch begins, on a path through it",
    )
    add("--force", action="store_true", help="replace a file that is there")
    picture = made.add_argument_group("picture of the screen")
    add = picture.add_argument
    add(
        "--size",
        type=dimensions,
        default=SIZE,
        metavar="COLUMNSxROWS",
        help="of the terminal (default: 120x40)",
    )
    add("--light", action="store_true", help="in the light theme")
    return made


def dimensions(text: str) -> tuple[int, int]:
    """Columns and rows as they are typed: `120x40`.

    Raises:
        ArgumentTypeError: They are none, or out of range.
    """
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text.strip().lower())
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(low <= each <= high for low, each, high in zip(SMALLEST, size, LARGEST, strict=True)):
        raise ArgumentTypeError(f"must be COLUMNSxROWS, from 40x10 to 500x300, not {text!r}")
    return size


def run(args: Namespace) -> int:
    """Write the document.

    Raises:
        EngineError: The trace can't be read, or the document not be written.
    """
    from inspector.demo import DEMONSTRATION
    from inspector.tools.export import FORMATS
    from inspector.tools.export.place import free
    from inspector.tools.export.recording import line, read

    name, out = _target(args)
    if out is not None:
        free(out, args.force)
    recording = read(args.file or DEMONSTRATION)
    if args.node is not None:
        line(recording, args.node)
    made = picture(recording, args.size, args.light) if name == "svg" else FORMATS[name].make(recording)
    _deliver(made, out, args.force)
    return 0


def _target(args: Namespace) -> tuple[str, Path | None]:
    """Format and file; None for standard output."""
    given = Path(args.output) if args.output not in (None, STDOUT) else None
    name = args.to or (given.suffix.lstrip(".").lower() if given else "")
    name = {"htm": "html", "markdown": "md", "text": "txt"}.get(name, name)
    if name not in NAMES:
        what = f"The end of {given} names no format." if given else "What to write was not said."
        raise EngineError(what, f"Add --to: {', '.join(NAMES)}.")
    if args.output == STDOUT:
        return name, None
    return name, given or Path(f"{stem(args.file)}.{name}")


def stem(file: str | None) -> str:
    """A trace's name without what its kind and its compression put at the end."""
    if file is None:
        return "demonstration"
    name = Path(file).name
    for end in (".gz", ".zst", ".jsonl", ".trace"):
        name = name.removesuffix(end)
    return name or "session"


def _deliver(text: str, out: Path | None, force: bool) -> None:
    from inspector.cli.exit import output
    from inspector.display import visible
    from inspector.scales import size
    from inspector.tools.export.place import write

    if out is None:
        output().write(text)
        return
    written = write(out, text, force)
    if sys.stderr is not None:
        sys.stderr.write(f"{visible(str(out))}: {size(written)}\n")


# ---- the screen -------------------------------------------------------------------------------


class Still:
    """An engine that does nothing: what is shown was recorded."""

    def start(self) -> None:
        """Nothing to start."""

    def send(self, command: object) -> None:
        """Nothing takes it."""

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing to end."""
        return True


def picture(recording: Recording, size: tuple[int, int] = SIZE, light: bool = False) -> str:
    """The screen as it shows a recording, as SVG.

    Args:
        recording: Its path is shown, and the token that was chosen is looked at, or else the one to come.
        size: Columns and rows of the terminal.
        light: In the light theme.
    """
    with _full_colour():
        return asyncio.run(_picture(recording, size, light))


@contextmanager
def _full_colour() -> Iterator[None]:
    """A picture has all colours, whatever the terminal can show that it is asked for in."""
    before = dict(os.environ)
    os.environ.update(COLORTERM="truecolor", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _picture(recording: Recording, size: tuple[int, int], light: bool) -> str:
    from engine.breakpoints import Breakpoints
    from engine.settings import LoadSettings, Settings
    from inspector.app import InspectorApp
    from inspector.tools.export import figures
    from inspector.tools.export.svg import alone

    settings = recording.settings or Settings()
    app = InspectorApp(recording.load or LoadSettings(), settings, engine=Still(), breakpoints=Breakpoints())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.theme = "textual-light" if light else "textual-dark"
        client = app.controller.client
        client.outstanding.clear()
        client.timeline = standing(recording)
        app.main.show()
        await pilot.pause()
        return alone(app.export_screenshot(title=figures.title(recording)))


def standing(recording: Recording) -> Timeline:
    """The timeline on the path that is told, with the token looked at that was asked for."""
    timeline, items = recording.timeline, recording.items
    if items and items[-1].node != timeline.tip:
        timeline.items, timeline.generation = items, timeline.generation + 1
        last = items[-1]
        if isinstance(last, Step):
            timeline.next, timeline.kv, timeline.memory = last.next, last.kv, last.memory
        elif timeline.prefilled is not None:
            timeline.next, timeline.kv = timeline.prefilled.next, timeline.prefilled.kv
    places = [place for place, item in enumerate(items) if item.node == recording.chosen]
    timeline.select(places[0] if places else None)
    return timeline
