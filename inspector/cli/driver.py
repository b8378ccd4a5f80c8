"""Drives the engine without a screen: load, prefill, then a subcommand's commands. Imports no Textual and no MLX."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Protocol

from engine import protocol
from engine.frozen import frozen
from engine.protocol import Command, Record
from engine.thread import EngineThread
from inspector.cli.arguments import Request
from inspector.cli.exit import BAD_INPUT, FAULT, INTERRUPTED, OK
from inspector.cli.summary import Summary, Tally
from inspector.session.client import Backend

MakeBackend = Callable[[Callable[[Record], None]], Backend]


class Writer(Protocol):
    """Where the records go: one of those in `inspector.cli.writers`."""

    def take(self, record: Record, text: str) -> None:
        """Take in a record, with the text of the completion that it made certain."""

    def end(self, summary: Summary) -> None:
        """Write what comes last."""


@frozen
class Outcome:
    """How it went, for what ends the process."""

    code: int
    """Exit status."""
    failure: protocol.Failure | None = None
    """What went wrong, if something did."""
    joined: bool = True
    """Whether the engine's thread ended: if it didn't, the process must end by `os._exit`."""


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


class Failed(Exception):
    """A command could not be carried out."""

    def __init__(self, failure: protocol.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def drive(
    request: Request,
    writer: Writer,
    then: Sequence[Command],
    make_backend: MakeBackend = EngineThread,
    loads: bool = True,
    after: Callable[[], Iterable[Command]] = tuple,
) -> Outcome:
    """Load, prefill and carry out more commands, handing every record to a writer on the way.

    Args:
        request: The model, the settings and the prompt.
        writer: Receives the records and the summary.
        then: Commands after the prompt.
        make_backend: Makes the backend from the function that receives its records.
        loads: Whether the model is loaded and the prompt goes through it; else the other commands are all there is.
        after: Called when all these have ended, for commands that depend on what came of them; the next one is asked
            for when the one before has ended.

    Returns:
        How it went. Whatever happened, the backend was closed.
    """
    driver = Driver(request, writer, [*(opening(request) if loads else ()), *then], make_backend, after)
    code, failure = FAULT, None
    try:
        with driver.interruptible():
            code, failure = driver.run()
    except KeyboardInterrupt:  # pressed again, before the first was answered
        code = INTERRUPTED
    finally:
        joined = driver.close()
    return Outcome(code, failure, joined)


def opening(request: Request) -> Iterator[Command]:
    """The commands before those of a subcommand: its model, settings and prompt."""
    yield protocol.Load(request.load)
    yield protocol.Configure(request.settings)
    if request.prompt or request.messages:
        yield protocol.Prefill(
            request.prompt,
            request.chat,
            request.system,
            request.echo,
            messages=request.messages,
            options=request.options,
            cache_file=request.cache_file,
            cached_text=request.cached_text,
        )


class Driver:
    """Sends one command after another, and waits for the end of each.

    Args:
        request: Its settings are those of the summary.
        writer: Receives the records and the summary.
        sent: All commands.
        make_backend: Makes the backend.
        after: More commands, asked for once those have ended.
    """

    def __init__(
        self,
        request: Request,
        writer: Writer,
        sent: Sequence[Command],
        make_backend: MakeBackend,
        after: Callable[[], Iterable[Command]] = tuple,
    ) -> None:
        self._commands, self._after = sent, after
        self._writer = writer
        runs = any(isinstance(command, protocol.Run | protocol.RunRounds) for command in sent)
        self._tally = Tally(request.settings, runs)
        self._inbox: SimpleQueue[Record | None] = SimpleQueue()  # None: interrupted
        self._backend = make_backend(self._inbox.put)
        self._command: Command | None = None

    def run(self) -> tuple[int, protocol.Failure | None]:
        """Carry out one command after another; returns the exit status and the failure, if there was one."""
        try:
            return self._run()
        except Failed as failed:
            return BAD_INPUT if failed.failure.expected else FAULT, failed.failure
        except BrokenPipeError:  # the reader has enough
            return OK, None
        except OSError as error:
            message = f"The output can't be written: {error.strerror or error}."
            return BAD_INPUT, protocol.Failure("Write", message, "Free some space, or write elsewhere.")

    def _run(self) -> tuple[int, None]:
        code = OK
        try:
            self._backend.start()
            for command in self._commands:
                self._carry_out(command)
            for command in self._after():
                self._carry_out(command)
        except Interrupted:
            code = INTERRUPTED
        self._writer.end(self._tally.summary())
        return code, None

    def _carry_out(self, command: Command) -> None:
        self._command = command
        self._backend.send(command)
        while not isinstance(record := self._next(), protocol.Ended):
            if isinstance(record, protocol.Failure):
                raise Failed(record)
            self._writer.take(record, self._tally.take(record))

    def _next(self) -> Record:
        record = self._inbox.get()
        if record is None:
            raise Interrupted
        return record

    def close(self) -> bool:
        """Close the backend; returns whether it ended in time."""
        try:
            return self._backend.close()
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
            self._backend.send(protocol.Cancel(self._command.id))
        self._inbox.put(None)
