"""`inspector replay`, `export` and `open`: recorded sessions, and requests to servers.

Recordings are shown and exported without MLX; a server's reply is compared with what the engine computes.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from msgspec.structs import replace

from engine.errors import EngineError, PromptError
from engine.files import free, replacing, typed
from engine.models_on_disk.models import all_places
from engine.protocol import Command, Configure, Failure, Prefill, Record
from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector.blocks.blocks import Column, number
from inspector.cli import flags, screen
from inspector.cli.arguments import CliRequest, load_settings, place
from inspector.cli.exit import OK, note, output, table, write
from inspector.cli.writers.json_lines import json_line
from inspector.demo import DEMONSTRATION, LESSON, SCENES
from inspector.keys import key_for
from inspector.lessons import catalogue
from inspector.lessons.catalogue import Listed
from inspector.lessons.errors import LessonError
from inspector.recordings import sessions
from inspector.served.opening import ServedFile, exchanges_of, opened_request
from inspector.version import program

if TYPE_CHECKING:
    from inspector.cli.driver import Summary
    from inspector.served.replies import Exchange
    from inspector.served.rescoring import Rescored, Rescoring

SPEEDS = {"0.25": 0.25, "0.5": 0.5, "1": 1.0, "2": 2.0, "5": 5.0, "10": 10.0, "max": math.inf}


def replay_parser() -> flags.Parser:
    description = "Show a recorded session on the same screen, without a model: walk, compare, search, play. " \
                  f"{key_for('go_live')} loads the recorded model and continues live."  # fmt: skip
    epilog = f"Keys: {key_for('step')} shows the next step, {key_for('run')} plays, {key_for('faster')} " \
             f"and {key_for('slower')} change the speed, backspace goes back. {flags.EXIT_STATUS}"  # fmt: skip
    return flags.command_parser("replay", description, epilog, {
        "trace [FILE]": "a recording, a name that `inspector sessions` lists, or batch or second-model, which come "
                        "with the program (default: the demonstration)",
        "--play": "play it from its beginning; otherwise it opens at its end",
        "--speed X": (f"multiple of the recorded pace: {', '.join(SPEEDS)}", {"choices": SPEEDS, "default": "1"}),
        "--follow": "follow a recording that another program is writing; you can look around, and change nothing",
        "--no-save": "do not save what you add when you continue live",
        **flags.THEME,
    })  # fmt: skip


def named(name: str | None) -> tuple[Path, bool]:
    """The recording with a name, and whether it comes with the program.

    Args:
        name: A path, a session's name, or that of a recording that comes with the program; None for the demonstration.

    Raises:
        EngineError: There is no such recording.
    """
    if name is None:
        return DEMONSTRATION, True
    if name in SCENES and not os.path.exists(name):
        return SCENES[name], True
    return sessions.find(name), False


def run_replay(args: Namespace) -> int:
    """Run `inspector replay`.

    Raises:
        EngineError: There is no such file, it is not a recording, or there is no terminal.
    """
    from inspector.session.playback import Opening, checked

    if args.follow and args.play:
        hint = f"Leave --play out: {key_for('run')} plays it later."
        raise EngineError("--follow shows what comes, so it can't --play from the start.", hint)
    growing = sessions.find(args.trace or "", growing=True) if args.follow else None
    path, shipped = (growing, False) if growing is not None else named(args.trace)
    path, speed = checked(path), SPEEDS[args.speed]
    screen.check_terminal(instead="Without one, use inspector export.")
    from inspector.config.preferences import SavedPreferences
    from inspector.views import FOLLOWING, TOOLS, with_lesson

    if args.follow:
        look, opening = SavedPreferences().read().values, Opening(path, follow=True, speed=speed)
        return screen.run_app(trace=opening, theme=args.theme or look.theme, begins=look, tools=FOLLOWING)
    opening = Opening(path, play=args.play or shipped, speed=speed)
    tools = with_lesson(catalogue.listed(LESSON)) if args.trace is None else TOOLS
    return screen.run_app(save=screen.saved_in(args), trace=opening, theme=args.theme, tools=tools)


# ---- inspector export ------------------------------------------------------------------------


Found = TypeVar("Found")
STDOUT = "-"
SMALLEST, LARGEST = (40, 10), (500, 300)


def export_parser() -> flags.Parser:
    """Write a recording as a document: a web page to share, Markdown, a CSV table of the tokens, the plain text, or a
    picture of the screen. Markup in the recorded texts is escaped. The web page of a lesson asks, waits and reveals,
    without a network or a model."""
    epilog = "In the CSV, a cell of text that begins with = + - @ or an apostrophe gets an apostrophe in front, so " \
             "that no spreadsheet runs it. Documents contain notes, captions and bookmarks, but not the model's " \
             f"directory. {flags.EXIT_STATUS}"  # fmt: skip
    return flags.command_parser("export", export_parser.__doc__, epilog, {
        "trace [FILE]": "a recording, a name that `inspector sessions` lists, batch or second-model, which come with "
                        "the program, or a lesson by its number, name or .md file with its recording beside it "
                        "(default: the demonstration)",
        "--to FORMAT": (f"{', '.join(flags.DOCUMENTS)}: the kind of document (default: by the ending of OUT)",
                        {"type": format_name}),
        "--output -o OUT": "file to write; - is standard output (default: FILE's name, in this directory)",
        "--node N|NAME": "the path to node N, or to the first node of the branch NAME, and on along the oldest branch",
        "--lesson LESSON": "for a web page: the lesson that was recorded in it, by its number, name or .md file",
        "--force": "replace the file if it exists",
        "picture of the screen:": "",
        "--size COLUMNSxROWS": ("size of the terminal", {"type": dimensions, "default": "120x40"}),
        "--light": "use the light theme",
    })  # fmt: skip


def format_name(text: str) -> str:
    """The name of a format that was typed or that a file's name ends with: `md` for `markdown`."""
    name = text.lower()
    return {"htm": "html", "markdown": "md", "text": "txt"}.get(name, name)


