"""The commands of speculative decoding: the draft, rounds and runs of them, the comparison with plain steps."""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.decoding.speculative.compare import compare_with_plain
from engine.decoding.speculative.draft import Drafter
from engine.decoding.speculative.draft_paths import DraftPaths
from engine.decoding.speculative.drafts import make_draft
from engine.decoding.speculative.round import Round
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled
from engine.protocol import Command
from engine.session.stops import window_full
from engine.speculation_settings import SpeculationSettings, check_speculation


class SpeculationCommands:
    """Handlers of speculative decoding.

    Args:
        desk: The session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._draft: tuple[tuple[str, str], Drafter] | None = None
        """The draft that is ready, with its kind and the name of its model."""
        self._paths: DraftPaths | None = None
        self._round: Round | None = None
        """A round that waits between two of its stages."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.LoadDraft: self._load,
            protocol.TakeRound: self._take,
            protocol.RunRounds: self._run,
            protocol.VerifySpeculation: self._verify,
        }

    def forget(self, model: bool) -> None:
        """Drop the round that waits; with the model, the draft's too."""
        self._paths = self._round = None
        if model:
            self._draft = None

    # ---- drafts -----------------------------------------------------------------------------

    def _load(self, command: protocol.LoadDraft, call: Call) -> None:
        self._ready(command.settings, call)

    def _ready(self, settings: SpeculationSettings, call: Call) -> Drafter:
        """The draft for some settings, loaded where it isn't there."""
        check_speculation(settings)
        kind = settings.draft, settings.draft_model
        if self._draft is not None and self._draft[0] == kind:
            return self._draft[1]
        self._draft = None  # its memory is free before the next one takes more
        begun = time.perf_counter()
        draft = make_draft(settings, self._desk.model, self._desk.emit, call.cancel)
        self._draft = kind, draft
        ms = (time.perf_counter() - begun) * 1000
        self._desk.emit(protocol.DraftReady(settings, draft.weight_bytes, ms, draft.note))
        return draft

    def _new_round(self, settings: SpeculationSettings, call: Call, *, paused: bool = False) -> Round:
        session, draft = self._desk.session, self._ready(settings, call)
        if self._paths is None or self._paths.tree is not session.tree:
            self._paths = DraftPaths(session)
        return Round(session, draft, self._paths, settings, paused=paused)

    # ---- rounds -----------------------------------------------------------------------------

    def _take(self, command: protocol.TakeRound, call: Call) -> None:
        waiting, self._round = self._round, None
        if waiting is None or waiting.over or waiting.settings != command.settings:
            waiting = self._new_round(command.settings, call, paused=command.inside)

        def taken(step: protocol.Step) -> bool:
            return self._desk.emit_step(step) or call.stopped()

        go = waiting.advance if command.inside else waiting.rest
        self._desk.emit(go(call.stopped, taken))
        self._round = None if waiting.over else waiting

    def _run(self, command: protocol.RunRounds, call: Call) -> None:
        session, desk, ended = self._desk.session, self._desk, False
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            desk.emit(full)
            return
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        breaking = BreakpointEvaluator(session, sets)
        self._ready(command.settings, call)

        def taken(step: protocol.Step) -> bool:
            nonlocal ended
            broken = breaking.evaluate(session.position.node_logits)
            ended = desk.emit_step(step, breaking.most)
            desk.answer_asides()
            return ended or broken or call.stopped()

        for _ in range(command.plain):
            if taken(session.step()):
                break
        while not (ended or breaking.hits or call.stopped()):
            desk.emit(self._new_round(command.settings, call).rest(call.stopped, taken))
        if breaking.hits:
            desk.emit(protocol.BreakpointHit(session.node, breaking.hits))
        elif not ended:
            raise Cancelled

    # ---- comparison -------------------------------------------------------------------------

    def _verify(self, command: protocol.VerifySpeculation, call: Call) -> None:
        self._desk.emit(compare_with_plain(self._desk.session, command.node, call.stopped))
