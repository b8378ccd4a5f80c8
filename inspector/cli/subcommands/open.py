"""`inspector open`: what a server was asked, as a session; what it answered beside what the engine computes."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from msgspec.structs import replace

from engine.errors import EngineError, PromptError
from engine.models_on_disk.models import all_places
from engine.protocol import Command, Configure, Failure, Record
from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector.cli import flags, screen
from inspector.cli.arguments import CliRequest, load_settings
from inspector.cli.exit import OK, note, output, write
from inspector.served.opening import ServedFile, exchanges_of, opened_request
from inspector.version import program

if TYPE_CHECKING:
    from inspector.cli.driver import Summary
    from inspector.served.replies import Exchange, ServedReply
    from inspector.served.rescoring import Rescored, Rescoring


def open_parser() -> flags.Parser:
    """Open a request to a server as a session with its conversation, tools, settings and seed. The server's reply
    becomes a branch, token by token, beside the tokens that are computed here."""
    made = flags.command_parser(
        "open",
        open_parser.__doc__,
        "FILE is a HAR file of mitmdump or a browser, the body of a request "
        f'to an API like OpenAI\'s, an object {{"request": ..., "response": ...}}, a reply, or the output of a batch. '
        f"{flags.EXIT_STATUS}",
    )
    made.add_argument("file", metavar="FILE", help="what to open")
    made.add_argument("number", metavar="N", nargs="?", type=flags.whole, help="number of the request in a recording; "
        "without it the requests are listed, if there are several")  # fmt: skip
    no_model = "show only the reply, as a recording made from its logprobs; a reply without a request always opens so"
    made.add_argument("--no-model", action="store_true", help=no_model)
    out = "write that recording instead of opening the screen"
    made.add_argument("--output", "-o", metavar="RECORDING", help=out)
    made.add_argument("--force", action="store_true", help="replace the file if it exists")
    check = "without the screen, compare each reply, or that of request N, with the tokens computed here"
    made.add_argument("--check", action="store_true", help=check)
    flags.add_jsonl(made, "table")
    flags.add_load(made.add_argument_group("model and cache"))
    session = made.add_argument_group("session")
    session.add_argument("--no-save", action="store_true", help="do not save the session")
    flags.add_theme(session)
    return made


def run_open(args: Namespace) -> int:
    """Run `inspector open`.

    Raises:
        EngineError: The file can't be read or has no request, there is no such number, or no model is known.
    """
    from inspector.cli.writers.json_lines import json_line
    from inspector.served.listing import listed_line, listed_request

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
        write(lines if args.jsonl else map(listed_line, exchanges))
        note(f"Open one of them: inspector open FILE {exchanges[-1].number}")
        return OK
    if args.no_model or exchanges[0].body is None:
        return _replay(args, exchanges[0])
    opened = opened_request(ServedFile(args.file, tuple(every)), exchanges[0])
    load, request = loaded_for(args, exchanges), opened.request
    screen.check_terminal(instead="Without one, compare its reply with --check.")
    from inspector.views import with_request

    return screen.run_app(
        load,
        request.settings,
        prompt=request.prompt,
        chat=request.chat,
        messages=request.messages,
        options=request.options,
        save=screen.saved_in(args),
        tools=with_request(opened),
        theme=args.theme,
    )


def _replay(args: Namespace, exchange: Exchange) -> int:
    """Show a reply without its model, from a recording that lasts as long as the screen; or write that recording."""
    from inspector.cli.driver import place
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


# ---- checking all of them ---------------------------------------------------------------------------


def _check(args: Namespace, exchanges: Sequence[Exchange]) -> int:
    from inspector.cli.driver import run

    load = loaded_for(args, exchanges)
    checks = Checks(ServedFile(args.file, tuple(exchanges)), output(), args.jsonl)
    request = CliRequest(load=load, settings=Settings(), prompt="", chat=False, jsonl=args.jsonl)
    return run(request, checks, after=checks.commands, forgives=checks.forgives)


def loaded_for(args: Namespace, exchanges: Sequence[Exchange]) -> LoadSettings:
    """The model that answered, as the flags or the requests name it.

    Raises:
        PromptError: Neither does.
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
    """Computes replies again one after another, and writes what each came to.

    Args:
        file: What was asked and answered.
        out: Receives it; the sums go to standard error.
        jsonl: Whether as JSON lines.
    """

    def __init__(self, file: ServedFile, out: TextIO, jsonl: bool) -> None:
        self._file, self._out, self._jsonl = file, out, jsonl
        self._rescoring: Rescoring | None = None
        self._failure: Failure | None = None
        self._results: list[Rescored] = []

    def take(self, record: Record, text: str) -> None:
        """Compare what a record says with the reply that is computed again, or note why one can't be."""
        if isinstance(record, Failure):
            self._failure = record
        elif self._rescoring is not None:
            self._rescoring.take(record)

    def forgives(self, failure: Failure) -> bool:
        """True if the next one is checked after the failure of one: the program isn't at fault."""
        return failure.expected and self._rescoring is not None

    def commands(self, summary: Summary) -> Iterator[Command]:
        """The commands of each, one after another; the summary has the facts of the model."""
        from inspector.served.rescoring import Rescoring

        assert summary.facts is not None
        for exchange in self._file.exchanges:
            try:
                opened = opened_request(self._file, exchange)
            except EngineError as error:
                self._write(exchange, None, None, str(error))
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
                self._write(exchange, opened.reply, result, "")
            else:
                why = f"{self._failure.message} {self._failure.hint}".rstrip()
                self._write(exchange, opened.reply, None, why)

    def _write(
        self, exchange: Exchange, reply: ServedReply | None, result: Rescored | None, why: str
    ) -> None:
        from inspector.cli.writers.json_lines import json_line
        from inspector.served.listing import checked_line, checked_reply

        if self._jsonl:
            self._out.write(json_line(checked_reply(exchange, reply, result, why)))
        else:
            alone = len(self._file.exchanges) == 1
            self._out.write(checked_line(exchange, reply, result, why, detailed=alone))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the sums."""
        from inspector.served.listing import sums

        if len(self._file.exchanges) > 1:
            sys.stderr.write(sums(self._results, len(self._file.exchanges)))
