"""The commands of a session: model, settings and prompt, steps, choices, moves, and what is computed again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine import protocol
from engine.context import Capability, Handler, collect_all, set_aside
from engine.errors import LoadError
from engine.model.load import load
from engine.protocol import Command
from engine.session import conversation
from engine.session.restore import restore
from engine.session.uncached import open_session
from engine.setting import check
from engine.task import Task


class SessionCommands(Capability):
    """Handlers of the commands on the session."""

    _loaded_any = False
    """True if a model was asked for before: what is left of it is garbage."""

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

    # ---- model, settings, prompt ------------------------------------------------------------

    def _load(self, command: protocol.Load, task: Task) -> None:
        context = self._context
        context.forget(model=True)
        context.loaded = context.opened = None  # their memory is free before the next one takes more
        if self._loaded_any:
            collect_all()
        self._loaded_any = True
        shared = context.shared(command.settings)
        if shared is not None and shared.divided:
            raise LoadError(
                "Another session of this program has a model over ranks, and they compute for one session.",
                "Close that session first, or open this one in a program of its own.",
            )
        spread = context.spread(command.settings)
        loaded = shared or load(command.settings, context.emit, task.cancel, spread=spread)
        opened = open_session(loaded, context.settings)  # before either is set: on a failure neither is
        context.loaded, context.opened, context.asked = loaded, opened, command.settings
        if shared is None:  # else what a session left that was closed would stay, too
            set_aside()
        context.emit(loaded.facts)
        if spread is not None:
            context.emit(spread.loaded())

    def _configure(self, command: protocol.Configure, task: Task) -> None:
        context, settings = self._context, check(command.settings)
        following = context.opened.configure(settings) if context.opened else None
        context.settings = settings
        if following is not None:
            context.emit(protocol.Resampled(following))

    def _prefill(self, command: protocol.Prefill, task: Task) -> None:
        self._context.forget()
        self._context.emit_all(conversation.prompt(self._context.session, command, task.cancel.is_set))
        self._context.read_prompts(task)

    def _add_turn(self, command: protocol.AddTurn, task: Task) -> None:
        for record in conversation.add_turn(self._context.session, command, task.cancel.is_set):
            if isinstance(record, protocol.PromptOpened):
                self._context.forget()
            self._context.emit(record)
        self._context.read_prompts(task)

    def _go_on_prefill(self, command: protocol.GoOnPrefill, task: Task) -> None:
        self._context.emit_all(self._context.session.go_on_prefill(command.step_size, task.cancel.is_set))
        self._context.read_prompts(task)

    def _restore(self, command: protocol.Restore, task: Task) -> None:
        context = self._context
        context.forget()
        context.emit(restore(context.session, command, context.emit, task.cancel.is_set, context.change))

    # ---- steps and moves --------------------------------------------------------------------

    def _step(self, command: protocol.TakeStep, task: Task) -> None:
        self._context.emit_step(self._context.session.step())

    def _choose(self, command: protocol.Choose, task: Task) -> None:
        self._context.ensure_at(command.node, task)
        self._context.emit_step(
            self._context.session.choose(command.token, leave_grammar=command.leave_grammar)
        )

    def _take(self, command: protocol.Take, task: Task) -> None:
        self._context.take_tokens(command.node, command.ids, command.origin, task, command.leave_grammar)

    def _move(self, command: protocol.MoveTo, task: Task) -> None:
        self._context.move(command.node, task)

    def _reroll(self, command: protocol.Reroll, task: Task) -> None:
        self._context.emit(protocol.Resampled(self._context.session.reroll(command.count)))

    # ---- computed again ---------------------------------------------------------------------

    def _recall(self, command: protocol.Recall, task: Task) -> None:
        begun = time.perf_counter()
        self._context.session.recall(command.nodes, task.cancel.is_set)
        self._context.emit(protocol.Recalled(command.nodes, (time.perf_counter() - begun) * 1000))

    def _verify(self, command: protocol.Verify, task: Task) -> None:
        self._context.emit(self._context.session.verify(task.cancel.is_set))
