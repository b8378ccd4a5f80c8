"""Drives the engine without a screen: load, prefill, then a subcommand's commands. Imports no Textual and no MLX.

What happens goes to a writer, and is kept as a recording if one is wanted, so that it opens on the screen:
`inspector score FILE -o OUT`, `inspector replay OUT`.
"""

from __future__ import annotations

import signal
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.child import EngineProcess
from engine.errors import EngineError
from engine.files import free, typed
from engine.protocol import Command, ModelFacts, Received, Record, Sent
from engine.recording import Entry, save_as, worth_keeping
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from engine.timing import Tpot, tpot
from inspector.cli.arguments import CliRequest
from inspector.cli.exit import BAD_INPUT, FAULT, INTERRUPTED, OK, bad_input, fault, leave_at_once, not_written
from inspector.session.client import Backend
from inspector.state.speculation import Speculation
from inspector.version import program

# ---- what a generation came to ------------------------------------------------------------------


class Completion:
    """The text of a completion as far as it is certain: what may become a stop string is held back.

    Args:
        stops: Stop strings.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        """The text that is certain so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> str:
        """Take in the text of a token; returns what is certain now and was not before."""
        held = self._held + text
        cut = self._begins(held)
        self._held = held[cut:]
        return self._keep(held[:cut])

    def close(self) -> str:
        """No more text comes: returns the rest, without a stop string and what follows it."""
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        rest = self._held[: min(places)] if places else self._held
        self._held = ""
        return self._keep(rest)

    def _keep(self, text: str) -> str:
        if text:
            self._pieces.append(text)
        return text

    def _begins(self, text: str) -> int:
        """Where a stop string, or the beginning of one at the text's end, begins: the earliest place."""
        places = [len(text)]
        for stop in self._stops:
            at = text.find(stop)
            places.append(at if at >= 0 else _partial(text, stop))
        return min(places)


def _partial(text: str, stop: str) -> int:
    """Where the longest end of `text` that is a beginning of `stop` begins; the text's end where there is none."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return len(text) - length
    return len(text)


class Summary(Struct, frozen=True):
    """A generation that ended."""

    reason: protocol.FinishReason
    detail: str
    text: str
    """Of the completion, without the end-of-sequence token and cut before a stop string."""
    pending: bytes
    """Bytes of a character that the last token left unfinished."""
    steps: int
    tpot: Tpot | None
    cold_ms: float | None
    """Of a first step that was a cold start: `tpot` doesn't count it."""
    pipelined: bool
    """True if steps overlapped while they were timed."""
    facts: protocol.ModelFacts | None
    prefilled: protocol.Prefilled | None
    first_token_ms: float | None
    """From the encoded prompt until the first token was there to be written: TTFT and the record."""
    kv: protocol.KVReading | None
    memory: protocol.Memory | None
    speculation: Speculation
    """Rounds of speculative decoding, if there were any."""


class Tally:
    """Adds records up to a summary, keeping no step.

    The first token is known with the prompt's distribution, a forward before its own step is: its text is certain then
    if a run follows, and a run of which nothing else came (it was interrupted) has it as its text.

    Args:
        settings: Their stop strings cut the text.
        runs: Whether a run follows the prompt.
    """

    def __init__(self, settings: Settings, runs: bool = False) -> None:
        self._runs = runs
        self._first: int | None = None
        """Id of the first token, from when its text was taken in until its step."""
        self._begun = time.perf_counter()
        self._first_ms: float | None = None
        self.completion = Completion(settings.stop)
        self.facts: protocol.ModelFacts | None = None
        self.prefilled: protocol.Prefilled | None = None
        self._last: protocol.Step | None = None
        self._finished: protocol.Finished | None = None
        self._steps = 0
        self._ms: list[float] = []
        """Of the steps that are no cold start."""
        self._cold_ms: float | None = None
        self._pipelined = False
        self._speculation = Speculation()

    def take(self, record: protocol.Record) -> str:
        """Take in one record; returns the text of the completion that it made certain."""
        self._speculation.apply(record)
        match record:
            case protocol.ModelFacts():
                self.facts = record
            case protocol.PromptOpened():
                self._begun = time.perf_counter()
            case protocol.Prefilled():
                self.prefilled = record
                self._first_ms = (time.perf_counter() - self._begun) * 1000
                return self._take_first(record)
            case protocol.Step() if self._of_prompt(record):
                self._last = record
            case protocol.Step():
                self._last = record
                self._steps += 1
                if record.ms.cold:
                    self._cold_ms = record.ms.total
                else:
                    self._ms.append(record.ms.total)
                self._pipelined |= record.ms.pipelined
                first, self._first = self._first, None
                return "" if first == record.id or self._ends(record.id) else self.completion.add(record.text)
            case protocol.Finished():
                self._finished = record
                return self.completion.close()
            case _:
                pass
        return ""

    def _take_first(self, prefilled: protocol.Prefilled) -> str:
        """The text of the token that a run begins with; none where the context window has no room for it."""
        picked, window = prefilled.next.picked, self.facts.context_window if self.facts else None
        if not self._runs or self._ends(picked) or len(prefilled.tokens) == window:
            return ""
        self._first = picked
        text = next(candidate.text for candidate in prefilled.next.candidates if candidate.id == picked)
        return self.completion.add(text)

    def _of_prompt(self, step: protocol.Step) -> bool:
        """True if it is a token of the prompt, run again under interventions."""
        tokens = self.prefilled.tokens if self.prefilled is not None else ()
        return step.origin == "intervened" and bool(tokens) and step.position <= tokens[-1].position

    def _ends(self, token: int) -> bool:
        return self.facts is not None and token in self.facts.eos_ids

    def summary(self) -> Summary:
        """Where the generation ended: without a finish reason it was cancelled."""
        self.completion.close()
        finished, latest = self._finished, self._last or self.prefilled
        return Summary(
            reason=finished.reason if finished else "cancelled",
            detail=finished.detail if finished else "",
            text=self.completion.text,
            pending=self._last.pending if self._last else b"",
            steps=self._steps,
            tpot=tpot(self._ms),
            cold_ms=self._cold_ms,
            pipelined=self._pipelined,
            facts=self.facts,
            prefilled=self.prefilled,
            first_token_ms=self._first_ms,
            kv=latest.kv if latest else None,
            memory=latest.memory if latest else None,
            speculation=self._speculation,
        )