def dimensions(text: str) -> tuple[int, int]:
    """Parse columns and rows, such as `120x40`.

    Raises:
        ArgumentTypeError: The text has another form, or they are out of range.
    """
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text.strip().lower())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(low <= side <= high for low, side, high in zip(SMALLEST, size, LARGEST, strict=True)):
        raise ArgumentTypeError(f"must be COLUMNSxROWS, from 40x10 to 500x300, not {text!r}")
    return size


def run_export(args: Namespace) -> int:
    from inspector.documents.exports import EXPORTS
    from inspector.export.documents import FORMATS
    from inspector.export.lesson_page import page
    from inspector.export.recording import line, read
    from inspector.scales import size

    listed, trace = _source(args)
    name, out = _target(args, trace)
    if out is not None:
        free(out, args.force)
    if name == "html" and trace is not None and listed is None:
        listed = _read_lesson(str(trace), lambda: catalogue.of_recording(trace))
    if name == "html" and listed is not None:
        if args.node is not None:
            raise EngineError("--node is for sessions: a lesson's page has all its cards.", "Leave it out.")
        lesson, recorded = listed.lesson, trace or listed.trace
        document = _read_lesson(str(listed.path), lambda: page(lesson, recorded, EXPORTS))
    elif args.lesson is not None:
        hint = "Add --to html, or leave --lesson out."
        raise EngineError(f"--lesson is for web pages, and this is {name}.", hint)
    else:
        if listed is not None:
            note(f"Only --to html has the lesson's cards; this {name} is of its recording.")
        recording = read(trace or DEMONSTRATION)
        recording.parts = EXPORTS
        if args.node is not None:
            line(recording, args.node)
        picture = name == "svg"
        document = screen.picture(recording, args.size, args.light) if picture else FORMATS[name](recording)
    if trace is None and args.lesson is None:
        note("No FILE was given, so this is the demonstration that comes with the program.")
    if out is None:
        output().write(document)
        return OK
    raw = document.encode()
    with replacing(out, args.force) as file:
        file.write(raw)
    note(f"{out}: {size(len(raw))}")
    return OK


def _source(args: Namespace) -> tuple[Listed | None, Path | None]:
    """The lesson, if one is named, and the recording; no recording for the demonstration."""
    name = args.trace
    listed = None if args.lesson is None else _read_lesson(args.lesson, lambda: catalogue.find(args.lesson))
    if name is None:
        return listed, listed.trace if listed is not None else None
    if catalogue.is_name(name) and (name.endswith(".md") or not os.path.isfile(name)):
        own = _read_lesson(name, lambda: catalogue.find(name))
        return listed or own, own.trace
    return listed, named(name)[0]


