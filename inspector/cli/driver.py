"""Drives the engine without a screen: load, prefill, then a subcommand's commands. Imports no Textual and no MLX.

The records go to a writer, and on request also into a recording, which the screen can open:
`inspector score FILE -o OUT`, `inspector replay OUT`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from engine import protocol
from engine.child import EngineProcess
from engine.protocol import Command, Failure, ModelFacts, Received, Record, Sent
from engine.recording import Entry, save_as, worth_keeping
from engine.settings import Settings
from engine.thread import EngineThread
from engine.timing import Tpot, tpot
from inspector.cli.arguments import CliRequest
from inspector.cli.exit import INTERRUPTED, OK, bad_input, fault, leave_at_once, not_written
from inspector.state.speculation import Speculation
from inspector.version import program

if TYPE_CHECKING:
    from inspector.session.client import Backend

# ---- the result of a generation -----------------------------------------------------------------


class Completion:
    """The text of a completion as far as it is certain: text that may begin a stop string is held back.

    Args:
        stops: Stop strings.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.text = ""
        """The text that is certain so far."""

    def add(self, text: str) -> str:
        """Add the text of a token; returns the text that became certain."""
        held = self._held + text
        cut = min((_begin_of(stop, held) for stop in self._stops), default=len(held))
        self._held = held[cut:]
        self.text += held[:cut]
        return held[:cut]

    def close(self) -> str:
        """Add the text that was held back, without a stop string and what follows it, and return it."""
        rest = min((self._held.partition(stop)[0] for stop in self._stops), key=len, default=self._held)
        self._held = ""
        self.text += rest
        return rest


def _begin_of(stop: str, text: str) -> int:
    """The place at which a stop string begins, or the beginning of one at the text's end; the end if there is none."""
    if (at := text.find(stop)) >= 0:
        return at
    ends = range(max(0, len(text) - len(stop) + 1), len(text))
    return next((at for at in ends if stop.startswith(text[at:])), len(text))


class Summary:
    """The figures of a generation, from its records; the steps are not stored.

    The first token is picked from the prompt's distribution, one forward pass before its own step. If a run follows,
    its text is added then, so that a run interrupted before its first step still has it.

    Args:
        settings: Their stop strings cut the text.
        runs: Whether a run follows the prompt.
    """

    def __init__(self, settings: Settings, runs: bool = False) -> None:
        self._runs = runs
        self._first: int | None = None
        """Id of the first token, between adding its text and its step."""
        self._begun = time.perf_counter()
        self.first_token_ms: float | None = None
        """Time from the encoded prompt until the record with the first token has arrived."""
        self.completion = Completion(settings.stop)
        self.facts: ModelFacts | None = None
        self.prefilled: protocol.Prefilled | None = None
        self.latest: protocol.Step | protocol.Prefilled | None = None
        """The last record with the state of the KV cache and the memory."""
        self.steps = 0
        self.steered = False
        """True if the prompt's last token ran again under interventions, which doesn't count as a step."""
        self.pending = b""
        """Bytes of a character that the last token left unfinished."""
        self.reason: protocol.FinishReason = "cancelled"
        self.detail = ""
        self._ms: list[float] = []
        """Times of the steps, except for a cold start."""
        self.cold_ms: float | None = None
        """Time of a first step that was a cold start: `tpot` doesn't count it."""
        self.pipelined = False
        """True if steps overlapped while they were timed."""
        self.speculation = Speculation()

    def take(self, record: Record) -> str:
        """Add one record; returns the text of the completion that it made certain."""
        self.speculation.apply(record)
        match record:
            case ModelFacts():
                self.facts = record
            case protocol.PromptOpened():
                self._begun = time.perf_counter()
            case protocol.Prefilled():
                self.prefilled = self.latest = record
                self.first_token_ms = (time.perf_counter() - self._begun) * 1000
                window = self.facts.context_window if self.facts else None
                if self._runs and len(record.tokens) != window:  # there is room for the token of a run
                    self._first = record.next.picked
                    return self._add(next(each for each in record.next.candidates if each.id == self._first))
            case protocol.Step():
                self.latest, self.pending = record, record.pending
                prompt = self.prefilled.tokens if self.prefilled is not None else ()
                if record.origin == "intervened" and prompt and record.position <= prompt[-1].position:
                    self.steered = True
                    return ""  # the prompt's last token, run again under interventions
                self.steps += 1
                if record.ms.cold:
                    self.cold_ms = record.ms.total
                else:
                    self._ms.append(record.ms.total)
                self.pipelined |= record.ms.pipelined
                first, self._first = self._first, None
                return "" if first == record.id else self._add(record)
            case protocol.Finished():
                self.reason, self.detail = record.reason, record.detail
                return self.completion.close()
        return ""

    def _add(self, token: protocol.Step | protocol.Candidate) -> str:
        """Add the text of a token unless it ends the sequence; returns the text that became certain."""
        ends = self.facts is not None and token.id in self.facts.eos_ids
        return "" if ends else self.completion.add(token.text)

    @property
    def tpot(self) -> Tpot | None:
        return tpot(self._ms)


# ---- running commands ---------------------------------------------------------------------------

MakeBackend = Callable[[Callable[[Received], None]], "Backend"]


