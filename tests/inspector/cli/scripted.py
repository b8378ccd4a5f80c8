"""A subcommand run in a process of its own, or on a backend that answers from a script."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import convert
from msgspec.structs import replace

from engine import protocol
from engine.protocol import Candidate, Candidates, Command, Received, Record, Sent
from engine.settings import LoadSettings, Settings
from inspector.cli import driver
from inspector.cli.arguments import CliRequest
from inspector.cli.writers.generation import GenerationFigures, writer
from tests.inspector import fakes

Answers = dict[type[Command], Sequence[Record]]
Events = Callable[..., list[dict[str, Any]]]
"""The fixture `events`."""
Complaint = Callable[..., str]
"""The fixture `complaint`."""
Kind = TypeVar("Kind")


def as_record(event: dict[str, Any], kind: type[Kind]) -> Kind:
    """The record that a line of JSON has."""
    return convert(event, kind, dec_hook=lambda _, found: Candidates(convert(found, tuple[Candidate, ...])))


def of_kind(events: Sequence[dict[str, Any]], kind: type[Kind]) -> list[Kind]:
    """All records of a kind, in their order."""
    return [as_record(event, kind) for event in events if event["event"] == kind.__name__]


# ---- in a process of its own --------------------------------------------------------------------


def start(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start `inspector`; of its output no more is read than a line, where one is asked for."""
    command = [sys.executable, "-m", "inspector", *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, bufsize=0, **pipes, **options)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, list[dict[str, Any]], str]:
    """Wait for it; returns exit status, events and what standard error got."""
    out, err = process.communicate(timeout=120)
    return process.returncode, [json.loads(line) for line in out.decode().splitlines()], err.decode()


def interrupted(event: str, *argv: str) -> dict[str, Any]:
    """Start it, press Ctrl-C at its first event of a name, see that it ends as it should; returns the last event."""
    process, line = start(*argv, "--jsonl"), b""
    assert process.stdout is not None
    while f'"event":"{event}"'.encode() not in line:
        line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    code, events, err = finish(process)
    assert (code, err) == (130, "")
    return [json.loads(line), *events][-1]


# ---- on a backend that answers from a script ----------------------------------------------------


class Terminal(io.StringIO):
    """Standard output or error that is a terminal."""

    def isatty(self) -> bool:
        return True


class ScriptedBackend:
    """Answers each command with records that were made before, and its end."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.emit: Callable[[Received], None] = lambda received: None
        self.sent: list[Command] = []
        self.interrupt: type[Command] | None = None
        """The command at which the person presses Ctrl-C, after its first record."""
        self.closed = 0
        self.joins = True

    def start(self) -> None:
        self.emit(Received(protocol.Loading("import", 0, 0, "mlx")))

    def send(self, sent: Sent) -> None:
        command = sent.command
        self.sent.append(command)
        if isinstance(command, protocol.Cancel):
            return
        for record in self.answers.get(type(command), ()):
            self.emit(Received(record, sent.id))
            if isinstance(command, self.interrupt or ()):
                os.kill(os.getpid(), signal.SIGINT)
                return
        self.emit(Received(protocol.Ended(command.kind), sent.id))

    def close(self, timeout: float = 2.0) -> bool:
        self.closed += 1
        return self.joins


def text_writer(request: CliRequest, out: io.StringIO, err: io.StringIO | None) -> driver.Writer:
    """The writer of `inspector generate`."""
    return writer(request, GenerationFigures(request), out=out, err=err)


class ScriptedRun:
    """One run of a subcommand on a script."""

    def __init__(
        self,
        request: CliRequest,
        answers: Answers,
        then: Sequence[Command] = (),
        writer: Callable[..., driver.Writer] | None = None,
    ) -> None:
        self.request, self.then, self.writer = request, then, writer or text_writer
        self.backend = ScriptedBackend(answers)
        self.out: io.StringIO = io.StringIO()
        self.err: io.StringIO = io.StringIO()

    def go(self) -> int:
        """Run it; returns the exit status."""

        def make(emit: Callable[[Received], None]) -> ScriptedBackend:
            self.backend.emit = emit
            return self.backend

        writer = self.writer(self.request, self.out, self.err)
        status = driver.run(self.request, writer, self.then, make)
        assert self.backend.closed == 1
        return status

    @property
    def kinds(self) -> list[str]:
        """The commands that were sent."""
        return [type(command).__name__ for command in self.backend.sent]

    @property
    def lines(self) -> list[str]:
        """What was written."""
        return self.out.getvalue().splitlines()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What was written as JSON lines."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        found = [json.loads(line, parse_constant=refuse) for line in self.lines]
        assert all("request" not in event for event in found), "the program's own number of a command"
        return found


class Run(ScriptedRun):
    """One run of `inspector generate`."""

    def __init__(self, answers: Answers, jsonl: bool = True, **settings: Any) -> None:
        asked = Settings(seed=7, **settings)
        prompt = protocol.Prefill("Once upon a time,", False)
        request = CliRequest(LoadSettings(), asked, prompt, jsonl, ("a note",))
        super().__init__(request, answers, [protocol.Run()])


def script(
    steps: int = 5, reason: protocol.FinishReason = "length", detail: str = "5 tokens", **facts: Any
) -> Answers:
    """A generation of the hand-made story."""
    session = fakes.Session()
    loaded, opened, taken = session.load(**facts), session.open(), session.steps(steps)
    return {
        protocol.Load: answer(loaded),
        protocol.Prefill: answer(opened),
        protocol.Run: [*answer(taken), session.finish(reason, detail)],
    }


def answer(made: Sequence[Record]) -> list[Record]:
    """Records without the ends of commands: the backend on the script adds those."""
    return [record for record in made if not isinstance(record, protocol.Ended)]


def with_texts(answers: Answers, texts: Sequence[str]) -> Answers:
    """The same generation, its steps saying other texts."""
    steps = [record for record in answers[protocol.Run] if isinstance(record, protocol.Step)]
    told = [replace(step, text=text) for step, text in zip(steps, texts, strict=True)]
    opened = [_picking(record, texts[0]) for record in answers[protocol.Prefill]]
    return {**answers, protocol.Prefill: opened, protocol.Run: [*told, answers[protocol.Run][-1]]}


def _picking(record: Record, text: str) -> Record:
    """The distribution after the prompt with another text of the picked token; any other record as it is."""
    if not isinstance(record, protocol.Prefilled):
        return record
    told = (
        replace(each, text=text) if each.id == record.next.picked else each for each in record.next.candidates
    )
    return replace(record, next=replace(record.next, candidates=tuple(told)))