def _read_lesson(name: str, read: Callable[[], Found]) -> Found:
    """Call `read`; an error in a lesson's file is reported with its line."""
    try:
        return read()
    except LessonError as error:
        raise EngineError(error.at(name)) from error


def _target(args: Namespace, trace: Path | None) -> tuple[str, Path | None]:
    """The format, and the file to write; None for standard output."""
    given = typed(args.output) if args.output not in (None, STDOUT) else None
    name = args.to or format_name(given.suffix.lstrip(".") if given else "")
    if name not in flags.DOCUMENTS:
        what = f"The end of {given} names no format." if given else "What to write was not said."
        what = f"There is no format {name}." if args.to else what
        raise EngineError(what, f"Add --to: {', '.join(flags.DOCUMENTS)}.")
    if args.output == STDOUT:
        return name, None
    return name, given or typed(f"{stem(trace)}.{name}")


def stem(trace: Path | None) -> str:
    """A recording's name without its endings; `demonstration` for None."""
    if trace is None:
        return "demonstration"
    return trace.name.removesuffix(".zst").removesuffix(".trace") or "session"


# ---- inspector open --------------------------------------------------------------------------


def open_parser() -> flags.Parser:
    """Open a request to a server as a session with its conversation, tools, settings and seed. The server's reply
    becomes a branch, token by token, beside the tokens that are computed here."""
    epilog = "FILE is a HAR file of mitmdump or a browser, the body of a request to an API like OpenAI's, an object " \
             f'{{"request": ..., "response": ...}}, a reply, or the output of a batch. {flags.EXIT_STATUS}'  # fmt: skip
    return flags.command_parser("open", open_parser.__doc__, epilog, {
        "file FILE": "what to open",
        "number [N]": ("number of the request in a recording; without it the requests are listed, if there are several",
                       {"type": flags.whole}),
        "--no-model": "show only the reply, as a recording made from its logprobs; a reply without a request always "
                      "opens that way",
        "--output -o RECORDING": "write that recording instead of opening the screen",
        "--force": "replace the file if it exists",
        "--check": "without the screen, compare each reply, or that of request N, with the tokens computed here",
        **flags.jsonl("table"),
        **flags.LOAD,
        "session:": "",
        "--no-save": "do not save the session",
        **flags.THEME,
    })  # fmt: skip


def run_open(args: Namespace) -> int:
    """Run `inspector open`.

    Raises:
        EngineError: The file can't be read or has no request, there is no such number, or no model is known.
    """
    from inspector.served.listing import listed_request, listed_row

    exchanges = every = exchanges_of(args.file)
    if args.number is not None:
        exchanges = [each for each in every if each.number == args.number]
    if not exchanges:
        hint = f"They go from {every[0].number} to {every[-1].number}."
        raise PromptError(f"There is no request {args.number}.", hint)
    if args.check:
        return _check(args, exchanges)
    if len(exchanges) > 1:
        lines = (json_line(listed_request(each)).rstrip() for each in exchanges)
        columns = number("number"), Column("time", priority=2), Column("kind", priority=3), Column("reply")
        rows = map(listed_row, exchanges)
        write(lines if args.jsonl else table((*columns, Column("asked", least=8)), rows, fit=True))
        note(f"Open one of them: inspector open FILE {exchanges[-1].number}")
        return OK
    if args.no_model or exchanges[0].body is None:
        return _replay(args, exchanges[0])
    opened = opened_request(ServedFile(args.file, tuple(every)), exchanges[0])
    load, request = loaded_for(args, exchanges), opened.request
    screen.check_terminal(instead="Without one, compare its reply with --check.")
    from inspector.views import with_request

    prefill = Prefill(request.prompt, request.chat, messages=request.messages, options=request.options)
    save, tools = screen.saved_in(args), with_request(opened)
    return screen.run_app(load, request.settings, prefill=prefill, save=save, tools=tools, theme=args.theme)