class Writer(Protocol):
    """Receives the records; implemented in `inspector.cli.writers`."""

    def take(self, record: Record, text: str) -> None:
        """Write a record, or the text of the completion that it made certain."""

    def end(self, summary: Summary) -> None:
        """Write the end of the output."""


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


class Failed(Exception):
    """A command could not be carried out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class CommandRunner:
    """Sends one command after another to a backend, and waits for the end of each.

    Args:
        make: Makes the backend from the function that receives its records.
    """

    def __init__(self, make: MakeBackend) -> None:
        self._inbox: SimpleQueue[Received | None] = SimpleQueue()  # None: interrupted
        self.backend = make(self._inbox.put)
        self.sent = 0
        """Number of commands sent, which is also the id of the last one."""

    def records(self, command: Command) -> Iterator[Received]:
        """Send a command; yields the records until its end, and raises as `rest`."""
        self.sent += 1
        self.backend.send(Sent(command, self.sent))
        yield from self.rest()

    def rest(self) -> Iterator[Received]:
        """The records of the running command until its end.

        Raises:
            Interrupted: The user pressed Ctrl-C.
        """
        while (received := self._inbox.get()) is not None:
            if isinstance(received.record, protocol.Ended):
                return
            yield received
        raise Interrupted

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C cancel the running command instead of interrupting a write.

        A second Ctrl-C interrupts it, for an output that nothing reads. A SIGINT that the shell ignores stays ignored.
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
        if self.sent:
            self.backend.send(Sent(protocol.Cancel(self.sent), 0))
        self._inbox.put(None)


def run(
    request: CliRequest,
    writer: Writer,
    then: Iterable[Command] = (),
    make_backend: MakeBackend | None = None,
    *,
    loads: bool = True,
    first: Sequence[Command] = (),
    after: Callable[[Summary], Iterable[Command]] = lambda summary: (),
    forgives: Callable[[Failure], bool] = lambda failure: False,
    told: Callable[[Failure], Failure] = lambda failure: failure,
    awaits: bool = False,
    trace: Path | None = None,
    force: bool = False,
) -> int:
    """Load, prefill and run more commands; every record goes to a writer, and a failure is reported.

    Args:
        request: The model, the settings and the prompt; updated with the model's own settings.
        writer: Receives the records and the summary.
        then: Commands after the prompt.
        make_backend: Makes the backend from the function that receives its records; None for the engine's thread, or
            its processes for a model over ranks.
        loads: Whether to load the model and prefill the prompt; otherwise only the other commands run.
        first: Commands between the settings and the prompt.
        after: Called when all these have ended, for commands that depend on their results; each is generated when the
            one before has ended.
        forgives: Called with each failure; if it returns True, the writer receives it and the next command is sent.
        told: Changes the engine's failure before it is reported.
        awaits: Whether Ctrl-C waits for the end of the cancelled command, which may save its work.
        trace: Path of a recording to write, from `arguments.place`; None to write none.
        force: Whether the recording may replace a file.

    Returns:
        The exit status. The backend is closed in any case.

    Raises:
        EngineError: The recording can't be written.
    """
    then, kept = list(then), list[Entry]()
    summary = Summary(
        request.settings, any(isinstance(each, protocol.Run | protocol.RunRounds) for each in then)
    )
    began = time.monotonic()
    runner = CommandRunner(make_backend or (EngineProcess if request.load.divided else EngineThread))

    def commands() -> Iterator[Command]:
        if loads:
            yield protocol.Load(request.load)
            yield protocol.Configure(request.settings)  # the model's own are known now
            yield from first
        if loads and (request.prefill.text or request.prefill.messages):
            yield request.prefill
        yield from then
        yield from after(summary)

    def take(received: Received) -> None:
        record = received.record
        if isinstance(record, ModelFacts):
            request.model_known(record)
        if isinstance(record, Failure) and not forgives(record):
            raise Failed(record)
        if trace is not None:  # the settings are recorded with a model's facts
            facts = isinstance(record, ModelFacts)
            values: tuple[Any, ...] = (request.load, record, request.settings) if facts else (record,)
            passed = time.monotonic() - began
            kept.extend(Entry(each, passed) for each in values if facts or worth_keeping(each))
        writer.take(record, summary.take(record))

    code, failure = OK, None
    try:
        with runner.interruptible():
            try:
                runner.backend.start()
                for command in commands():
                    for received in runner.records(command):
                        take(received)
            except Interrupted:
                code = INTERRUPTED
                for received in runner.rest() if awaits else ():
                    take(received)
            summary.completion.close()
            writer.end(summary)
    except Failed as failed:
        failure = told(failed.failure)
    except BrokenPipeError:  # the reader closed the pipe
        code = OK
    except OSError as error:
        refused = not_written(error)
        failure = Failure("Write", refused.message, refused.hint)
    except KeyboardInterrupt:  # pressed again, before the first was answered
        code = INTERRUPTED
    finally:
        try:
            joined = runner.backend.close()
        except KeyboardInterrupt:
            joined = False
    if failure is not None:
        message = f"{failure.message} {failure.hint}".rstrip()
        code = bad_input(message) if failure.expected else fault(failure.message, failure.trace)
    elif trace is not None:
        save_as(trace, kept, program(), force)
    if not joined:  # the engine's thread still uses MLX
        leave_at_once(code)
    return code
