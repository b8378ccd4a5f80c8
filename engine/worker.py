"""Carries out commands on one session; lives in the engine's thread and imports MLX there."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from engine import commands, records
from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding.beam import search
from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.decoding.lookahead import look_ahead
from engine.decoding.run import steps
from engine.errors import Cancelled, EngineError, StepError
from engine.gc_policy import GCPolicy, free
from engine.inspection.explain import explain, what_if
from engine.inspection.typed_text import check_room, cut, tokenize
from engine.inspection.vocabulary import Vocabulary, find
from engine.measuring.measure import measure
from engine.model.load import Loaded, load
from engine.records import Record
from engine.session.restore import restore
from engine.session.session import Session
from engine.session.stops import stop_reached, window_full
from engine.session.uncached import open_session
from engine.settings import Settings, check

Stopped = Callable[[], bool]


class Worker:
    """One model and one session at a time.

    Args:
        emit: Receives every record.
        closing: Asked beside each command's own cancel event.
        aside: Gives the next command where that is one of `commands.ASIDES`, to be answered between two steps.
    """

    def __init__(
        self,
        emit: Callable[[Record], None],
        closing: Stopped,
        aside: Callable[[], commands.Command | None] = lambda: None,
    ) -> None:
        self._emit = emit
        self._closing = closing
        self._aside = aside
        self._loaded: Loaded | None = None
        self._session: Session | None = None
        self._settings = Settings()
        self._collecting = GCPolicy()
        self._vocabulary: Vocabulary | None = None
        """The model's, for searches: made at the first one."""
        self._beams: Iterator[Record] | None = None
        """A beam search that isn't over: its caches are kept until the next prompt, model or search."""
        self._breaking: BreakpointEvaluator | None = None
        """The breakpoints of the last run, with what they counted."""

    def carry_out(self, command: commands.Command) -> None:
        """Do what a command asks; every failure becomes a record."""
        name = type(command).__name__
        cancelled = False
        try:
            self._do(command, lambda: command.cancel.is_set() or self._closing())
        except Cancelled:
            cancelled = True
        except EngineError as error:
            self._emit(records.Failure(name, error.message, error.hint))
        except Exception as error:  # a fault of the program must not take the screen with it
            self._emit(unexpected(name, error))
        self._emit(records.Ended(name, cancelled))

    def _do(self, command: commands.Command, stopped: Stopped) -> None:
        if stopped():
            raise Cancelled
        match command:
            case commands.Load():
                self._load(command)
            case commands.Configure():
                self._configure(command)
            case commands.Prefill():
                self._prefill(command, stopped)
            case commands.GoOnPrefill():
                for record in self._ready.go_on_prefill(command.step_size, stopped):
                    self._emit(record)
            case commands.Restore():
                self._breaking = self._beams = None
                self._emit(restore(self._ready, command, self._emit, stopped))
            case commands.TakeStep():
                self._took(self._ready.step())
            case commands.Run():
                self._run(command, stopped)
            case commands.Choose():
                self._go(command.node, stopped)
                self._took(self._ready.choose(command.id))
            case commands.MoveTo():
                self._move(command.node, stopped)
            case commands.Insert():
                self._insert(command, stopped)
            case commands.Take():
                self._put(command.node, command.ids, command.origin, stopped)
            case commands.Reroll():
                self._emit(records.Resampled(self._ready.reroll()))
            case commands.Explain():
                self._emit(explain(self._ready, command.node, command.settings))
            case commands.WhatIf():
                self._emit(what_if(self._ready, command.settings, command.tip, stopped))
            case commands.FindTokens():
                self._find(command, stopped)
            case commands.Tokenize():
                self._emit(tokenize(self._ready.tokens, command.text))
            case commands.LookAhead():
                self._look_ahead(command, stopped)
            case commands.Recall():
                self._recall(command, stopped)
            case commands.SearchBeams():
                self._beams = search(self._ready, command.settings)
                self._go_on(command.steps, stopped)
            case commands.GoOnBeams():
                self._go_on(command.steps, stopped)
            case commands.Sweep():
                self._sweep(command, stopped)
            case commands.Measure():
                self._measure(command, stopped)
            case commands.Verify():
                self._emit(self._ready.verify(stopped))
            case _:
                raise TypeError(f"unknown command {command!r}")

    @property
    def _ready(self) -> Session:
        if self._session is None:
            raise StepError("No model is loaded.", "Wait for it, or open one.")
        return self._session

    def _load(self, command: commands.Load) -> None:
        # their memory is free before the next one takes more
        self._loaded = self._session = self._beams = self._vocabulary = None
        free()
        self._loaded = load(command.settings, self._emit, command.cancel)
        self._session = open_session(self._loaded, self._settings)
        gc.freeze()  # the libraries' hundred thousand objects are here to stay
        self._emit(self._loaded.facts)

    def _configure(self, command: commands.Configure) -> None:
        settings = check(command.settings)
        following = self._session.configure(settings) if self._session else None
        self._settings = settings
        if following is not None:
            self._emit(records.Resampled(following))

    def _prefill(self, command: commands.Prefill, stopped: Stopped) -> None:
        session, notes = self._ready, []
        self._breaking = self._beams = None  # its nodes are of the tree that ends here
        chat = command.chat and session.tokens.has_chat_template
        if command.chat and not chat:
            notes.append("This model has no chat template: the prompt is used as raw text.")
        if command.system is not None and not chat:
            notes.append("The system prompt is not used: only a chat template has a place for it.")
        text = session.tokens.chat(command.text, command.system) if chat else command.text
        ids = session.tokens.encode(text, bare=chat)
        for record in session.prefill(
            text,
            ids,
            chat=chat,
            echo=command.echo,
            notes=tuple(notes),
            step_size=command.step_size,
            stopped=stopped,
        ):
            self._emit(record)

    def _run(self, command: commands.Run, stopped: Stopped) -> None:
        session = self._ready
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            self._emit(full)
            return
        breaking = self._breaking = self._breakpoints(command)
        ended = False
        for step in steps(session, command.pace, command.cancel, stopped, breaking):
            ended = self._took(step)
            self._answer_asides()
        if breaking.held:
            self._emit(records.BreakpointHit(session.node, breaking.held))
        elif not ended:
            raise Cancelled

    def _breakpoints(self, command: commands.Run) -> BreakpointEvaluator:
        """What evaluates a run's breakpoints: that of the run before where it goes on."""
        if command.goes_on and self._breaking is not None and self._breaking.stands_in(self._ready):
            return self._breaking
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        return BreakpointEvaluator(self._ready, sets)

    def _answer_asides(self) -> None:
        while (aside := self._aside()) is not None:
            self.carry_out(aside)

    def _go_on(self, steps: int | None, stopped: Stopped) -> None:
        """Go on with the beam search that waits; whatever fails in it ends it."""
        waiting, self._beams = self._beams, None
        if waiting is None:
            raise StepError("There is no beam search to go on with.", "Start one.")
        for record in waiting:
            self._emit(record)
            if not isinstance(record, records.BeamStep):
                continue
            self._answer_asides()
            steps = None if steps is None else steps - 1
            if not record.last and (steps == 0 or stopped()):
                self._beams = waiting
                if steps != 0:
                    raise Cancelled
                return

    def _look_ahead(self, command: commands.LookAhead, stopped: Stopped) -> None:
        for told in look_ahead(self._ready, command.node, command.ids, command.tokens, stopped):
            self._emit(told)
            self._answer_asides()

    def _sweep(self, command: commands.Sweep, stopped: Stopped) -> None:
        if self._loaded is None:
            raise StepError("No model is loaded.", "Wait for it, or open one.")
        from engine.measuring.sweeps import sweep  # wanted rarely, and start-up shouldn't pay for it

        for record in sweep(self._loaded, command.settings, stopped):
            self._emit(record)

    def _measure(self, command: commands.Measure, stopped: Stopped) -> None:
        session = self._ready
        assert self._loaded is not None  # where there is a session, there is its model
        for record in measure(command, self._loaded, session, stopped):
            self._emit(record)

    def _recall(self, command: commands.Recall, stopped: Stopped) -> None:
        begun = time.perf_counter()
        self._ready.recall(command.nodes, stopped)
        self._emit(records.Recalled(command.nodes, (time.perf_counter() - begun) * 1000))

    def _took(self, step: records.Step) -> bool:
        """Hand out a step and the stop that it reached; returns whether it reached one."""
        self._emit(step)
        self._collecting.stepped()
        stop = stop_reached(self._ready, step.node)
        if stop is not None:
            self._emit(stop)
        return stop is not None

    def _go(self, node: int, stopped: Stopped) -> None:
        if self._ready.node != node:
            self._move(node, stopped)

    def _move(self, node: int, stopped: Stopped) -> None:
        for record in self._ready.go(node, stopped):
            if isinstance(record, records.Step):
                self._took(record)
            else:
                self._emit(record)

    def _find(self, command: commands.FindTokens, stopped: Stopped) -> None:
        session = self._ready
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(session.tokens)
        self._emit(find(session, self._vocabulary, command.node, command.query, command.limit, stopped))

    def _insert(self, command: commands.Insert, stopped: Stopped) -> None:
        session = self._ready
        ids = cut(session.tokens, command.text)
        check_room(session, command.node, ids)
        self._put(command.node, ids, "inserted", stopped)

    def _put(self, node: int, ids: Sequence[int], origin: records.Origin, stopped: Stopped) -> None:
        session = self._ready
        session.tokens.check(ids)
        self._go(node, stopped)
        for step in session.insert(ids, origin):
            self._took(step)
            self._answer_asides()
            if stopped():
                raise Cancelled


def unexpected(command: str, error: BaseException) -> records.Failure:
    """A fault of the program itself, with the traceback that a report of it needs."""
    text = str(error).strip().splitlines()
    return records.Failure(
        command,
        f"{command} failed: {type(error).__name__}: {text[0] if text else 'no message'}.",
        "This is a fault of the program; please report it with the log.",
        expected=False,
        trace="".join(traceback.format_exception(error)),
    )