def _replay(args: Namespace, exchange: Exchange) -> int:
    """Show a reply without its model, from a temporary recording; or write that recording."""
    from inspector.served.reply_recording import recording_of
    from inspector.session.playback import Opening, checked

    entries, path = recording_of(exchange), place(args.output, args.force, "the recording does")
    if path is not None:
        save_as(path, entries, program(), args.force)
        return OK
    screen.check_terminal(instead="Without one, write it with -o RECORDING.")
    with tempfile.TemporaryDirectory(prefix="inspector-") as folder:
        path = Path(folder) / "reply.trace"
        save_as(path, entries, program())
        return screen.run_app(trace=Opening(checked(path)), theme=args.theme)


# ---- checking all replies ---------------------------------------------------------------------------


def _check(args: Namespace, exchanges: Sequence[Exchange]) -> int:
    from inspector.cli.driver import run

    load = loaded_for(args, exchanges)
    checks = Checks(ServedFile(args.file, tuple(exchanges)), output(), args.jsonl)
    request = CliRequest(load, Settings(), jsonl=args.jsonl)
    return run(request, checks, after=checks.commands, forgives=checks.forgives)


def loaded_for(args: Namespace, exchanges: Sequence[Exchange]) -> LoadSettings:
    """The settings of the model that answered, which the flags or the requests name.

    Raises:
        PromptError: Neither names one, or the requests name one that isn't on the disk.
    """
    load = load_settings(args)
    if args.model is not None:
        return load
    bodies = (each.body for each in exchanges if isinstance(each.body, dict))
    named = next((name for body in bodies if isinstance(name := body.get("model"), str)), "")
    there = (each for each in all_places() if not each.problem)
    if named and any(named in (each.name, each.hub_id, str(each.path)) for each in there):
        return replace(load, model=named)
    which = f"asks for {named[:80]!r}, which isn't on the disk" if named else "names no model"
    raise PromptError(f"The request {which}.", "Give the model that answered with --model.")


class Checks:
    """Recomputes replies one after another, and writes the result of each.

    Args:
        file: The requests and replies.
        out: Receives the results; the totals go to standard error.
        jsonl: Whether to write JSON lines.
    """

    def __init__(self, file: ServedFile, out: TextIO, jsonl: bool) -> None:
        self._file, self._out, self._jsonl = file, out, jsonl
        self._rescoring: Rescoring | None = None
        self._failure: Failure | None = None
        self._results: list[Rescored] = []

    def take(self, record: Record, text: str) -> None:
        """Compare a record with the reply that is being recomputed, or keep the failure."""
        if isinstance(record, Failure):
            self._failure = record
        elif self._rescoring is not None:
            self._rescoring.take(record)

    def forgives(self, failure: Failure) -> bool:
        """True if the next reply is checked despite a failure: it is not a fault of the program."""
        return failure.expected and self._rescoring is not None

    def commands(self, summary: Summary) -> Iterator[Command]:
        """The commands that recompute each reply, one after another; the summary has the facts of the model."""
        from inspector.served.rescoring import Rescoring

        assert summary.facts is not None
        for exchange in self._file.exchanges:
            try:
                opened = opened_request(self._file, exchange)
            except EngineError as error:
                self._write(exchange, None, str(error))
                continue
            request = opened.request.within(summary.facts.vocabulary)
            self._failure, self._rescoring = None, Rescoring(request, opened.reply)
            self._rescoring.take(summary.facts)
            yield Configure(request.settings)
            yield request.prompted(echo=False)
            if self._failure is None:
                yield from self._rescoring.commands()
            if self._failure is None:
                self._results.append(result := self._rescoring.result())
                self._write(exchange, result, "")
            else:
                why = f"{self._failure.message} {self._failure.hint}".rstrip()
                self._write(exchange, None, why)

    def _write(self, exchange: Exchange, result: Rescored | None, why: str) -> None:
        from inspector.served.listing import checked_line, checked_reply

        if self._jsonl:
            self._out.write(json_line(checked_reply(exchange, result, why)))
        else:
            alone = len(self._file.exchanges) == 1
            self._out.write(checked_line(exchange, result, why, detailed=alone))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the totals of several replies."""
        from inspector.served.listing import sums

        if len(self._file.exchanges) > 1:
            sys.stderr.write(sums(self._results, len(self._file.exchanges)))