# ---- commands carried out -----------------------------------------------------------------------

MakeBackend = Callable[[Callable[[Received], None]], Backend]


class Writer(Protocol):
    """Where the records go: one of those in `inspector.cli.writers`."""

    def take(self, record: Record, text: str) -> None:
        """Take in a record, with the text of the completion that it made certain."""

    def end(self, summary: Summary) -> None:
        """Write what comes last."""


class Outcome(Struct, frozen=True):
    """How it went, for what ends the process."""

    code: int
    """Exit status."""
    failure: protocol.Failure | None = None
    """What went wrong, if something did."""
    joined: bool = True
    """True if the engine's thread ended: if it didn't, the process must end by `os._exit`."""


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


class Failed(Exception):
    """A command could not be carried out."""

    def __init__(self, failure: protocol.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def drive(
    request: CliRequest,
    writer: Writer,
    then: Sequence[Command],
    make_backend: MakeBackend | None = None,
    loads: bool = True,
    after: Callable[[], Iterable[Command]] = tuple,
    forgives: Callable[[protocol.Failure], bool] = lambda failure: False,
    awaits: bool = False,
    first: Sequence[Command] = (),
) -> Outcome:
    """Load, prefill and carry out more commands, handing every record to a writer on the way.

    Args:
        request: The model, the settings and the prompt.
        writer: Receives the records and the summary.
        then: Commands after the prompt.
        make_backend: Makes the backend from the function that receives its records; None for the engine's thread, or
            its processes for a model over ranks.
        loads: Whether the model is loaded and the prompt goes through it; else the other commands are all there is.
        after: Called when all these have ended, for commands that depend on what came of them; the next one is asked
            for when the one before has ended.
        forgives: Told of each failure; where it returns True the next command is sent all the same.
        awaits: Whether Ctrl-C waits for what the command still does when it is cancelled: it may save its work.
        first: Commands between the settings and the prompt, with which the text begins.

    Returns:
        How it went. Whatever happened, the backend was closed.
    """
    sent = chain(opening(request, first) if loads else (), then)
    runs = any(isinstance(command, protocol.Run | protocol.RunRounds) for command in then)
    make_backend = make_backend or (EngineProcess if request.load.divided else EngineThread)
    driver = Driver(request, writer, sent, runs, make_backend, after, forgives, awaits)
    code, failure = FAULT, None
    try:
        with driver.interruptible():
            code, failure = driver.run()
    except KeyboardInterrupt:  # pressed again, before the first was answered
        code = INTERRUPTED
    finally:
        joined = driver.close()
    return Outcome(code, failure, joined)


def run(
    args: Namespace,
    request: CliRequest,
    writer: Writer,
    then: Sequence[Command],
    after: Callable[[], Iterable[Command]] = tuple,
    trace: Path | None = None,
    told: Callable[[protocol.Failure], protocol.Failure] = lambda failure: failure,
    forgives: Callable[[protocol.Failure], bool] = lambda failure: False,
    first: Sequence[Command] = (),
) -> int:
    """Drive the engine, and report what failed, if something did.

    Args:
        args: Its `force` says whether a recording replaces a file.
        request: The model, the settings and the prompt.
        writer: Receives the records and the summary.
        then: Commands after the prompt.
        after: As for `drive`.
        trace: Where a recording is written too, from `place`; None for none.
        told: Makes the failure that is reported of the engine's.
        forgives: As for `drive`.
        first: As for `drive`.

    Returns:
        The exit status.

    Raises:
        EngineError: The recording can't be written.
    """
    kept = RecordingWriter(writer, request)
    writes = writer if trace is None else kept
    outcome = drive(request, writes, then, after=after, forgives=forgives, first=first)
    if outcome.failure is not None:
        return exit_status(replace(outcome, failure=told(outcome.failure)))
    if trace is not None:
        save_as(trace, kept.entries, program(), args.force)
    return exit_status(outcome)


def exit_status(outcome: Outcome) -> int:
    """Report what failed, if something did; returns the exit status."""
    code = outcome.code
    if outcome.failure is not None:
        failure = outcome.failure
        message = f"{failure.message} {failure.hint}".rstrip()
        code = bad_input(message) if failure.expected else fault(failure.message, failure.trace)
    if not outcome.joined:
        leave_at_once(code)
    return code


def opening(request: CliRequest, first: Sequence[Command] = ()) -> Iterator[Command]:
    """The commands before those of a subcommand: its model, settings and prompt, and `first` before the prompt."""
    yield protocol.Load(request.load)
    yield protocol.Configure(request.settings)
    yield from first
    if request.prompt or request.messages:
        yield protocol.Prefill(
            request.prompt,
            request.chat,
            request.system,
            request.echo,
            messages=request.messages,
            options=request.options,
        )


class Driver:
    """Sends one command after another, and waits for the end of each.

    Args:
        request: Its settings are those of the summary; it takes over the model's own.
        writer: Receives the records and the summary.
        sent: All commands; each is asked for when the one before has ended.
        runs: Whether a run is among them.
        make_backend: Makes the backend.
        after: More commands, asked for once those have ended.
        forgives: As for `drive`.
        awaits: As for `drive`.
    """

    def __init__(
        self,
        request: CliRequest,
        writer: Writer,
        sent: Iterable[Command],
        runs: bool,
        make_backend: MakeBackend,
        after: Callable[[], Iterable[Command]] = tuple,
        forgives: Callable[[protocol.Failure], bool] = lambda failure: False,
        awaits: bool = False,
    ) -> None:
        self._awaits = awaits
        self._commands, self._after, self._forgives = sent, after, forgives
        self._writer = writer
        self._request, self._tally = request, Tally(request.settings, runs)
        self._inbox: SimpleQueue[Received | None] = SimpleQueue()  # None: interrupted
        self._backend = make_backend(self._inbox.put)
        self._sent = 0
        """Commands that were sent; the last one has this number as its id."""

    def run(self) -> tuple[int, protocol.Failure | None]:
        """Carry out one command after another; returns the exit status and the failure, if there was one."""
        try:
            return self._run()
        except Failed as failed:
            return BAD_INPUT if failed.failure.expected else FAULT, failed.failure
        except BrokenPipeError:  # the reader has enough
            return OK, None
        except OSError as error:
            refused = not_written(error)
            return BAD_INPUT, protocol.Failure("Write", refused.message, refused.hint)

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
            if self._awaits:
                self._receive_rest()
        self._writer.end(self._tally.summary())
        return code, None

    def _carry_out(self, command: Command) -> None:
        self._sent += 1
        self._backend.send(Sent(command, self._sent))
        self._receive_rest()

    def _receive_rest(self) -> None:
        """Take in the records of the command that is carried out, until it has ended."""
        while not isinstance(record := self._next(), protocol.Ended):
            if isinstance(record, ModelFacts):
                self._request.model_known(record)
            if not isinstance(record, protocol.Failure):
                self._writer.take(record, self._tally.take(record))
            elif not self._forgives(record):
                raise Failed(record)

    def _next(self) -> Record:
        received = self._inbox.get()
        if received is None:
            raise Interrupted
        return received.record

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
        if self._sent:
            self._backend.send(Sent(protocol.Cancel(self._sent), 0))
        self._inbox.put(None)


class RecordingWriter:
    """Hands everything on to another writer, and keeps what a recording has.

    Args:
        writer: Receives the records and the summary.
        request: The model and the settings.
    """

    def __init__(self, writer: Writer, request: CliRequest) -> None:
        self.entries: list[Entry] = []
        """What happened until now, in order."""
        self._writer, self._request = writer, request
        self._began = time.monotonic()

    def take(self, record: Record, text: str) -> None:
        """Keep a record, and hand it on."""
        if isinstance(record, ModelFacts):
            self._keep(self._request.load)
        if worth_keeping(record):
            self._keep(record)
        if isinstance(record, ModelFacts):
            self._keep(self._request.settings)
        self._writer.take(record, text)

    def _keep(self, value: Record | Settings | LoadSettings) -> None:
        self.entries.append(Entry(value, time.monotonic() - self._began))

    def end(self, summary: Summary) -> None:
        """Hand the summary on."""
        self._writer.end(summary)


def place(output: str | None, force: bool, instead: str) -> Path | None:
    """Where the recording goes, checked before the work of making it; None if none is wanted.

    Args:
        output: As it was typed.
        force: Whether a file that is there may be replaced.
        instead: What goes to standard output, as a sentence goes on.

    Raises:
        EngineError: It is standard output, a file is there, or no file can be.
    """
    if output is None:
        return None
    if output == "-":
        raise EngineError(
            f"The recording can't go to standard output: {instead}.", "Name a file: -o story.trace.zst."
        )
    return free(typed(output), force)
