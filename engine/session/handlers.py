"""The commands of a session: model, settings and prompt, steps, choices, moves, and what is computed again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine import commands, records
from engine.commands import Command
from engine.desk import Call, Desk, Handler
from engine.gc_policy import collect_all, set_aside
from engine.model.load import load
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
            commands.Load: self._load,
            commands.Configure: self._configure,
            commands.Prefill: self._prefill,
            commands.AddTurn: self._add_turn,
            commands.GoOnPrefill: self._go_on_prefill,
            commands.Restore: self._restore,
            commands.TakeStep: self._step,
            commands.Choose: self._choose,
            commands.Take: self._take,
            commands.MoveTo: self._move,
            commands.Reroll: self._reroll,
            commands.Recall: self._recall,
            commands.Verify: self._verify,
        }

    def forget(self, model: bool) -> None:
        """The session itself is the desk's."""

    # ---- model, settings, prompt ------------------------------------------------------------

    def _load(self, command: commands.Load, call: Call) -> None:
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

    def _configure(self, command: commands.Configure, call: Call) -> None:
        desk, settings = self._desk, check(command.settings)
        following = desk.opened.configure(settings) if desk.opened else None
        desk.settings = settings
        if following is not None:
            desk.emit(records.Resampled(following))

    def _prefill(self, command: commands.Prefill, call: Call) -> None:
        self._desk.forget()
        for record in conversation.prompt(self._desk.session, command, call.stopped):
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _add_turn(self, command: commands.AddTurn, call: Call) -> None:
        for record in conversation.add_turn(self._desk.session, command, call.stopped):
            if isinstance(record, records.PromptOpened):
                self._desk.forget()
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _go_on_prefill(self, command: commands.GoOnPrefill, call: Call) -> None:
        for record in self._desk.session.go_on_prefill(command.step_size, call.stopped):
            self._desk.emit(record)
        self._desk.read_prompts(call)

    def _restore(self, command: commands.Restore, call: Call) -> None:
        desk = self._desk
        desk.forget()
        desk.emit(restore(desk.session, command, desk.emit, call.stopped, desk.change))

    # ---- steps and moves --------------------------------------------------------------------

    def _step(self, command: commands.TakeStep, call: Call) -> None:
        self._desk.emit_step(self._desk.session.step())

    def _choose(self, command: commands.Choose, call: Call) -> None:
        self._desk.ensure_at(command.node, call)
        self._desk.emit_step(self._desk.session.choose(command.token, leave_grammar=command.leave_grammar))

    def _take(self, command: commands.Take, call: Call) -> None:
        self._desk.take_tokens(command.node, command.ids, command.origin, call, command.leave_grammar)

    def _move(self, command: commands.MoveTo, call: Call) -> None:
        self._desk.move(command.node, call)

    def _reroll(self, command: commands.Reroll, call: Call) -> None:
        self._desk.emit(records.Resampled(self._desk.session.reroll(command.count)))

    # ---- computed again ---------------------------------------------------------------------

    def _recall(self, command: commands.Recall, call: Call) -> None:
        begun = time.perf_counter()
        self._desk.session.recall(command.nodes, call.stopped)
        self._desk.emit(records.Recalled(command.nodes, (time.perf_counter() - begun) * 1000))

    def _verify(self, command: commands.Verify, call: Call) -> None:
        self._desk.emit(self._desk.session.verify(call.stopped))
