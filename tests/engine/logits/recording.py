"""A session with its rows recorded: what the engine told, written as a trace, read again, and asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from engine import protocol
from engine.errors import EngineError
from engine.logits.recorded import RecordedLogits
from engine.protocol import Command, Record
from engine.recording import Entry, Kept, load, save_as, worth_keeping
from engine.settings import LoadSettings, Settings
from engine.task import Task, never
from engine.worker import Worker


class Recording:
    """One engine in this thread, and the trace of all that it told.

    Args:
        settings: How the model is loaded, with its rows recorded unless they say otherwise.
    """

    def __init__(self, settings: LoadSettings) -> None:
        self.entries: list[Entry] = []
        self._told: list[Record] = []
        self._worker = Worker(lambda received: self._told.append(received.record))
        self.keep(settings)
        self.do(protocol.Load(settings))

    def do(self, command: Command) -> list[Record]:
        """Carry out a command, and keep what belongs in a trace, as the screen's recorder does."""
        self._told.clear()
        self._worker.carry_out(Task(command))
        for record in self._told:
            if worth_keeping(record):
                self.keep(record)
        if isinstance(command, protocol.Configure):
            self.keep(command.settings)
        return list(self._told)

    def ask(self, command: Command) -> Record:
        """The live answer to a question, which is not kept."""
        self._told.clear()
        self._worker.carry_out(Task(command))
        return timeless(self._told[0])

    def keep(self, value: Kept) -> None:
        """Put something into the trace."""
        self.entries.append(Entry(value, float(len(self.entries))))

    @property
    def steps(self) -> list[protocol.Step]:
        """All steps so far."""
        return [entry.value for entry in self.entries if isinstance(entry.value, protocol.Step)]

    def read(self, directory: Path) -> RecordedLogits:
        """What a replay knows of it: written to a file, and read from there."""
        path = directory / "rows.trace.zst"
        save_as(path, self.entries, "test")
        return taken(entry.value for entry in load(path).entries)


def taken(values: Iterable[object]) -> RecordedLogits:
    """A replay that was shown these entries."""
    recorded = RecordedLogits()
    for value in values:
        recorded.take(value)  # type: ignore[arg-type]
    return recorded


def answer(recorded: RecordedLogits, command: Command) -> Record:
    """The recorded answer to a question: what there are rows for, or why it fails."""
    assert recorded.answers(command)
    try:
        return timeless(recorded.question(command)(never))
    except EngineError as error:
        return protocol.Failure(command.kind, error.message, error.hint, error=type(error).__name__)


def timeless(record: Record) -> Record:
    """Without how long it took."""
    return replace(record, ms=0.0) if isinstance(record, protocol.WhatIfAnswered) else record


def story(settings: LoadSettings, prompt: str, steps: int, sampling: Settings) -> Recording:
    """A session with forks, re-rolls, a change of settings and a second prompt."""
    made = Recording(settings)
    made.do(protocol.Configure(sampling))
    made.do(protocol.Prefill(prompt, chat=False))
    made.do(protocol.Configure(replace(sampling, max_tokens=steps)))
    made.do(protocol.Run())
    fork = made.steps[steps // 2]
    made.do(protocol.MoveTo(fork.node))
    made.do(protocol.Reroll())
    made.do(protocol.TakeStep())
    made.do(protocol.Choose(fork.node, fork.next.candidates[-1].id))
    made.do(protocol.Configure(replace(sampling, temp=0.5, seed=9)))
    for _ in range(3):
        made.do(protocol.TakeStep())
    made.do(protocol.Insert(made.steps[-1].node, "a b é"))
    made.do(protocol.TakeStep())
    return made
