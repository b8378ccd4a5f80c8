"""What goes to the engine and comes back: commands that are out, records that are taken in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine import commands, records
from engine.commands import (
    Choose,
    Command,
    Configure,
    GoOnPrefill,
    Load,
    MoveTo,
    Prefill,
    Recall,
    Reroll,
    Run,
    TakeStep,
    Verify,
)
from engine.settings import LoadSettings, Settings
from inspector.session.player import Player
from inspector.session.prefill import Prefilling, Prompt
from inspector.session.sampler_queries import SamplerQueries
from inspector.state.breakpoints import BreakpointState
from inspector.state.timeline import Phase, Timeline

_STOPPABLE: tuple[type[Command], ...] = (
    Run,
    TakeStep,
    Prefill,
    GoOnPrefill,
    Verify,
    Choose,
    MoveTo,
    Reroll,
    Recall,
    commands.Insert,
    commands.Take,
)
"""What escape stops."""


class Engine(Protocol):
    """What the screen asks of `engine.thread.EngineThread`."""

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def close(self, timeout: float = 2.0) -> bool: ...


class EngineClient:
    """Sends commands, knows which of them are out, and keeps the timeline.

    Args:
        engine: Takes the commands.
        load: The model to open.
        settings: Of the sampler.
        prompt: Prefilled as soon as the model is there; an empty one waits for the person.
    """

    def __init__(self, engine: Engine, load: LoadSettings, settings: Settings, prompt: Prompt) -> None:
        self.engine = engine
        self.load = load
        self.settings = settings
        self.prompt = prompt
        self.timeline = Timeline()
        self.outstanding: deque[Command] = deque()
        """Sent and not ended, in the order in which the engine does them."""
        self.pace: float | None = None
        self.prefilling = Prefilling(self._send, lambda: list(self.outstanding))
        self.questions = SamplerQueries(engine.send, settings)
        self.replay: Player | None = None
        """The recording that is on show, None while a session is lived through."""
        self.takes: Callable[[records.Record], bool] = lambda record: False
        """Asked about each record of the engine first; what it takes goes no further."""
        self.breaks = BreakpointState()
        self.listeners: list[Callable[[records.Record], None]] = [self.breaks.receive]
        """Called with every record, after the timeline took it in and what ended is no longer outstanding."""
        self._again: TakeStep | None = None
        """The step that was asked for by drawing again at an older token."""
        self._refused = False

    # ---- records in -------------------------------------------------------------------------

    def receive(self, record: records.Record) -> None:
        """Take in one record of the engine."""
        if self.takes(record):
            return
        if self.timeline.facts is not None and _ends_model(record):
            self.timeline = Timeline()
        self.timeline.apply(record)
        self.questions.receive(record, self.timeline)
        match record:
            case records.ModelFacts():
                self._prepare()
            case records.Step(parent=parent) if self._branches_at(parent):
                self.timeline.select(None)
            case records.Step() if self._again is not None and self.doing is self._again:
                self.timeline.select(len(self.timeline.items) - 1)
            case records.Failure(command="Configure"):
                self._refused = True
            case records.Ended():
                self._end(record)
            case _:
                pass
        for listener in self.listeners:
            listener(record)

    def tell(self, record: records.Record) -> None:
        """Take in one record of a recording: it is shown, and nothing follows from it."""
        self.timeline.apply(record)
        if isinstance(record, records.PromptOpened | records.Step):
            self.questions.receive(record, self.timeline)
        for listener in self.listeners:
            listener(record)

    def use(self, settings: Settings) -> None:
        """Settings were in force from here on in a recording."""
        self.settings = self.questions.in_force = settings

    @property
    def doing(self) -> Command | None:
        """The command that the engine is at, None while it waits."""
        return self.outstanding[0] if self.outstanding else None

    def _branches_at(self, node: int) -> bool:
        """Whether the engine is taking what was chosen after a node."""
        return isinstance(self.doing, Choose | commands.Take | commands.Insert) and self.doing.node == node

    def _prepare(self) -> None:
        self._send(Configure(self.settings))
        if self.prompt.text:
            self.prefilling.begin(self.prompt)

    def _end(self, ended: records.Ended) -> None:
        for command in self.outstanding:
            if type(command).__name__ == ended.command:
                self.outstanding.remove(command)
                if isinstance(command, Configure):
                    self._configured(command)
                break
        self.timeline.running = any(self._out(Run))

    def _configured(self, command: Configure) -> None:
        """Settings that the engine refused are not those that it samples with."""
        if not self._refused:
            self.questions.in_force = command.settings
        elif not self._out(Configure):
            self.settings = self.questions.in_force
        self._refused = False

    def _out(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.outstanding if isinstance(command, kind)]

    def do(self, command: Command) -> None:
        """Pause the run, if there is one, and have the engine do something."""
        self.pause()
        self._send(command)

    def _send(self, command: Command) -> None:
        self._cancel(commands.LookAhead)  # asked for while nothing else was to be done
        self.outstanding.append(command)
        self.engine.send(command)

    # ---- stopping -----------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop the run and the steps that were queued, at the next step."""
        self._cancel(Run, TakeStep)

    def stop(self) -> bool:
        """Stop whatever can be stopped.

        Returns:
            Whether there was anything.
        """
        return self._cancel(*_STOPPABLE)

    def leave(self) -> None:
        """Stop whatever the engine does: something else will be on show."""
        for command in self.outstanding:
            command.cancel.set()

    def _cancel(self, *kinds: type[Command]) -> bool:
        found = [command for command in self.outstanding if isinstance(command, kinds)]
        for command in found:
            command.cancel.set()
        return bool(found)

    def _cancel_all(self) -> None:
        self._cancel(Load, *_STOPPABLE)

    @property
    def stepping(self) -> bool:
        """Whether a prompt is in the cache, so that steps, moves and choices mean something."""
        return self.timeline.phase in (Phase.READY, Phase.RUNNING)


def _ends_model(record: records.Record) -> bool:
    """Whether the engine let go of the model that it had: another is on its way, or failed to come."""
    return isinstance(record, records.Loading) or (
        isinstance(record, records.Failure) and record.command == "Load"
    )
