"""`inspector generate`: the engine without a screen, to JSON lines or plain text. Imports no Textual and no MLX."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import Protocol, TextIO

from engine import commands, records
from engine.commands import Command
from engine.records import Record
from engine.thread import EngineThread
from inspector.cli.arguments import Request
from inspector.cli.summary import Summary, Tally

OK, FAULT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class Engine(Protocol):
    """What is asked of `engine.thread.EngineThread`."""

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def close(self, timeout: float = 2.0) -> bool: ...


MakeEngine = Callable[[Callable[[Record], None]], Engine]


class Writer(Protocol):
    """Where the records go: `inspector.cli.jsonl.JsonLines` or `inspector.cli.plain.PlainText`."""

    def take(self, record: Record, text: str) -> None: ...

    def end(self, summary: Summary) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation went, for the one who ends the process."""

    code: int
    """Exit status."""
    failure: records.Failure | None = None
    """What to tell the person."""
    joined: bool = True
    """Whether the engine's thread ended: if it didn't, the process must end by `os._exit`."""


class Interrupted(Exception):
    """The person pressed Ctrl-C."""


class Failed(Exception):
    """A command could not be carried out."""

    def __init__(self, failure: records.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    if request.jsonl:
        from inspector.cli.jsonl import JsonLines

        return JsonLines(out, request)
    from inspector.cli.plain import PlainText

    return PlainText(out, err, request)


def generate(
    request: Request,
    writer: Writer,
    make_engine: MakeEngine = EngineThread,
    last: Command | Sequence[Command] | None = None,
) -> Outcome:
    """Load, prefill and run to a stop, handing everything to a writer on the way.

    Args:
        request: What to do.
        writer: Receives the records and the summary.
        make_engine: Makes the engine from the function that receives its records.
        last: What to do after the prompt; None to run to a stop.

    Returns:
        How it went. Whatever happened, the engine was closed.
    """
    asked = [last] if isinstance(last, Command) else [commands.Run()] if last is None else last
    run = Generation(request, writer, make_engine, asked)
    code, failure = FAULT, None
    try:
        with run.interruptible():
            code, failure = run.run()
    except KeyboardInterrupt:  # pressed again, before the first was answered
        code = INTERRUPTED
    finally:
        joined = run.close()
    return Outcome(code, failure, joined)


class Generation:
    """One generation from the model's name to the last token.

    Args:
        request: What to do.
        writer: Receives the records and the summary.
        make_engine: Makes the engine.
        last: What to do after the prompt.
    """

    def __init__(
        self, request: Request, writer: Writer, make_engine: MakeEngine, last: Sequence[Command]
    ) -> None:
        self._last = last
        self._request = request
        self._writer = writer
        self._tally = Tally(request.settings)
        self._inbox: SimpleQueue[Record | None] = SimpleQueue()  # None: interrupted
        self._engine = make_engine(self._inbox.put)
        self._command: Command | None = None

    def run(self) -> tuple[int, records.Failure | None]:
        """Carry out one command after another; returns the exit status and the failure, if there was one."""
        try:
            return self._run()
        except Failed as failed:
            return BAD_INPUT if failed.failure.expected else FAULT, failed.failure
        except BrokenPipeError:  # the reader has enough
            return OK, None
        except OSError as error:
            message = f"The output can't be written: {error.strerror or error}."
            return BAD_INPUT, records.Failure("Write", message, "Free some space, or write elsewhere.")

    def _run(self) -> tuple[int, None]:
        code = OK
        try:
            self._engine.start()
            for command in self._commands():
                self._carry_out(command)
        except Interrupted:
            code = INTERRUPTED
        self._writer.end(self._tally.summary())
        return code, None

    def _commands(self) -> Iterator[Command]:
        asked = self._request
        yield commands.Load(asked.load)
        yield commands.Configure(asked.settings)
        if asked.prompt:
            yield commands.Prefill(asked.prompt, asked.chat, asked.system, asked.echo)
        yield from self._last

    def _carry_out(self, command: Command) -> None:
        self._command = command
        self._engine.send(command)
        while not isinstance(record := self._next(), records.Ended):
            if isinstance(record, records.Failure):
                raise Failed(record)
            self._writer.take(record, self._tally.take(record))

    def _next(self) -> Record:
        record = self._inbox.get()
        if record is None:
            raise Interrupted
        return record

    def close(self) -> bool:
        """End the engine; True when its thread ended in time."""
        try:
            return self._engine.close()
        except KeyboardInterrupt:
            return False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C cancel the running command instead of breaking into whatever is being written.

        A second Ctrl-C breaks in, for a reader that takes nothing. Where the shell had the signal ignored, it stays so.
        """
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if not main or before is signal.SIG_IGN:
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._command is not None:
            self._engine.send(commands.Cancel(self._command.id))
        self._inbox.put(None)
