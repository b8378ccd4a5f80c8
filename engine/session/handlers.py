"""The commands of a session: model, settings and prompt, steps, choices, moves, and what is computed again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.gc_policy import collect_all, set_aside
from engine.model.load import load
from engine.protocol import Command
from engine.session import conversation
from engine.session.restore import restore
from engine.session.uncached import open_session
from engine.settings import check


class SessionCommands:
    """Handlers of the commands on the session.

    Args:
        desk: The session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Load: self._load,
            protocol.Configure: self._configure,
            protocol.Prefill: self._prefill,
            protocol.AddTurn: self._add_turn,
            protocol.GoOnPrefill: self._go_on_prefill,
            protocol.Restore: self._restore,
            protocol.TakeStep: self._step,
            protocol.Choose: self._choose,
            protocol.Take: self._take,
            protocol.MoveTo: self._move,
            protocol.Reroll: self._reroll,
            protocol.Recall: self._recall,
            protocol.Verify: self._verify,
        }

    def forget(self, model: bool) -> None:
        """The session itself is the desk's."""

    # ---- model, settings, prompt ------------------------------------------------------------

    def _load(self, command: protocol.Load, call: Call) -> None:
        desk = self._desk
        desk.forget(model=True)
        desk.loaded = desk.opened = None  # their memory is free before the next one takes more
        collect_all()
        spread = desk.spread(command.settings)
        loaded = load(command.settings, desk.emit, call.cancel, spread=spread)
        opened = open_session(loaded, desk.settings)  # before either is set: on a failure neither is
        desk.loaded, desk.opened = loaded, opened
        set_aside()
        desk.emit(loaded.facts)
        if spread is not None:
            desk.emit(spread.loaded())

    def _configure(self, command: protocol.Configure, call: Call) -> None:
        desk, settings = self._desk, check(command.settings)
        following = desk.opened.configure(settings) if desk.opened else None
        desk.settings = settings
        if following is not None:
            desk.emit(protocol.Resampled(following))

    def _prefill(self, command: protocol.Prefill, call: Call) -> None:
        self._desk.forget()
        for record in conversation.prompt(self._desk.session, command, call.stopped):
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _add_turn(self, command: protocol.AddTurn, call: Call) -> None:
        for record in conversation.add_turn(self._desk.session, command, call.stopped):
            if isinstance(record, protocol.PromptOpened):
                self._desk.forget()
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _go_on_prefill(self, command: protocol.GoOnPrefill, call: Call) -> None:
        for record in self._desk.session.go_on_prefill(command.step_size, call.stopped):
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _restore(self, command: protocol.Restore, call: Call) -> None:
        desk = self._desk
        desk.forget()
        desk.emit(restore(desk.session, command, desk.emit, call.stopped, desk.change))

    # ---- steps and moves --------------------------------------------------------------------

    def _step(self, command: protocol.TakeStep, call: Call) -> None:
        self._desk.emit_step(self._desk.session.step())

    def _choose(self, command: protocol.Choose, call: Call) -> None:
        self._desk.ensure_at(command.node, call)
        self._desk.emit_step(self._desk.session.choose(command.token, leave_grammar=command.leave_grammar))

    def _take(self, command: protocol.Take, call: Call) -> None:
        self._desk.take_tokens(command.node, command.ids, command.origin, call, command.leave_grammar)

    def _move(self, command: protocol.MoveTo, call: Call) -> None:
        self._desk.move(command.node, call)

    def _reroll(self, command: protocol.Reroll, call: Call) -> None:
        self._desk.emit(protocol.Resampled(self._desk.session.reroll(command.count)))

    # ---- computed again ---------------------------------------------------------------------

    def _recall(self, command: protocol.Recall, call: Call) -> None:
        begun = time.perf_counter()
        self._desk.session.recall(command.nodes, call.stopped)
        self._desk.emit(protocol.Recalled(command.nodes, (time.perf_counter() - begun) * 1000))

    def _verify(self, command: protocol.Verify, call: Call) -> None:
        self._desk.emit(self._desk.session.verify(call.stopped))
